"""CUDA graphs on a card: a replay computes what its kernels do. Alone: pytest tests/gpu/test_cuda_graphs.py

The same rules on the CPU, with a stand-in: tests/orchestrator/pretraining/test_step_graphs.py.
"""

from pathlib import Path

import pytest
import torch

from benchmarks._attention_choice import forced_attention
from benchmarks._pretraining_batches import make_batch
from benchmarks.gpu import graphed_step, parity, sides
from benchmarks.gpu.graphed_step import FilledInputs, GraphedLearner, filled_loss
from benchmarks.gpu.own_step import build_learner
from bert_core.heads.pretraining import BertForPreTraining
from tests.gpu.devices import small_setting
from tests.replayed_function import no_device_needed

needs_a_card = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU: this torch sees no CUDA device"
)


@needs_a_card
def test_a_replay_agrees_with_its_kernels() -> None:
    row = parity.compare_graphed(small_setting("cuda"))
    assert row["ok"], row


@needs_a_card
@pytest.mark.parametrize("attention_dropout", [0.0, 0.1], ids=["varlen attention", "padded attention"])
def test_a_seed_decides_the_dropout_of_a_replay_as_of_any_pass(attention_dropout: float) -> None:
    setting = small_setting("cuda")
    config = setting.build_config(
        "2x64", hidden_dropout_prob=0.1, attention_probs_dropout_prob=attention_dropout, max_position_embeddings=64
    )
    learner = build_learner(config, setting.device)
    graphed, model = GraphedLearner(learner), learner.model
    assert isinstance(model, BertForPreTraining)
    inputs = [FilledInputs.of(make_batch(config, 16, 64, 0.56, seed), 64, setting.device) for seed in range(3)]
    losses = []
    for seed, each in enumerate([*inputs, *inputs]):
        found = float(graphed.replay(each, "bf16", seed))
        torch.manual_seed(seed)
        model.zero_grad(set_to_none=True)
        assert found == pytest.approx(float(filled_loss(model, each.bucket, "bf16", each.tensors)[1]), rel=1e-4)
        losses.append(found)
    assert all(abs(first - again) > 1e-4 for first, again in zip(losses[:3], losses[3:], strict=True))


@needs_a_card
@pytest.mark.training
def test_a_run_with_graphs_learns_what_one_without_them_does(tmp_path: Path) -> None:
    """Whole steps, with the feed's thread at work while graphs are captured."""
    small_run = pytest.importorskip("tests.orchestrator.pretraining.small_run")
    from orchestrator.pretraining.collectives import Worker

    model = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    worker = Worker(device=torch.device("cuda", torch.cuda.current_device()))
    losses: dict[bool, list[float]] = {True: [], False: []}
    for has_graphs, kept in losses.items():
        changes = {"steps": 8, "allow_tf32": False, "execution": {"log_every_steps": 1, "cuda_graphs": has_graphs}}
        job = small_run.make_job(tmp_path / str(has_graphs), model=model | dropout, **changes)
        small_run.run(job, small_run.keeping_losses(kept), worker)
    assert losses[True] == pytest.approx(losses[False], rel=1e-2)


def test_the_comparison_itself_goes_through_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the stand-in in place of a graph, and the attention of a card."""
    monkeypatch.setattr(parity, "graph_maker", no_device_needed)
    monkeypatch.setattr(graphed_step, "graph_maker", no_device_needed)
    with forced_attention("fused"):
        row = parity.compare_graphed(small_setting("cpu"))
    assert row["ok"], row
    assert row["fp32 value"] == row["fp32 gradient"] == 0.0


def test_a_side_of_graphs_makes_the_steps_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sides, "graph_maker", no_device_needed)
    monkeypatch.setattr(graphed_step, "graph_maker", no_device_needed)
    setting = small_setting("cpu")
    config = setting.build_config("2x64")
    batches = [make_batch(config, 4, 16, 0.56, seed) for seed in range(2)]
    losses = {}
    for name in (sides.HERE, sides.HERE_GRAPHS):
        assert sides.refusal(setting, name) is None
        with forced_attention("fused"):
            side = sides.build_side(setting, name, sides.build_side_model(setting, name, config), batches)
            losses[name] = [float(loss) for loss in side.make_steps()]
    assert losses[sides.HERE_GRAPHS] == pytest.approx(losses[sides.HERE], rel=0.02)


def test_without_a_card_the_row_says_so() -> None:
    assert parity.compare_graphed(small_setting("cpu")) == {
        "outcome": "not available here: CUDA graphs need an NVIDIA GPU"
    }
