"""Trials that share a card: how many, what memory. Alone: pytest tests/orchestrator/finetuning/test_gpu_sharing.py"""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from orchestrator.finetuning import gpu_sharing
from orchestrator.finetuning import sweep as sweep_module
from orchestrator.finetuning.gpu_sharing import (
    TrialMemory,
    count_trials,
    largest_recipes,
    measure_trial_memory,
    most_sharing,
    share_gpu,
)
from orchestrator.finetuning.heads import Batch
from orchestrator.finetuning.heads.sequence import SequenceHead
from orchestrator.finetuning.training import _Training
from orchestrator.finetuning.trial import TrialJob
from orchestrator.specs import RecipeSpec, SweepSpec
from tests.orchestrator.finetuning import tiny_tasks
from tests.orchestrator.finetuning.bench import Bench

pytestmark = pytest.mark.training
GIB = 1 << 30


@pytest.mark.parametrize(
    ("peak", "available", "most", "expected"),
    [
        (3.1, 80, 100, 4),  # no more than four, however little they take
        (20, 80, 100, 3),  # 4 × 1.2 × 20 is more than there is
        (20, 40, 100, 1),  # others hold half of the card
        (3.1, 80, 2.5, 2),  # CPUs for no more
        (3.1, 80, 0.5, 1),
        (80, 80, 100, 1),
        (90, 80, 100, 1),
    ],
)
def test_as_many_trials_share_a_card_as_it_holds_with_a_margin(
    peak: float, available: float, most: float, expected: int
) -> None:
    memory = TrialMemory(int(peak * GIB), int(available * GIB), 80 * GIB)
    assert count_trials(memory, most) == expected


def test_the_largest_recipes_are_of_each_model_with_the_largest_batches(tmp_path: Path) -> None:
    space: dict[str, object] = {"init_from": ["a", "b"], "batch_size": [16, 64], "micro_batch_size": [4, 16]}
    spec = SweepSpec.model_validate({"task": tiny_tasks.classification(tmp_path), "space": space})
    recipes = largest_recipes(spec)
    assert [(recipe.init_from, recipe.batch_size, recipe.micro_batch_size) for recipe in recipes] == [
        ("a", 64, 16),
        ("b", 64, 16),
    ]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench whose card has 8 GiB, of which a work that is done takes 1 GiB, then 2, and so on."""
    done: list[Callable[[], None]] = []

    def measure_peak(work: Callable[[], None]) -> int:
        work()
        done.append(work)
        return len(done) * GIB

    monkeypatch.setattr(gpu_sharing, "find_memory", lambda: (7 * GIB, 8 * GIB))
    monkeypatch.setattr(gpu_sharing, "measure_peak", measure_peak)
    return Bench(tiny_tasks.classification(tmp_path), tmp_path)


def recipe_of(**changes: object) -> RecipeSpec:
    return RecipeSpec.model_validate({**tiny_tasks.RECIPE.model_dump(), "tokenizer": "own", **changes})


def test_two_steps_with_the_longest_windows_are_measured_one_beside_the_best_weights(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[list[int]] = []
    has_best: list[bool] = []
    step = _Training.step

    def noted(training: _Training[Any], number: int, groups: Any) -> None:
        has_best.append(training.best is not None)
        lengths.append(sorted(training.features.lengths[groups].tolist()))
        step(training, number, groups)

    monkeypatch.setattr(_Training, "step", noted)
    memory = measure_trial_memory(bench.job, [recipe_of(batch_size=8), recipe_of(batch_size=4)], "cpu")
    assert memory == TrialMemory(2 * GIB, 7 * GIB, 8 * GIB)
    assert [len(some) for some in lengths] == [8, 8, 4, 4]
    assert has_best == [False, True] * 2
    assert min(lengths[2]) >= max(map(min, lengths[:2]))


@pytest.mark.parametrize("room", [0, 5])
def test_a_trial_that_would_go_on_with_smaller_micro_batches_has_the_card_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    compute_loss = SequenceHead.compute_loss

    def on_small_device(head: SequenceHead, model: Any, batch: Batch) -> torch.Tensor:
        if len(batch.windows) > room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return compute_loss(head, model, batch)

    monkeypatch.setattr(SequenceHead, "compute_loss", on_small_device)
    memory = measure_trial_memory(bench.job, [recipe_of()], "cpu")
    assert memory == TrialMemory(7 * GIB, 7 * GIB, 8 * GIB)


def test_a_sweep_takes_the_share_that_was_measured_and_bounds_each_trials_memory(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[float] = []

    def call_here(work: Callable[[str], Any], num_cpus: float, num_gpus: float, *texts: str) -> Any:
        asked.append(num_gpus)
        return work("cpu")

    caplog.set_level(logging.INFO)
    monkeypatch.setattr(gpu_sharing, "call_on_device", call_here)
    recipe = recipe_of(batch_size=4).model_dump()
    spec = SweepSpec.model_validate({"task": tiny_tasks.classification(tmp_path), "recipe": recipe})
    gpus, share = share_gpu(spec, bench.job, 3.0)
    assert asked == [1.0]
    assert gpus == 0.3333
    assert share == pytest.approx(7 / 8 / 3)
    assert caplog.messages[-1] == "3 trials share a GPU: the largest takes 1.07 GB of 8.59 GB"
    assert share_gpu(spec, bench.job, 1.0) == (1.0, None)


@pytest.mark.parametrize(("gpus", "share"), [(0.5, 0.5), (1.0, None), (2.0, None), (0.0, None)])
def test_a_share_that_a_person_asked_for_bounds_each_trials_memory_too(
    gpus: float, share: float | None, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class BegunError(Exception):
        """Raised in place of the first trial."""

    def begin(spec: SweepSpec, job: TrialJob, *others: object) -> None:
        raise BegunError(job.memory_share)

    monkeypatch.setattr(sweep_module, "take_gpus", lambda work, asked: asked)
    monkeypatch.setattr(sweep_module, "prepare_job", lambda *arguments: (bench.job, None))
    monkeypatch.setattr(sweep_module, "_run_trials", begin)
    values = {"task": tiny_tasks.classification(tmp_path), "recipe": {"tokenizer": "own"}}
    spec = SweepSpec.model_validate({**values, "execution": {"gpus_per_trial": gpus}})
    others: Any = {"storage": str(tmp_path), "resolve_name": None, "listener": None}
    with pytest.raises(BegunError) as begun:
        sweep_module.run_sweep(spec, task=bench.job.task, run_folder=str(tmp_path / "run"), **others)
    assert begun.value.args == (share,)


@pytest.mark.parametrize(
    ("have", "execution", "most"),
    [
        ({"GPU": 1.0, "CPU": 16.0}, {}, 8.0),
        ({"GPU": 4.0, "CPU": 16.0}, {}, 2.0),
        ({"GPU": 8.0, "CPU": 64.0}, {}, 1.0),
        ({"GPU": 1.0, "CPU": 16.0}, {"cpus_per_trial": 8.0}, 2.0),
        ({"GPU": 1.0, "CPU": 16.0}, {"max_concurrent_trials": 3}, 3.0),
    ],
)
def test_no_more_trials_share_a_card_than_there_are_or_than_cpus_feed(
    have: dict[str, float], execution: dict[str, object], most: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_sharing, "cluster_resources", lambda: have)
    fields = {"recipe": {"tokenizer": "t"}, "execution": execution, "seeds": list(range(8))}
    spec = SweepSpec.model_validate({"task": tiny_tasks.classification(tmp_path), **fields})
    assert most_sharing(spec, 0) == most


def test_a_trials_process_keeps_to_its_share(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    shares: list[float] = []
    monkeypatch.setattr("orchestrator.finetuning.trial.choose_device", lambda *values, **options: torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", shares.append)
    bench.job = replace(bench.job, use_gpu=True, memory_share=0.25)
    assert bench.run(epochs=0.1).state == "COMPLETED"
    assert shares == [0.25]


def test_a_trial_without_a_card_is_told_the_field_of_a_sweep(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    bench.job = replace(bench.job, use_gpu=True)
    result = bench.run(epochs=0.1)
    assert result.state == "FAILED"
    assert str(result.error).endswith(", or set execution.gpus_per_trial 0")
