"""The README's example runs as it stands."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def test_the_example_runs(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    names: dict = {}
    exec(example, names)
    assert names["model"].converged_
    assert "global" in capsys.readouterr().out
    truth = 1 / (1 + names["np"].exp(2 * names["np"].sin(names["x"][80:140])))
    assert names["np"].abs(names["pred"]["home"].mean - truth).mean() < 0.15
