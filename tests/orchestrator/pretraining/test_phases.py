"""Phases of a run: rates, batches and rotary bases of their own.

Alone: pytest tests/orchestrator/pretraining/test_phases.py
"""

import json
from pathlib import Path
from typing import Any

import pytest

from bert_core.config import BertConfig
from orchestrator.base.errors import SpecError
from orchestrator.base.results import Event, MetricEvent
from orchestrator.pretraining.job import build_model, fitted
from orchestrator.training.snapshots import snapshot_folders
from tests.orchestrator.pretraining.small_run import final_digests, make_job, run

MODEL = {"family": "modern", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
PHASES = [
    {"share": 0.5, "max_seq_length": 16, "global_batch_size": 4},
    {"share": 0.25, "max_seq_length": 32, "learning_rate": 0.004, "rotary_base": 500.0},
    {"share": 0.25, "max_seq_length": 48, "global_batch_size": 12},
]
LONG: dict[str, Any] = {
    "model": MODEL,
    "phases": PHASES,
    "steps": 12,
    "sentence_objective": "none",
    "learning_rate_schedule": "constant",
    "warmup_ratio": 0.0,
    "execution": {"checkpoint_every_steps": 3, "log_every_steps": 1, "snapshot_steps": [6, 12]},
}


def ignore(event: Event) -> None:
    pass


@pytest.mark.training
def test_phases_change_rate_batch_and_rotary_base_and_keep_the_optimizer(tmp_path: Path) -> None:
    events: list[Event] = []
    loop = run(make_job(tmp_path, **LONG), events.append)
    measured = [event for event in events if isinstance(event, MetricEvent) and event.split == "train"]
    assert [event.values["learning_rate"] for event in measured] == [0.01] * 6 + [0.004] * 3 + [0.01] * 3
    configs = {
        step: json.loads((Path(folder) / "config.json").read_text())
        for step, folder in snapshot_folders(str(tmp_path / "run")).items()
    }
    assert [configs[step]["rotary_base"] for step in (6, 12)] == [10_000.0, 500.0]
    assert {int(state["step"]) for state in loop.optimizer.state.values()} == {12}
    loop.context.enter_phase(0)  # as a run that goes back to an earlier checkpoint does
    assert loop.model.bert.config.rotary_base == 10_000.0


@pytest.mark.training
@pytest.mark.parametrize("stopped_at", [6, 10])
def test_a_run_with_phases_is_resumed_to_the_same_bits(stopped_at: int, tmp_path: Path) -> None:
    run(make_job(tmp_path / "straight", **LONG), ignore)
    run(make_job(tmp_path / "stopped", **LONG), ignore, note_step=lambda step: step == stopped_at)
    loop = run(make_job(tmp_path / "stopped", attempt=2, **LONG), ignore)
    assert final_digests(tmp_path / "stopped", 12) == final_digests(tmp_path / "straight", 12)
    again = run(make_job(tmp_path / "stopped", attempt=3, **LONG), ignore)
    assert again.model.config.rotary_base == loop.model.config.rotary_base == 500.0, "without a step, too"


def test_rotary_positions_of_another_model_are_prolonged_where_a_phase_changes_their_base(tmp_path: Path) -> None:
    few = {**LONG, "model": {**MODEL, "max_position_embeddings": 40}, "phases": [{"max_seq_length": 40}]}
    build_model(make_job(tmp_path, **few)).save_pretrained(tmp_path / "short")
    longer = make_job(tmp_path, init_folder=str(tmp_path / "short"), **LONG, init_from="short")
    assert build_model(longer).config.max_position_embeddings == 48
    plain = {**LONG, "phases": [{"max_seq_length": 48}]}
    with pytest.raises(SpecError, match=r"^phases\.max_seq_length 48"):
        build_model(make_job(tmp_path, init_folder=str(tmp_path / "short"), **plain, init_from="short"))


def test_pairs_from_a_pooler_that_reads_several_layers_are_refused(tmp_path: Path) -> None:
    config = BertConfig.from_shape(4, 64, layer_pooling="concat_last_four")
    job = make_job(tmp_path, sentence_objective="next_sentence")
    with pytest.raises(SpecError, match=r"^sentence_objective is next_sentence, and the pooler"):
        fitted(job.spec, config)
    fitted(make_job(tmp_path, sentence_objective="none").spec, config)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_rotary_base_for_other_positions_is_refused(family: str, tmp_path: Path) -> None:
    job = make_job(tmp_path, **LONG)
    with pytest.raises(SpecError, match=r"^phases\.rotary_base 500 .* absolute"):
        fitted(job.spec, BertConfig.from_size("tiny", family))
