"""What is released, checked: wheel and source, each installed where nothing else is.

    python benchmarks/dist.py --out dist

It builds both, checks their descriptions (`twine check`) and the size of the wheel. Then, for each
version of Python that the machine has, it installs the wheel in an empty environment and runs the
README's example and the command line from there; the source is installed with the first of them.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
LARGEST = 1_000_000  # bytes of a wheel
QUIET = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


def run(*command, cwd=ROOT):
    subprocess.run([str(part) for part in command], cwd=cwd, check=True)


def environment(python, folder):
    """An empty environment's interpreter."""
    run(python, "-m", "venv", folder)
    return folder / "bin" / "python"


def found(version):
    """The interpreter of a version, or None where there is none that works."""
    python = shutil.which(f"python{version}")
    for candidate in filter(None, [python, *_of_pyenv(version)]):
        tried = subprocess.run([candidate, "-c", "import venv, ssl"], capture_output=True)
        if tried.returncode == 0:
            return candidate
    return None


def _of_pyenv(version):
    root = Path.home() / ".pyenv" / "versions"
    return [str(path) for path in sorted(root.glob(f"{version}.*/bin/python"))]


def example():
    """The README's example."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]


def tried(python, folder, package):
    """Install a package, and use it from an empty folder."""
    run(python, *QUIET, "--constraint", ROOT / "constraints.txt", package)
    run(python, "-m", "pip", "check", "--disable-pip-version-check")
    (folder / "example.py").write_text(example())
    run(python, "-I", "-W", "error", "example.py", cwd=folder)
    run(python.parent / "hetmogp", "--version", cwd=folder)


def main():
    """Build and check."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    out = parser.parse_args().out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    with tempfile.TemporaryDirectory() as place:
        tools = environment(sys.executable, Path(place) / "tools")
        run(tools, *QUIET, "build", "twine")
        run(tools, "-m", "build", "--outdir", out)
        run(tools, "-m", "twine", "check", "--strict", *out.iterdir())
        (wheel,), (source,) = out.glob("*.whl"), out.glob("*.tar.gz")
        size = wheel.stat().st_size
        names = zipfile.ZipFile(wheel).namelist()
        assert size < LARGEST, f"the wheel has {size:,} bytes"
        assert "hetmogp/py.typed" in names, "the wheel has no py.typed"
        print(f"{wheel.name}: {size:,} bytes, {len(names)} files", flush=True)
        pythons = {version: found(version) for version in PYTHONS}
        packages = [(version, python, wheel) for version, python in pythons.items() if python]
        packages.append((*packages[0][:2], source))
        for version, python, package in packages:
            with tempfile.TemporaryDirectory(dir=place) as folder:
                empty = environment(python, Path(folder) / "empty")
                tried(empty, Path(folder), package)
            print(f"Python {version}, {package.name}: works", flush=True)
        for version in (version for version, python in pythons.items() if not python):
            print(f"Python {version}: not on this machine, so not tried", flush=True)


if __name__ == "__main__":
    main()
