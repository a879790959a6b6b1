"""The README's step runs as it stands. Run alone: pytest tests/bert_core/test_readme.py"""

import re
from pathlib import Path
from typing import Any

import bert_core


def test_step_in_the_readme_runs_and_reaches_every_weight() -> None:
    text = (Path(bert_core.__file__).parent / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec("\n".join(blocks), names)
    assert float(names["loss"].detach()) > 0
    assert all(parameter.grad is not None for parameter in names["model"].parameters())
