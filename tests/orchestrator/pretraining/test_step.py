"""One optimizer step: its counts, over one and over several workers. Alone:
pytest tests/orchestrator/pretraining/test_step.py"""

import pytest
import torch

from bert_core.examples.packing import PackedBatch
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.step import count_globally
from tests.orchestrator.pretraining.small_run import make_job

OBJECTIVES = ("masked_lm", "next_sentence")


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> PackedBatch:
    """The first batch of a small run."""
    return next(batch for _, batch in make_job(tmp_path_factory.mktemp("job")).stream.batches(range(1)))


def test_counts_are_those_of_the_batch(batch: PackedBatch) -> None:
    counts, num_stopping = count_globally(batch, OBJECTIVES, Worker(), wants_to_stop=True)
    assert {name: number.item() for name, number in counts.num_predictions.items()} == {
        "masked_lm": len(batch.masked_positions),
        "next_sentence": batch.num_sequences,
    }
    assert counts.num_tokens.item() == len(batch.input_ids)
    assert num_stopping.item() == 1
    tensors = [*counts.num_predictions.values(), counts.num_tokens, num_stopping]
    assert all(number.shape == () and number.dtype == torch.float32 for number in tensors)


def test_counts_of_several_workers_are_added_up_in_one_message(
    batch: PackedBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[torch.Tensor] = []

    def add_another_worker(values: torch.Tensor) -> None:
        messages.append(values)
        values += torch.tensor([10.0, 2.0, 100.0, 1.0])

    monkeypatch.setattr(torch.distributed, "all_reduce", add_another_worker)
    counts, num_stopping = count_globally(batch, OBJECTIVES, Worker(0, 2))
    assert len(messages) == 1
    assert counts.num_predictions["masked_lm"].item() == len(batch.masked_positions) + 10
    assert counts.num_tokens.item() == len(batch.input_ids) + 100
    assert num_stopping.item() == 1
