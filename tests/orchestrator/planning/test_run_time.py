"""Time of a run, as its plan tells it: from an earlier run, or from a few steps on this machine.

Alone: .venv/bin/pytest tests/orchestrator/planning/test_run_time.py
"""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.corpus.tokenizer_job import train_tokenizer
from orchestrator.kinds import kind_of, resolved_inputs
from orchestrator.kinds.base import Fact
from orchestrator.planning.plan import plan_rows
from orchestrator.planning.run_time import expected_time
from orchestrator.settings import Settings
from orchestrator.specs import TokenizerSpec
from orchestrator.specs.loading import parse_spec
from tests.orchestrator.small_specs import DISTILL, EVALUATE, PRETRAIN, STORE, SWEEP, TOKENIZER, pipeline

TINY = {
    **{**PRETRAIN, "model": {"size": "tiny"}, "global_batch_size": 4, "phases": [{"max_seq_length": 16}]},
    "execution": {"device": "cpu"},
}
TRIALS = {
    **{**SWEEP, "recipe": {"tokenizer": "words", "size": "tiny", "max_seq_length": 16}, "seeds": [0, 1]},
    "execution": {"gpus_per_trial": 0},
}
FILLING = {"kind": "distill", "pretraining": TINY}


def from_stage(name: str) -> dict[str, Any]:
    """A sweep over two seeds that starts from what a stage makes."""
    return {**TRIALS, "recipe": {"init_from": f"@{name}", "max_seq_length": 16}}


def told(settings: Settings, values: dict[str, Any]) -> Fact | None:
    """Value of the row in which the plan of a spec tells its time."""
    spec = parse_spec(values)
    expected = expected_time(kind_of(spec), spec, resolved_inputs(spec, settings))
    return None if expected is None else ("time", expected.text)


@pytest.mark.parametrize(
    "changes",
    [{"model": {"size": "large"}, "phases": [{"max_seq_length": 512}]}, {"execution": {"device": "gpu"}}],
    ids=["large", "on GPUs"],
)
def test_a_large_model_and_gpus_are_not_measured_here(settings: Settings, changes: dict[str, Any]) -> None:
    assert told(settings, {**TINY, **changes}) is None


@pytest.mark.training
@pytest.mark.parametrize(
    ("stages", "of_what"),
    [
        ({"words": TOKENIZER, "model": {**TINY, "tokenizer": "@words"}}, "for 10 steps, "),
        ({"words": TOKENIZER, "tokens": {**STORE, "tokenizer": "@words"}}, "for tokenizing, from its first text"),
        ({"words": TOKENIZER, "model": {**TINY, "tokenizer": "@words"}, "trials": from_stage("model")}, "for 2 trials"),
        ({"model": TRIALS, "scores": {**EVALUATE, "model": "@model", "gpus": 0}}, "for 2 examples"),
        ({"model": TRIALS, "student": {**DISTILL, "teacher": "@model"}}, "for 3 steps and the teacher's answers"),
        ({"model": TINY, "student": {**FILLING, "teacher": "@model"}}, "for 10 steps, "),
    ],
    ids=["pretrain", "corpus", "sweep", "evaluate", "distill", "distill on text"],
)
def test_what_begins_with_a_stage_is_measured_with_what_is_like_it(
    settings: Settings, stages: dict[str, Any], of_what: str
) -> None:
    spec = parse_spec(pipeline(**stages))
    rows = plan_rows(spec, resolved_inputs(spec, settings), with_time=True)
    times = {row.stage: row.value for row in rows if row.what == "time"}
    assert list(times) == list(stages), "every stage tells its time"
    assert of_what in times[list(stages)[-1]]
    assert not settings.home.exists()


def test_training_a_tokenizer_is_measured_on_the_first_text(settings: Settings) -> None:
    what = told(settings, TOKENIZER)
    assert what is not None
    assert "for training the tokenizer, from its first text" in what[1]


def test_a_tokenizer_that_is_there_takes_no_time(settings: Settings) -> None:
    spec = parse_spec(TOKENIZER)
    assert isinstance(spec, TokenizerSpec)
    train_tokenizer(spec, settings.storage)
    assert told(settings, TOKENIZER) is None


@pytest.mark.heavy
def test_a_text_whose_beginning_is_one_long_document_has_a_plan(settings: Settings, tmp_path: Path) -> None:
    """Its first megabyte has no second document to take other sentences from, and so no step to measure."""
    (tmp_path / "corpus.txt").write_text("a cat sat\n" * 300_000 + "\na cat sat\n\na cat sat\n")
    spec = parse_spec(TINY)
    rows = plan_rows(spec, resolved_inputs(spec, settings), with_time=True)
    assert "steps" in {row.what for row in rows}
