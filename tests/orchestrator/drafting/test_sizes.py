"""Sizes that suit data and time.

Alone: pytest tests/orchestrator/drafting/test_sizes.py
"""

from pathlib import Path
from typing import Any

import pytest

from bert_core.config import BertConfig
from orchestrator.drafting.request import DraftRequest
from orchestrator.drafting.sizes import MAX_PASSES, TaskSizes, pretraining_sizes, task_sizes
from tests.orchestrator.drafting.made_files import request_for

FEW = {"num_train": 200, "num_validation": 50, "mean_tokens": 20, "wanted_length": 40}
TINY = BertConfig.from_size("tiny", vocab_size=1000)
BASE = BertConfig.from_size("base", vocab_size=30_000)


def lasting(minutes: float, num_cores: int = 2) -> DraftRequest:
    return request_for(Path(), minutes=minutes, num_cores=num_cores)


TEN = lasting(10)


def sizes_for(request: DraftRequest = TEN, config: BertConfig | None = None, **changes: Any) -> TaskSizes:
    """The sizes for few short examples and random weights, but for what is given."""
    fields: dict[str, Any] = {**FEW, "splits_long_examples": False, **changes}
    return task_sizes(request, config, **fields)


def test_few_examples_are_read_many_times_by_several_trials() -> None:
    sizes = sizes_for()
    assert (len(sizes.learning_rates), len(sizes.seeds)) == (2, 2)
    assert (sizes.max_seq_length, sizes.batch_size) == (64, 16)
    assert sizes.epochs >= 20


def test_more_examples_get_fewer_trials_and_epochs_within_the_time() -> None:
    many = sizes_for(num_train=100_000)
    assert many.fits
    assert many.minutes <= 9
    assert len(many.learning_rates) * len(many.seeds) < 4
    assert sizes_for(lasting(60), num_train=100_000).epochs > many.epochs


def test_a_short_time_leaves_a_trial_its_hundred_steps() -> None:
    sizes = sizes_for(lasting(0.5, num_cores=1))
    assert sizes.epochs * FEW["num_train"] / sizes.batch_size >= 100


def test_what_cannot_fit_is_said() -> None:
    assert not sizes_for(config=BASE, num_train=1_000_000).fits


def test_a_window_is_no_longer_than_the_model_reads() -> None:
    short = BertConfig.from_size("tiny", max_position_embeddings=32)
    assert sizes_for(config=short).max_seq_length == 32


@pytest.mark.parametrize("num_words", [1_000, 160_000, 5_000_000])
def test_pretraining_passes_over_the_text_a_bearable_number_of_times(num_words: int) -> None:
    sizes = pretraining_sizes(lasting(600), num_words, 300, 2000)
    assert sizes.num_passes <= MAX_PASSES
    assert sizes.minutes <= 600


def test_short_steps_are_counted_with_their_own_time() -> None:
    request = lasting(2, num_cores=1)
    sizes = pretraining_sizes(request, 5_000_000, 300, 30_000)
    assert (sizes.batch_size, sizes.limit) == (8, "the time")
    assert 0.9 <= sizes.minutes * 60 / request.work_s <= 1


def test_more_text_and_time_get_a_larger_model() -> None:
    small = pretraining_sizes(TEN, 160_000, 300, 3000)
    large = pretraining_sizes(lasting(60_000, num_cores=16), 1e9, 300, 30_000)
    assert (small.size, large.size) == ("tiny", "base")


def test_sequences_are_as_long_as_documents() -> None:
    assert pretraining_sizes(TEN, 160_000, 20, 3000).phases == ((32, 1.0),)
    assert [length for length, _ in pretraining_sizes(TEN, 160_000, 300, 3000).phases] == [64, 128]


def test_few_examples_are_seen_more_often_and_narrow_models_take_larger_steps() -> None:
    hour = lasting(3600)
    few, many = (sizes_for(hour, TINY, num_train=number) for number in (300, 5000))
    assert (few.epochs, many.epochs) == (16, 3)
    assert min(few.learning_rates) >= 3e-4
    assert max(sizes_for(config=BASE).learning_rates) <= 5e-5
