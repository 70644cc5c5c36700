"""The short form of `make stress`: fits in fresh processes on busy cores must not hang."""

import subprocess
import sys
from pathlib import Path

STRESS = Path(__file__).parents[1] / "benchmarks" / "stress.py"


def test_fits_under_load_do_not_hang():
    command = [sys.executable, str(STRESS), "--fits", "1", "--limit", "200"]
    done = subprocess.run(command, timeout=450, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 done" in done.stdout
