"""Models that are means of a run's snapshots. Alone: pytest tests/orchestrator/pretraining/test_average.py"""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bert_core.config import BertConfig
from bert_core.heads import BertForPreTraining
from bert_core.heads.replaced_tokens import GeneratorAndDiscriminator
from orchestrator.base.results import Event, MetricEvent
from orchestrator.pretraining.step import encoders_of
from orchestrator.training.snapshots import snapshot_folders
from tests.orchestrator.pretraining.several_workers import run_group
from tests.orchestrator.pretraining.small_run import final_digests, make_job, run

pytestmark = pytest.mark.training
EXECUTION = {"checkpoint_every_steps": 6, "evaluate_every_steps": 12, "snapshot_steps": [4, 8, 12]}
AVERAGED = {"steps": 12, "average_steps": [8, 12], "execution": EXECUTION}


def mean_of_snapshots(folder: Path) -> dict[str, torch.Tensor]:
    folders = snapshot_folders(str(folder / "run"))
    eight, twelve = (BertForPreTraining.from_pretrained(folders[step]).state_dict() for step in (8, 12))
    return {name: (eight[name] + twelve[name]) / 2 for name in eight}


def test_the_model_is_the_mean_of_snapshots_and_scored_as_such(tmp_path: Path) -> None:
    events: list[Event] = []
    loop = run(make_job(tmp_path, **AVERAGED), events.append)
    expected = mean_of_snapshots(tmp_path)
    for name, tensor in loop.model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name
    measured = [event for event in events if isinstance(event, MetricEvent) and event.split == "validation"]
    assert [event.step for event in measured] == [12, 12]
    assert measured[1].values == loop.evaluate(12) != measured[0].values
    again = run(make_job(tmp_path, attempt=2, **AVERAGED), events.append)
    assert torch.equal(again.model.bert.layers[0].qkv.weight, loop.model.bert.layers[0].qkv.weight)
    run(make_job(tmp_path / "plain", **AVERAGED | {"average_steps": []}), events.append)
    assert final_digests(tmp_path, 12) == final_digests(tmp_path / "plain", 12), "a checkpoint has the last weights"


@pytest.mark.parametrize("family", ["modern", "neobert"])  # of which the second cannot say a base in its own layout
def test_a_discriminator_and_its_generator_are_averaged_and_keep_the_base_of_their_phase(
    family: str, tmp_path: Path
) -> None:
    phases = [
        {"max_seq_length": 48, "share": share, "rotary_base": base} for share, base in ((0.5, 700.0), (0.5, 300.0))
    ]
    replaced = {"token_objective": "replaced_tokens", "sentence_objective": "none", "generator_size": 0.5}
    replaced |= {"model": {"family": family, "hidden_size": 32, "num_attention_heads": 2}, "phases": phases}
    loop = run(make_job(tmp_path, **AVERAGED | replaced), [].append)
    folders = snapshot_folders(str(tmp_path / "run"))
    eight, twelve = (GeneratorAndDiscriminator.from_pretrained(folders[step]).state_dict() for step in (8, 12))
    for name, tensor in loop.model.state_dict().items():
        assert torch.equal(tensor, (eight[name] + twelve[name]) / 2), name
    assert {encoder.config.rotary_base for encoder in encoders_of(loop.model)} == {300.0}
    assert BertConfig.from_pretrained(folders[4]).rotary_base == 700.0


def test_all_workers_have_the_mean(tmp_path: Path) -> None:
    changes = {**AVERAGED, "execution": {**EXECUTION, "num_workers": 2}}
    assert all(status == 0 for status, _ in run_group(tmp_path, 2, changes=changes, keeps=True))
    expected = mean_of_snapshots(tmp_path)
    for rank in (0, 1):
        for name, tensor in load_file(tmp_path / f"rank-{rank}.safetensors").items():
            assert torch.equal(tensor, expected[name]), (rank, name)
