"""The command line: help without JAX, clear failures, exit codes."""

import os
import subprocess
import sys

from typer.testing import CliRunner

import hetmogp
from hetmogp.cli import app


def test_help_lists_the_commands_and_does_not_import_jax():
    code = (
        "import sys; from typer.testing import CliRunner; from hetmogp.cli import app;"
        "out = CliRunner().invoke(app, ['--help']).output;"
        "assert 'demo' in out, out; assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_version():
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert hetmogp.__version__ in result.output


def test_an_unwritable_folder_is_one_clear_line(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    result = CliRunner().invoke(app, ["demo", "--out", str(blocked / "demo")])
    assert result.exit_code == 1
    assert result.stderr.startswith("hetmogp: cannot write to")
    assert len(result.stderr.strip().splitlines()) == 1


COUNT_HITS = """
import jax, numpy as np
from hetmogp.cli import _remember_compilations
_remember_compilations()
hits = []
jax.monitoring.register_event_listener(lambda event, **_: hits.append(event.endswith("cache_hits")))
import hetmogp as hm
x = np.linspace(0.0, 1.0, 30)
hm.HetMOGP([hm.Gaussian()], inducing=5, latents=1, max_iter=1, progress=False).fit(x, np.sin(6 * x))
print(sum(hits), jax.config.jax_compilation_cache_dir)
"""


def test_a_second_run_of_the_command_line_compiles_nothing_large_again(tmp_path):
    found = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", COUNT_HITS],
            env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        hits, folder = done.stdout.split()
        assert folder == str(tmp_path / "hetmogp" / "xla")
        found.append(int(hits))
    assert found[0] == 0
    assert found[1] >= 2  # the E-step and the M-step at least
