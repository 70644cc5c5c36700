"""Names on their way to a terminal, and commands that end in one clear line."""

import errno
import io
import json
import lzma
import subprocess
import sys
import warnings
import zipfile
import zlib
from typing import Any

import jax
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

import hetmogp as hm
from hetmogp import plots
from hetmogp.cli.application import fail, one_clear_line, print_data, print_json, say
from hetmogp.text import printable

HOSTILE = "a\x1b[2J\r\nb\x9b31m\u202egpj.exe\u2066\x00\ud800\x7f"


@given(st.text(st.characters(codec="utf-8")))
def test_text_is_one_line_without_controls(text):
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    assert not any(c < " " or "\x7f" <= c <= "\x9f" for c in shown)
    assert printable(shown) == shown


def test_ordinary_text_is_left_alone():
    for text in ("", "Größe (µm²)", "価格", "عربي", "👩‍🔬", "a\u00a0b", r"C:\new"):
        assert printable(text) == text
    assert printable(HOSTILE).encode() == (
        rb"a\x1b[2J\r\nb\x9b31m\u202egpj.exe\u2066\x00\ud800\x7f"
    )


def ended(body):
    """The exit code of a command."""
    with pytest.raises(typer.Exit) as caught, one_clear_line():
        body()
    return caught.value.exit_code


def test_what_is_said_is_clean_and_tables_keep_their_lines(capsys):
    say(f"first {HOSTILE[:4]}\nsecond")
    assert capsys.readouterr().out == "first a\\x1b[2\nsecond\n"
    assert ended(lambda: fail(f"no column {HOSTILE}")) == 1
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert "\x1b" not in shown
    with one_clear_line():
        warnings.warn(HOSTILE, stacklevel=1)
    shown = capsys.readouterr().err
    assert shown.startswith("hetmogp: warning: a\\x1b[2J b")
    assert shown.count("\n") == 1


def test_json_has_the_same_names_and_no_controls(capsys):
    print_json({HOSTILE: [HOSTILE, float("nan"), np.float64(0.5)]})
    shown = capsys.readouterr().out
    assert not {"\x1b", "\x9b", "\u202e", "\u2066", "\ud800", "\x7f"} & set(shown)
    assert json.loads(shown) == {HOSTILE: [HOSTILE, None, 0.5]}


def test_data_are_left_as_they_are_but_on_a_terminal(capsys, monkeypatch):
    table = "a\x1b[31m,b\u202e\r\n1,2\r\n"
    print_data(table)
    assert capsys.readouterr().out == table
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    print_data(table)
    assert capsys.readouterr().out == "a\\x1b[31m,b\\u202e\\r\n1,2\\r\n"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "m.html"), "m.html: No space left"),
        (PermissionError(errno.EACCES, "Permission denied", "m"), "m: Permission denied"),
        (BrokenPipeError(errno.EPIPE, "Broken pipe", "out.csv"), "out.csv: Broken pipe"),
        (EOFError("Compressed file ended"), "Compressed file ended"),
        (zlib.error("invalid stored block"), "invalid stored block"),
        (lzma.LZMAError("Corrupt input data"), "Corrupt input data"),
        (zipfile.BadZipFile("File is not a zip file"), "not a zip file"),
        (NotImplementedError("Support for codec 'lzo' not built"), "codec 'lzo'"),
        (RecursionError("maximum recursion depth"), "maximum recursion depth"),
        (ImportError("install hetmogp[ray]"), "install hetmogp[ray]"),
        (MemoryError(), "not enough memory"),
        (EOFError(), "this could not be done (EOFError)"),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"), "not enough memory"),
        (jax.errors.JaxRuntimeError("UNAVAILABLE: no device\n at 0x1"), "UNAVAILABLE: no device"),
        (RuntimeError("Unable to initialize backend 'cuda': no"), "Unable to initialize backend"),
    ],
)
def test_trouble_of_the_user_is_one_line(capsys, error, said):
    def body():
        raise error

    assert ended(body) == 1
    shown = capsys.readouterr().err
    assert said in shown
    assert shown.startswith("hetmogp: ")
    assert shown.count("\n") == 1


@pytest.mark.parametrize("error", [KeyError("x"), RuntimeError("x"), AssertionError, IndexError])
def test_faults_of_the_package_keep_their_traceback(error):
    with pytest.raises(error if isinstance(error, type) else type(error)), one_clear_line():
        raise error


def test_a_full_standard_output_is_named(monkeypatch):
    class Full(io.StringIO):
        def flush(self):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(OSError, match="standard output"):
        say("text")


def test_a_reader_that_has_seen_enough_is_no_trouble():
    """As in `hetmogp predict ... | head -1`."""
    code = (
        "from hetmogp.cli.application import app, one_clear_line, print_data\n"
        "@app.command()\n"
        "def flood():\n"
        "    with one_clear_line():\n"
        "        for _ in range(1000):\n"
        "            print_data('a line of text\\n' * 1000)\n"
        "app(['flood'])\n"
    )
    source = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, err = source.stdout, source.stderr
    assert out is not None
    assert err is not None
    with err:
        with out:
            assert out.readline() == b"a line of text\n"
        assert err.read() == b""
    assert source.wait(60) == 1


def test_hostile_names_do_not_reach_the_terminal_from_a_model():
    x = np.linspace(0.0, 1.0, 12)
    name = HOSTILE.replace("\ud800", "")
    likelihoods = {name: hm.Categorical(["a", "b\x1b[31m"], weight="w\x07")}
    Y = {name: ["a", "b\x1b[31m"] * 6, "w\x07": np.ones(12)}
    model = hm.HetMOGP(likelihoods, latents=1, inducing=4, max_iter=0, progress=False).fit(x, Y)
    text = repr(model.summary())
    assert printable(text.replace("\n", "")) == text.replace("\n", "")
    assert printable(name) in text
    assert model.summary().outputs.index[0] == name  # the tables themselves are as they were


def test_pictures_show_hostile_names_as_they_are():
    """Drawn with warnings as errors: a font has no picture of a control character."""
    x, labels = np.linspace(0.0, 1.0, 12), ["$x^2", "$\\frac{$", "_a\x07"]
    model = hm.HetMOGP({"$a\r": hm.Categorical(labels)}, latents=1, inducing=4, max_iter=0)
    model.set_params(progress=False).fit(pd.DataFrame({"$t\x1b": x}), {"$a\r": labels * 4})
    figure: Any = plots.posterior(model, "$a\r").figure
    figure.canvas.draw()
    assert figure.axes[0].get_xlabel() == r"\$t\x1b"
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert {r"\$x^2", "\\$\\frac{\\$", "\u200b_a\\x07"} <= set(shown)
    plt.close(figure)
