"""What a stage says of its data.

Run alone: pytest tests/orchestrator/test_stages.py
"""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.results import DatasetResult
from orchestrator.stages import _tell_dataset


@pytest.mark.parametrize(("num_held_out", "warned"), [(0, True), (3, False)])
def test_an_empty_held_out_set_is_warned_of(num_held_out: int, warned: bool) -> None:
    counts = {
        "num_train_documents": 10,
        "num_train_tokens": 100,
        "num_held_out_documents": num_held_out,
        "num_bad_records": 0,
    }
    said: list[str] = []
    context = cast("Any", SimpleNamespace(progress=SimpleNamespace(say=said.append)))
    _tell_dataset(DatasetResult("a.txt", "corpus", "f" * 64, "store", counts, ()), context)
    assert any(line.startswith("warning:") and "held_out_share" in line for line in said) is warned
