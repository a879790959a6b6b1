"""Memory that runs out, in training and in answering: the same batch in smaller parts, on a fake device.

Run alone: pytest tests/orchestrator/finetuning/test_micro_batches.py
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from orchestrator.base.errors import RunFailedError
from orchestrator.finetuning.batches import make_batch
from orchestrator.finetuning.building import build_model
from orchestrator.finetuning.heads import HEADS, Batch
from orchestrator.finetuning.heads.sequence import SequenceHead
from orchestrator.finetuning.logits import TokenBudget
from orchestrator.finetuning.training import MicroBatches, _Training, seed_part
from orchestrator.finetuning.trial import prepare_trial_features
from orchestrator.specs import RecipeSpec, TaskSpec
from orchestrator.storage import digest_file
from orchestrator.tasks.loading import load_task
from tests.orchestrator.finetuning import tiny_tasks
from tests.orchestrator.finetuning.bench import Bench, Killed
from tests.synchronizations import GPU, FakeGpu

training = pytest.mark.training


def hard_negatives(folder: Path) -> TaskSpec:
    return tiny_tasks.pairs(folder, "in_batch_negatives", negative_columns=["negatives"])


TASKS: dict[str, tuple[Callable[[Path], TaskSpec], dict[str, object]]] = {
    "classification": (tiny_tasks.classification, {}),
    "own columns": (tiny_tasks.columns, {}),
    "regression": (tiny_tasks.regression, {}),
    "multi_label": (tiny_tasks.multi_label, {}),
    "weighted, smoothed": (tiny_tasks.classification, {"class_weights": {"yes": 5.0}, "label_smoothing": 0.1}),
    "weighted, focal": (tiny_tasks.ner, {"class_weights": "balanced", "loss": "focal"}),
    "labels, focal": (tiny_tasks.multi_label, {"class_weights": "balanced", "loss": "focal"}),
    "windows, mean": (tiny_tasks.columns, {"max_seq_length": 8, "long_documents": "mean"}),
    "windows, max": (tiny_tasks.multi_label, {"max_seq_length": 8, "long_documents": "max", "window_stride": 2}),
    "multiple_choice": (tiny_tasks.multiple_choice, {}),
    "ner": (tiny_tasks.ner, {}),
    "ner, CRF and LSTM": (tiny_tasks.ner, {"token_decoder": "crf", "num_lstm_layers": 2}),
    "qa": (tiny_tasks.qa, {}),
    "sentence_selection": (tiny_tasks.sentence_selection, {}),
    "cosine": (lambda folder: tiny_tasks.pairs(folder, "cosine"), {}),
    "pair classes": (lambda folder: tiny_tasks.pairs(folder, "classification"), {}),
    "in-batch negatives": (lambda folder: tiny_tasks.pairs(folder, "in_batch_negatives"), {}),
    "hard negatives": (hard_negatives, {"matryoshka_dims": (64, 8), "query_prompt": "anna "}),
}
GROUPS = np.array([7, 2, 30, 11, 4, 23, 19])


def a_training(name: str, folder: Path, **changes: object) -> _Training[None]:
    """A training that has not begun, of a model whose outputs are far from equal."""
    make_task, fields = TASKS[name]
    task, tokenizer = load_task(make_task(folder)), tiny_tasks.load_tokenizer(folder)
    recipe = tiny_tasks.RECIPE.model_copy(update={"initializer_range": 0.2, **fields, **changes})
    features = prepare_trial_features(task, "train", recipe, tokenizer, str(folder / "cache"))
    model = build_model(task, recipe, None, tokenizer).train()
    return _Training(model, features, recipe, lambda: (0.0, None), HEADS[task.head].compute_loss)


def gradients(training: _Training[None], parts: list[np.ndarray]) -> tuple[float, Tensor]:
    """The loss of a step's parts, and its gradient as one vector."""
    training.optimizer.zero_grad(set_to_none=True)
    loss = training.forward_and_backward(1, parts)
    found = [parameter.grad for parameter in training.model.parameters() if parameter.grad is not None]
    return float(loss), torch.cat([gradient.flatten() for gradient in found])


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.heavy
def test_parts_have_loss_and_gradient_of_the_whole(name: str, tmp_path: Path) -> None:
    training = a_training(name, tmp_path)
    loss, whole = gradients(training, [GROUPS])
    assert whole.norm() > 1e-3
    for parts in ([GROUPS[:4], GROUPS[4:]], [GROUPS[:1], GROUPS[1:3], GROUPS[3:]]):
        loss_of_parts, in_parts = gradients(training, parts)
        assert loss_of_parts == pytest.approx(loss, rel=1e-5)
        assert float((in_parts - whole).norm() / whole.norm()) < 1e-5


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.heavy
def test_a_batch_goes_to_a_gpu_in_one_transfer_that_nobody_waits_for(name: str, tmp_path: Path) -> None:
    features = a_training(name, tmp_path).features
    windows = features.windows_of(GROUPS)
    expected = make_batch(features, windows, torch.device("cpu"))
    with FakeGpu() as gpu:
        batch = make_batch(features, windows, GPU)
    assert gpu.num_transfers == 1
    assert torch.equal(batch.targets, expected.targets)
    assert batch.targets.dtype == expected.targets.dtype
    for own, theirs in zip(batch.seqs.tensors().values(), expected.seqs.tensors().values(), strict=True):
        assert torch.equal(own, theirs)
    if expected.tabular_features is not None:
        assert torch.equal(batch.tabular_features, expected.tabular_features)  # type: ignore[arg-type]


def test_a_part_without_labels_adds_nothing(tmp_path: Path) -> None:
    training = a_training("ner", tmp_path)
    arrays, starts = training.features.head_arrays, training.features.cu_seqlens
    arrays.token_labels.flags.writeable = True
    arrays.token_labels[starts[7] : starts[8]] = -100
    loss, whole = gradients(training, [GROUPS])
    loss_of_parts, in_parts = gradients(training, [GROUPS[:1], GROUPS[1:]])
    assert loss_of_parts == pytest.approx(loss, rel=1e-5)
    assert float((in_parts - whole).norm() / whole.norm()) < 1e-5


def test_pairs_that_are_compared_have_the_same_dropout_in_all_parts(tmp_path: Path) -> None:
    """The gradient is that of one loss over all vectors, each drawn as its part draws it."""
    training = a_training("in-batch negatives", tmp_path, dropout=0.2)
    windows = [training.features.windows_of(part) for part in (GROUPS[:4], GROUPS[4:])]
    vectors = []
    for number, some in enumerate(windows):
        seed_part(training.recipe.seed, 1, number, torch.device("cpu"))
        vectors.append(training.model.packed_logits(make_batch(training.features, some, torch.device("cpu")).seqs))
    whole = make_batch(training.features, np.concatenate(windows), torch.device("cpu"))
    loss = training.model.compute_loss(torch.cat(vectors), whole.targets)  # type: ignore[arg-type, call-arg, union-attr]
    loss.backward()
    expected = torch.cat([each.grad.flatten() for each in training.model.parameters() if each.grad is not None])
    found_loss, found = gradients(training, [GROUPS[:4], GROUPS[4:]])
    assert found_loss == pytest.approx(float(loss.detach()), rel=1e-5)
    assert float((found - expected).norm() / expected.norm()) < 1e-5


def test_half_of_what_was_tried_is_taken_until_one_example_is_alone() -> None:
    told: list[str] = []
    micro_batches = MicroBatches(None, told.append)
    for size in (3, 1):
        micro_batches.halve(micro_batches.split(GROUPS), 4, "no room\nand more")
        assert micro_batches.size == size
    assert "recipe.micro_batch_size 3" in told[0]
    with pytest.raises(RunFailedError, match=r"step 4.*recipe\.max_seq_length"):
        micro_batches.halve(micro_batches.split(GROUPS), 4, "no room")


@contextmanager
def room_for(num_in_steps: int, num_answered: int = 10_000) -> Iterator[None]:
    """Let the device hold so many texts while a model learns, and so many tokens while it only answers."""
    logits = SequenceHead.logits

    def on_small_device(head: SequenceHead, model: Any, batch: Batch) -> Tensor:
        if len(batch.windows) > num_in_steps if model.training else batch.seqs.num_tokens > num_answered:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.\nGPU 0 has 79 GiB.")
        return logits(head, model, batch)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(SequenceHead, "logits", on_small_device)
        yield


def new_bench(folder: Path, make_task: Callable[[Path], TaskSpec]) -> Bench:
    folder.mkdir()
    return Bench(make_task(folder), folder)


def warnings(bench: Bench) -> list[str]:
    return [message.text for message in bench.messages if message.level == "warning"]


def losses(bench: Bench) -> list[float]:
    return [event.values["loss"] for event in bench.events if event.split == "train"]


def digest(bench: Bench) -> str:
    return digest_file(str(Path(bench.model_folder, "model.safetensors")))


@training
def test_running_out_of_memory_changes_no_loss_and_is_told_once(tmp_path: Path) -> None:
    whole, bench = (new_bench(tmp_path / name, tiny_tasks.classification) for name in ("whole", "halved"))
    whole.run(epochs=2.0)
    with room_for(5):
        assert bench.run(epochs=2.0).state == "COMPLETED"
    assert losses(bench) == pytest.approx(losses(whole), rel=1e-3)
    assert [text.partition("micro_batch_size")[2].split()[0] for text in warnings(bench)] == ["8", "4"]


@training
def test_a_training_that_ran_out_of_memory_ends_as_one_with_its_size_resumed_or_not(tmp_path: Path) -> None:
    digests = []
    for name, room, killed_at, changes in (
        ("chosen", 1000, None, {"micro_batch_size": 4}),
        ("halved", 5, None, {}),
        ("halved and resumed", 5, 2, {}),
    ):
        bench = new_bench(tmp_path / name, lambda folder: tiny_tasks.classification(folder, num_train=128))
        with room_for(room):
            if killed_at is not None:
                with pytest.raises(Killed):
                    bench.run(killed_at=killed_at, epochs=4.0, dropout=0.1)
            assert bench.run(epochs=4.0, dropout=0.1, **changes).state == "COMPLETED"
        if killed_at is not None:
            assert bench.num_trained_steps < 32
            assert warnings(bench) == [], "the checkpoint has the size"
        digests.append(digest(bench))
    assert digests[0] == digests[1] == digests[2]


@training
def test_memory_that_runs_out_in_an_evaluation_changes_no_score(tmp_path: Path) -> None:
    whole, bench = (new_bench(tmp_path / name, tiny_tasks.regression) for name in ("whole", "halved"))
    whole.run(epochs=2.0)
    with room_for(1000, 500):
        bench.run(epochs=2.0)
    (warning,) = warnings(bench)
    assert "416 tokens" in warning
    assert len(whole.validation("spearman")) == 2
    for name in ("spearman", "pearson"):
        assert bench.validation(name) == pytest.approx(whole.validation(name), rel=1e-4)


def test_a_recipe_names_its_micro_batches_and_is_another_one_with_them() -> None:
    assert RecipeSpec().identity_values() == RecipeSpec(micro_batch_size=None).identity_values()
    assert RecipeSpec(micro_batch_size=4).identity_values()["micro_batch_size"] == 4


LENGTHS = np.array([5, 30, 8, 8, 30, 4])


class SmallDevice:
    """A device whose memory holds so many padded tokens, and what it has computed."""

    def __init__(self, lengths: np.ndarray, room: int) -> None:
        self.lengths, self.room = lengths, room
        self.done: list[list[int]] = []

    def __call__(self, windows: np.ndarray) -> None:
        if len(windows) * self.lengths[windows].max() > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory.\nGPU 0 has 79 GiB.")
        self.done.append(windows.tolist())


def test_what_fits_is_kept_for_the_next_windows_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    budget, device = TokenBudget(1000), SmallDevice(LENGTHS, 40)
    budget.compute(LENGTHS, 4, device)
    first, second = caplog.messages
    assert ["60 tokens" in first, "30 tokens at" in second] == [True, True]
    budget.compute(LENGTHS, 4, device)
    assert len(caplog.messages) == 2
    assert device.done[-4:] == [[1], [4], [2, 3, 0], [5]]


def test_as_many_windows_are_computed_at_a_time_as_the_budget_and_the_batch_take() -> None:
    device = SmallDevice(LENGTHS, 10_000)
    TokenBudget(24).compute(LENGTHS, 2, device)
    assert device.done == [[1], [4], [2, 3], [0, 5]], "a longer one comes alone"


def test_a_window_that_does_not_fit_alone_is_refused_with_a_remedy() -> None:
    budget = TokenBudget(1000)
    with pytest.raises(RunFailedError, match="one example"):
        budget.compute(LENGTHS, 4, SmallDevice(LENGTHS, 20))


@given(
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=30),
    batch_size=st.integers(1, 40),
    spare=st.integers(0, 99),
)
def test_each_window_is_computed_whatever_fits(lengths: list[int], batch_size: int, spare: int) -> None:
    device = SmallDevice(np.array(lengths), max(lengths) + spare)
    TokenBudget(1000).compute(np.array(lengths), batch_size, device)
    assert {number for windows in device.done for number in windows} == set(range(len(lengths)))
