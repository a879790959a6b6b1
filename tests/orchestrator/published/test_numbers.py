"""The table of published numbers: whole, plausible, and of names that are known.

Alone: .venv/bin/pytest tests/orchestrator/published/test_numbers.py
"""

from collections import Counter

import pytest

from orchestrator.published.numbers import Chosen, PublishedNumber, load_numbers, published_tasks
from orchestrator.tasks.catalogue import KNOWN_TASKS

_BEYOND_THE_CATALOGUE = {"beir", "mnli_mismatched", "msmarco", "trec_dl_2019"}
_CORRELATIONS = {"matthews_correlation", "pearson", "spearman"}
_SCORES = _CORRELATIONS | {"accuracy", "f1", "exact_match", "mrr_at_10", "ndcg_at_10"}
_SEVERAL_SCORES = {"mrpc", "qqp", "stsb"}


def the(task: str, metric: str, model: str, split: str, source: str) -> list[float]:
    """Values of the numbers with these properties and without a note."""
    return [
        one.value
        for one in load_numbers()
        if (one.task, one.metric, one.model.name, one.split, one.source.key) == (task, metric, model, split, source)
        and not one.note
    ]


@pytest.mark.parametrize("number", load_numbers(), ids=lambda one: f"{one.source.key}-{one.model.name}-{one.task}")
def test_every_number_is_whole(number: PublishedNumber) -> None:
    assert number.task in KNOWN_TASKS.keys() | _BEYOND_THE_CATALOGUE
    assert number.split in ("validation", "test")
    assert number.metric in _SCORES or (number.metric is None and number.task in _SEVERAL_SCORES)
    assert (-1 if number.metric in _CORRELATIONS else 0) <= number.value <= 1
    assert number.sd is None or 0 < number.sd < 0.1
    assert number.num_runs is None or number.num_runs >= 1
    assert number.source.url.startswith("https://")
    assert number.source.read in ("source", "transcription")
    assert number.source.title
    assert number.table
    if number.chosen is Chosen.ONE_RUN:
        assert number.num_runs == 1


def test_no_number_stands_twice() -> None:
    keys = Counter(
        (one.source.key, one.table, one.model.name, one.task, one.split, one.metric, one.note, one.value)
        for one in load_numbers()
    )
    assert keys.most_common(1)[0][1] == 1


def test_numbers_that_everybody_knows_are_as_published() -> None:
    assert the("mrpc", "f1", "bert-base-uncased", "test", "devlin2019") == [0.889]
    assert the("cola", "matthews_correlation", "bert-large-uncased", "test", "devlin2019") == [0.605]
    assert the("squad", "f1", "bert-base-uncased", "validation", "devlin2019") == [0.885, 0.885]
    assert the("sst2", "accuracy", "bert-tiny", "test", "turc2019") == [0.832]
    assert the("mrpc", "accuracy", "bert-base-cased", "validation", "hf-text-classification") == [0.8407]
    assert the("conll2003", "f1", "bert-base-cased", "test", "devlin2019") == []


def test_sizes_follow_from_the_shapes() -> None:
    models = {one.model.name: one.model for one in load_numbers()}
    for model in models.values():
        if model.num_parameters is not None:
            assert model.layers
            assert model.hidden_size
            hidden, vocab = model.hidden_size, 28_996 if "-cased" in model.name else 30_522
            layer = 12 * hidden**2 + 13 * hidden
            counted = (vocab + 512 + 2 + 2) * hidden + model.layers * layer + hidden**2 + hidden
            assert model.num_parameters == pytest.approx(counted, abs=10_000)


def test_tasks_are_listed_once() -> None:
    assert published_tasks() == sorted(set(published_tasks()))
    assert {"mrpc", "squad", "conll2003"} <= set(published_tasks())
