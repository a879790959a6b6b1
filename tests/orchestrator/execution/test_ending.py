"""Lines at the end of a completed run. Alone: pytest tests/orchestrator/execution/test_ending.py"""

import pytest

from orchestrator.errors import RegistryUnavailableError
from orchestrator.execution.ending import ending_lines
from orchestrator.registry.recorder import Recorder

WORDS = {"kind": "tokenizer", "corpus": {"files": ["text.txt"]}}


def test_a_pipeline_ends_with_a_line_for_each_stage_in_order(recorder: Recorder) -> None:
    stages = {"small": WORDS, "large": WORDS}
    pipeline = recorder.start({"kind": "pipeline", "name": "all", "stages": stages}, "f")
    for name in stages:
        recorder.start({**WORDS, "name": f"all/{name}", "tags": [f"pipeline:{pipeline.id}"]}, name)
    lines = ending_lines(pipeline.id, recorder.registry)
    assert lines == ["small: completed after 0 s", "large: completed after 0 s"]


def test_a_registry_that_is_away_costs_the_words_alone(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    def be_away(run_id: str) -> None:
        raise RegistryUnavailableError("the registry does not answer.")

    monkeypatch.setattr(recorder.registry, "run", be_away)
    assert ending_lines("7f3a", recorder.registry) == ["the result cannot be shown: the registry does not answer."]
