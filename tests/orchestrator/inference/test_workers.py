"""Workers of Ray Data, below Ray: what their answers bring along of their card and of memory that ran out.

Alone: .venv/bin/pytest tests/orchestrator/inference/test_workers.py
"""

import logging
from collections.abc import Callable

import numpy as np
import pytest
import torch

from orchestrator.base.errors import InputError, SpecError
from orchestrator.cluster.torch_devices import choose_device
from orchestrator.inference.embedder import LineEmbedder
from orchestrator.inference.line_blocks import LineBlock, LinePredictor, PredictedBlock
from orchestrator.inference.line_files import RayBatch, _answers, _Worker
from orchestrator.inference.predictor import Predictor
from tests.orchestrator.tiny_models import WORDS
from tests.orchestrator.training.cards_in_place import let_memory_run_out, put_in_place

BLOCK = LineBlock(tuple((number, f"{word}\tcats") for number, word in enumerate(WORDS.split()[:8], start=1)))
OLD = "NVIDIA H200 (compute capability 7.5) is too old for flash attention"


def ask(worker: _Worker, item: object) -> tuple[object, tuple[str, ...]]:
    """Answer of a worker to one block, as it travels."""
    items = np.empty(1, dtype=object)
    items[0] = item
    (answer,) = worker({"item": items})["item"]
    assert isinstance(answer, tuple)
    return answer


def load_on_card(folder: str) -> LinePredictor:
    """A predictor that computes on a card."""
    choose_device("cuda")
    return lambda block: PredictedBlock(b"", len(block.lines))


@pytest.fixture
def old_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card of an old generation."""
    put_in_place(monkeypatch, capability=(7, 5))
    monkeypatch.setattr(torch, "set_float32_matmul_precision", lambda precision: None)  # of the whole process


def test_the_first_answer_of_a_worker_tells_of_its_card(old_card: None, encoder: str) -> None:
    worker = _Worker(load_on_card, encoder, "file.txt")
    (warning,) = ask(worker, BLOCK)[1]
    assert warning.startswith(OLD)
    assert ask(worker, BLOCK)[1] == ()


def test_a_worker_without_a_gpu_does_not_ask_for_a_card(monkeypatch: pytest.MonkeyPatch, encoder: str) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: pytest.fail("asked"))
    assert ask(_Worker(LineEmbedder.load, encoder, "file.txt"), BLOCK)[1] == ()


@pytest.mark.parametrize(
    ("load", "model", "expected"),
    [
        (Predictor.load, "classifier", "memory ran out while texts were answered, 8 at a time"),
        (LineEmbedder.load, "encoder", "memory ran out with texts of "),
    ],
)
def test_memory_that_ran_out_is_told_with_the_block_it_happened_to(
    monkeypatch: pytest.MonkeyPatch,
    load: Callable[[str], LinePredictor],
    model: str,
    expected: str,
    request: pytest.FixtureRequest,
) -> None:
    let_memory_run_out(monkeypatch, max_windows=4, max_tokens=20)
    worker = _Worker(load, request.getfixturevalue(model), "file.txt")
    first, second = ask(worker, BLOCK), ask(worker, BLOCK)
    assert first[0] == second[0]
    assert [warning[: len(expected)] for warning in first[1]] == [expected]
    assert second[1] == ()


def test_what_is_wrong_with_a_model_or_a_file_travels_as_a_value(encoder: str) -> None:
    def refuse(folder: str) -> LinePredictor:
        logging.getLogger("orchestrator.some").warning("an odd folder")
        raise SpecError("no model")

    unread = InputError("line 3 is not UTF-8")
    found = ask(_Worker(refuse, encoder, "file.txt"), BLOCK)
    assert (repr(found[0]), found[1]) == ("SpecError('no model')", ("an odd folder",))
    assert ask(_Worker(LineEmbedder.load, encoder, "file.txt"), unread)[0] is unread


def test_a_text_of_several_workers_is_logged_once_and_before_the_error_it_led_to(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def rows() -> list[RayBatch]:
        answers = [
            (PredictedBlock(b"a", 1), (OLD, "fewer at a time")),
            (PredictedBlock(b"b", 1), (OLD,)),
            (InputError("file.txt: line 3 is empty"), ("fewer still",)),
        ]
        return [{"item": answer} for answer in answers]  # type: ignore[dict-item]

    found = _answers(rows())
    assert [next(found).data, next(found).data] == [b"a", b"b"]
    assert caplog.messages == [OLD, "fewer at a time"]
    with pytest.raises(InputError, match="line 3 is empty"):
        next(found)
    assert caplog.messages[2:] == ["fewer still"]
