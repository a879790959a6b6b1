"""CUDA graphs on a card: a replay computes what its kernels do. Alone: pytest tests/gpu/test_cuda_graphs.py

The same rules on the CPU, with a stand-in: tests/orchestrator/pretraining/test_step_graphs.py.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks._attention_choice import forced_attention
from benchmarks._pretraining_batches import make_batch
from benchmarks.gpu import execution_parity, graphed_step, sides
from benchmarks.gpu.graphed_step import FilledInputs, GraphedLearner, filled_loss
from benchmarks.gpu.own_step import build_learner
from benchmarks.gpu.roofline import ALL_LEVERS
from bert_core.cuda_graphs import Function
from bert_core.heads.pretraining import BertForPreTraining
from tests.gpu.devices import small_setting
from tests.replayed_function import ReplayedFunction

needs_a_card = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="needs an NVIDIA GPU: this torch sees no CUDA device"
)


AS_WRITTEN_AND_COMPILED = pytest.mark.parametrize("compiles", [False, True], ids=["as written", "compiled"])


@needs_a_card
@AS_WRITTEN_AND_COMPILED
@pytest.mark.filterwarnings("default")  # the compiler's own
def test_a_replay_agrees_with_its_kernels(compiles: bool) -> None:
    row = execution_parity.compare_graphed(small_setting("cuda"), compiles)
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


class RepeatedFunction:
    """Stand-in for a graph where layers are compiled: it runs the function again, and records no operations.

    The compiler leaves out what runs while operations are recorded, as `ReplayedFunction` does.
    """

    def capture(self, function: Function) -> Sequence[Tensor | None]:
        """Run the function; results hold no numbers yet."""
        self._function, self._results = function, function()
        for result in self._results:
            if result is not None:
                result.detach().fill_(float("nan"))
        return self._results

    def replay(self) -> None:
        """Run the function again, and copy its results to where the capture left them."""
        for kept, result in zip(self._results, self._function(), strict=True):
            if kept is not None and result is not None:
                kept.detach().copy_(result.detach())


@pytest.fixture
def is_compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[bool]:
    """Whether layers are compiled, with a stand-in in place of a graph, and the attention of a card."""
    new_graph = RepeatedFunction if request.param else ReplayedFunction
    for module in (execution_parity, graphed_step, sides):
        monkeypatch.setattr(module, "graph_maker", lambda device: new_graph)
    with forced_attention("fused"):
        yield request.param


ON_THE_CPU = pytest.mark.parametrize("is_compiled", [False, True], ids=["as written", "compiled"], indirect=True)


@ON_THE_CPU
@pytest.mark.filterwarnings("default")  # the compiler's own
def test_the_comparison_itself_goes_through_on_the_cpu(is_compiled: bool) -> None:
    row = execution_parity.compare_graphed(small_setting("cpu"), is_compiled)
    assert row["ok"], row
    assert row["bf16 value"] == row["bf16 gradient"] == 0.0
    assert ("fp32 value" in row) is not is_compiled


@ON_THE_CPU
@pytest.mark.filterwarnings("default")  # the compiler's own
def test_a_replay_of_a_batch_that_was_not_copied_is_found(monkeypatch: pytest.MonkeyPatch, is_compiled: bool) -> None:
    replay = graphed_step.GraphedLearner.replay

    def replay_the_last_one(graphed: GraphedLearner, inputs: FilledInputs, precision: str) -> torch.Tensor:
        kept = getattr(graphed, "kept", inputs)
        graphed.kept = kept
        return replay(graphed, kept, precision)

    monkeypatch.setattr(GraphedLearner, "replay", replay_the_last_one)
    assert execution_parity.compare_graphed(small_setting("cpu"), is_compiled)["ok"] is False


@ON_THE_CPU
@pytest.mark.filterwarnings("default")  # the compiler's own
def test_a_side_of_graphs_makes_the_steps_of_the_others(is_compiled: bool) -> None:
    name = sides.HERE_COMPILED_GRAPHS if is_compiled else sides.HERE_GRAPHS
    setting = small_setting("cpu")
    config = setting.build_config("2x64")
    batches = [make_batch(config, 4, 16, 0.56, seed) for seed in range(2)]
    losses = {}
    for each in (sides.HERE, name):
        assert sides.refusal(setting, each) is None
        side = sides.build_side(setting, each, sides.build_side_model(setting, each, config), batches)
        losses[each] = [float(loss) for loss in side.make_steps()]
    assert losses[name] == pytest.approx(losses[sides.HERE], rel=0.02)


@AS_WRITTEN_AND_COMPILED
def test_without_a_card_the_row_says_so(compiles: bool) -> None:
    assert execution_parity.compare_graphed(small_setting("cpu"), compiles) == {
        "outcome": "not available here: CUDA graphs need an NVIDIA GPU"
    }


def test_the_side_with_compiled_layers_is_predicted_to_have_all_levers() -> None:
    assert sides.LEVERS[sides.HERE_COMPILED_GRAPHS] == ALL_LEVERS
