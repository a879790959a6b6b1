"""Steps as graphs, with the stand-in that does them again on the CPU. Alone:
pytest tests/orchestrator/pretraining/test_step_graphs.py

What a card does: tests/gpu/test_cuda_graphs.py.
"""

import gc
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks._attention_choice import forced_attention
from bert_core.cuda_graphs import Function
from bert_core.examples.packing import PackedBatch
from bert_core.examples.size_buckets import SizeBucket
from bert_core.heads import BertForPreTraining
from bert_core.objectives import active_objectives
from orchestrator.errors import RunFailedError
from orchestrator.pretraining import step_graphs
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.device_batch import DeviceBatch, filled_micro_batch
from orchestrator.pretraining.job import PretrainJob, build_model
from orchestrator.pretraining.loss import label_loss
from orchestrator.pretraining.meter import add_sums, empty_totals
from orchestrator.pretraining.step import count_globally
from orchestrator.pretraining.step_graphs import StepGraphs, build_graphs
from orchestrator.results import CheckpointEvent, Event, MessageEvent, MetricEvent
from tests.orchestrator.pretraining.small_run import keeping_losses, make_job, run
from tests.replayed_function import ReplayedFunction, no_device_needed
from tests.synchronizations import counted_synchronizations

CPU = torch.device("cpu")
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
SINGLE = {"sentence_objective": "none"}
RUNS: dict[str, dict[str, object]] = {
    "masked_lm and next_sentence": {},
    "modern in bf16": {"model": SMALL | {"family": "modern"}, "precision": "bf16", **SINGLE},
    "span boundary": {"mask_unit": "span", "model": SMALL | {"span_boundary_objective": True}, **SINGLE},
    "left_to_right": {"token_objective": "left_to_right", **SINGLE},
}


class Steps:
    """A model's steps as graphs, and without."""

    def __init__(self, job: PretrainJob, **changes: Any) -> None:
        model = build_model(job)
        self.model, self.spec = BertForPreTraining.from_config(replace(model.config, **changes)).train(), job.spec
        self.objectives = active_objectives(job.spec.chosen_objectives, self.model.config)
        self.made: list[ReplayedFunction] = []
        self.warned: list[str] = []
        self.graphs = StepGraphs(self.model, job.spec, self.objectives, self.new_graph, self.warned.append)

    def new_graph(self) -> ReplayedFunction:
        self.made.append(ReplayedFunction())
        return self.made[-1]

    def replay(self, batch: PackedBatch, seed: int) -> tuple[Tensor, dict[str, Tensor]]:
        counts, _ = count_globally(batch, self.objectives, Worker())
        totals = self.graphs.run(DeviceBatch.copied(batch, CPU, self.graphs.fill), counts, seed)
        return totals, gradients_of(self.model)

    def eagerly(self, batch: PackedBatch, seed: int) -> tuple[Tensor, dict[str, Tensor]]:
        """The same on the same filled batch, as a step without graphs does it."""
        counts, _ = count_globally(batch, self.objectives, Worker())
        bucket = SizeBucket.of(batch, self.model.config.max_seq_length)
        values = DeviceBatch.copied(batch, CPU, bucket.fill).values
        self.model.zero_grad(set_to_none=True)
        torch.manual_seed(seed)
        sums, loss = label_loss(self.model, filled_micro_batch(values, bucket), self.spec, counts)
        loss.backward()
        totals = empty_totals(self.objectives, CPU)
        add_sums(totals, sums, len(batch.input_ids))
        return totals, gradients_of(self.model)


def gradients_of(model: BertForPreTraining) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.training
@pytest.mark.parametrize("name", RUNS)
def test_a_replayed_step_has_the_bits_of_the_step_on_the_same_filled_batch(tmp_path: Path, name: str) -> None:
    """With dropout; batches of several sizes come in turn, and each size again."""
    job = make_job(tmp_path, **RUNS[name])
    steps = Steps(job)
    with forced_attention("fused"):  # as on a GPU; the CPU's own looks at lengths
        for seed, (_, batch) in enumerate([*job.stream.batches(range(5)), *job.stream.batches(range(5))]):
            found, expected = steps.replay(batch, seed), steps.eagerly(batch, seed)
            assert torch.equal(found[0], expected[0])
            assert found[0][-1] == len(batch.input_ids)
            assert found[1].keys() == expected[1].keys()
            assert all(torch.equal(found[1][key], gradient) for key, gradient in expected[1].items())
    assert 1 < len(steps.made) <= 5
    assert sum(graph.num_replays for graph in steps.made) == 10


@pytest.mark.training
@pytest.mark.parametrize("name", RUNS)
def test_nothing_in_a_step_waits_for_the_device(tmp_path: Path, name: str) -> None:
    job = make_job(tmp_path, **RUNS[name])
    steps = Steps(job)
    ((_, batch),) = job.stream.batches(range(1))
    with forced_attention("fused"):
        steps.replay(batch, 0)
        copied = DeviceBatch.copied(batch, CPU, steps.graphs.fill)
        counts, _ = count_globally(batch, steps.objectives, Worker())
        with counted_synchronizations() as waits:
            steps.graphs.run(copied, counts, 1)
    assert [wait for wait in waits if "tests/replayed_function.py" not in wait] == []


@pytest.mark.training
def test_many_graphs_are_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_graphs, "_MANY_GRAPHS", 1)
    job = make_job(tmp_path, **SINGLE)
    steps = Steps(job)
    ((_, batch),) = job.stream.batches(range(1))
    with forced_attention("fused"):
        for size, expected in ((8, 0), (4, 1), (2, 1)):
            steps.replay(batch.split(size)[0], seed=0)
            assert len(steps.warned) == expected
    assert len(steps.made) == 3
    assert "had more than 1 sizes, each with a CUDA graph" in steps.warned[0]


def test_graphs_are_refused_on_cpus_and_with_linear_biases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job(tmp_path, execution={"cuda_graphs": True})
    model = build_model(job)
    with pytest.raises(RunFailedError, match=r"the worker is on the cpu; set execution.cuda_graphs to false"):
        build_graphs(job.spec, model, CPU, ())
    monkeypatch.setattr(step_graphs, "graph_maker", no_device_needed)
    assert build_graphs(job.spec, model, CPU, ()) is not None
    assert build_graphs(make_job(tmp_path).spec, model, CPU, ()) is None
    biased = BertForPreTraining.from_config(replace(model.config, position_embedding_type="alibi"))
    with pytest.raises(RunFailedError, match=r"linear biases \(ALiBi\).*set execution.cuda_graphs to false"):
        build_graphs(job.spec, biased, CPU, ())


@pytest.mark.training
def test_linear_biases_are_what_a_graph_cannot_see(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    ((_, batch),) = job.stream.batches(range(1))
    with forced_attention("fused"), pytest.raises(AssertionError, match="memory that is new"):
        Steps(job, position_embedding_type="alibi").replay(batch, 0)


def test_a_capture_that_fails_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = make_job(tmp_path)
    ((_, batch),) = job.stream.batches(range(1))

    def fail(*_: object) -> None:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(ReplayedFunction, "capture", fail)
    with pytest.raises(RunFailedError, match=r"not permitted when stream is capturing\); set execution.cuda_graphs to"):
        Steps(job).replay(batch, 0)


def without_dropout(folder: Path, attempt: int = 1, dropout: float = 0.0, **execution: object) -> PretrainJob:
    often = {"checkpoint_every_steps": 6, "log_every_steps": 1, "evaluate_every_steps": 6}
    model = SMALL | {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return make_job(folder, attempt, model=model, steps=12, execution=often | execution)


@pytest.fixture
def graphs_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Runs get the stand-in, and the attention of a GPU."""
    monkeypatch.setattr(step_graphs, "graph_maker", no_device_needed)
    with forced_attention("fused"):
        yield


@pytest.mark.training
@pytest.mark.usefixtures("graphs_on_the_cpu")
def test_a_run_with_graphs_measures_what_one_without_them_does(tmp_path: Path) -> None:
    """Two phases of other lengths, evaluations and checkpoints between; tokens are counted without filler."""
    found: dict[bool, list[MetricEvent]] = {True: [], False: []}
    for has_graphs, metrics in found.items():
        job = without_dropout(tmp_path / str(has_graphs), cuda_graphs=has_graphs)
        run(job, lambda event, metrics=metrics: metrics.append(event) if isinstance(event, MetricEvent) else None)
    assert len(found[True]) == len(found[False]) == 14
    for own, other in zip(found[True], found[False], strict=True):
        assert (own.step, own.split) == (other.step, other.split)
        for name in ("loss", "mlm_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy"):
            assert own.values[name] == pytest.approx(other.values[name], rel=2e-4), (own.step, name)
    norms = [[event.values["grad_norm"] for event in metrics if event.split == "train"] for metrics in found.values()]
    assert norms[0] == pytest.approx(norms[1], rel=2e-3)


@pytest.mark.training
@pytest.mark.usefixtures("graphs_on_the_cpu")
def test_a_run_with_graphs_and_dropout_is_resumed_to_the_same_bits(tmp_path: Path) -> None:
    """Whole, and stopped by a vote after step 7, with the sizes that were met before and others."""
    job = partial(without_dropout, dropout=0.1, cuda_graphs=True)
    weights = run(job(tmp_path / "straight"), lambda event: None).model.state_dict()
    stopped: list[Event] = []
    run(job(tmp_path / "cut"), stopped.append, note_step=lambda step: step >= 6)
    assert [event.step for event in stopped if isinstance(event, CheckpointEvent)] == [6, 7]
    events: list[Event] = []
    resumed = run(job(tmp_path / "cut", attempt=2), events.append)
    assert not [event for event in events if isinstance(event, MessageEvent) and event.level == "warning"]
    assert all(torch.equal(weights[name], value) for name, value in resumed.model.state_dict().items())


@pytest.mark.training
@pytest.mark.usefixtures("graphs_on_the_cpu")
def test_where_memory_runs_out_smaller_parts_are_computed_without_graphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_out(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(ReplayedFunction, "capture", run_out)
    losses: list[float] = []
    run(without_dropout(tmp_path / "graphs", cuda_graphs=True), keeping_losses(losses))
    expected: list[float] = []
    run(without_dropout(tmp_path / "none"), keeping_losses(expected))
    assert losses == pytest.approx(expected, rel=2e-3)


@pytest.mark.training
@pytest.mark.usefixtures("graphs_on_the_cpu")
def test_memory_of_graphs_is_given_back_where_it_runs_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    captured: list[weakref.ref[ReplayedFunction]] = []
    capture = ReplayedFunction.capture

    def only_one(graph: ReplayedFunction, function: Function) -> Sequence[Tensor | None]:
        if captured:
            raise torch.OutOfMemoryError("CUDA out of memory")
        captured.append(weakref.ref(graph))
        return capture(graph, function)

    monkeypatch.setattr(ReplayedFunction, "capture", only_one)
    job = without_dropout(tmp_path, cuda_graphs=True)
    events: list[Event] = []
    loop = run(job, events.append)
    gc.collect()
    assert loop.context.graphs is not None
    assert captured[0]() is None
    (warning,) = [event.text for event in events if isinstance(event, MessageEvent) and event.level == "warning"]
    assert "micro_batch_size 4 with execution.cuda_graphs false does so from the start" in warning
