"""The command line: help without JAX, clear failures, exit codes."""

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
