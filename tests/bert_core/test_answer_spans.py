"""Answers from logits: against trying every span, and the threshold against trying every one.

Alone: pytest tests/bert_core/test_answer_spans.py
"""

import time
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.answer_spans import decode_spans, tune_null_threshold
from bert_core.errors import DataError


def make_windows(rng: np.random.Generator, num_questions: int, longest: int = 12) -> dict[str, np.ndarray]:
    """Windows `[CLS] q [SEP] passage [SEP]` whose passages of one-character tokens overlap within a question."""
    offsets, lengths, index = [], [], []
    for question in range(num_questions):
        for _ in range(rng.integers(1, 4)):
            begin, size = int(rng.integers(0, 4)), int(rng.integers(0, longest))
            passage = [(place, place + 1) for place in range(begin, begin + size)]
            offsets += [(-1, -1)] * 3 + passage + [(-1, -1)]
            lengths.append(size + 4)
            index.append(question)
    num_tokens = sum(lengths)
    return {
        "start_logits": rng.normal(size=num_tokens),
        "end_logits": rng.normal(size=num_tokens),
        "offsets": np.array(offsets, np.int32),
        "cu_seqlens": np.concatenate([[0], np.cumsum(lengths)]),
        "question_index": np.array(index, np.int32),
    }


def try_every_span(windows: dict[str, np.ndarray], max_answer_length: int) -> list[dict[tuple[int, int], float]]:
    found: list[dict[tuple[int, int], float]] = [{} for _ in range(windows["question_index"].max() + 1)]
    for window, question in enumerate(windows["question_index"]):
        tokens = range(windows["cu_seqlens"][window], windows["cu_seqlens"][window + 1])
        for first in tokens:
            for last in tokens:
                if windows["offsets"][first, 0] < 0 or windows["offsets"][last, 0] < 0:
                    continue
                if first <= last < first + max_answer_length:
                    place = int(windows["offsets"][first, 0]), int(windows["offsets"][last, 1])
                    score = windows["start_logits"][first] + windows["end_logits"][last]
                    found[question][place] = max(score, found[question].get(place, -np.inf))
    return found


@settings(deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.integers(1, 4))
def test_best_spans_agree_with_trying_every_span(seed: int, max_answer_length: int, num_questions: int) -> None:
    windows = make_windows(np.random.default_rng(seed), num_questions)
    decoded = decode_spans(**windows, max_answer_length=max_answer_length, num_best=1)
    for question, every in zip(decoded, try_every_span(windows, max_answer_length), strict=True):
        if not every:
            assert question.spans == ()
        else:
            best = max(every, key=lambda place: every[place])
            assert (question.spans[0].start, question.spans[0].end) == best
            assert question.spans[0].score == pytest.approx(every[best])


def test_candidates_are_the_best_distinct_spans_in_order() -> None:
    windows = make_windows(np.random.default_rng(1), 1, longest=8)
    every = try_every_span(windows, 30)[0]
    spans = decode_spans(**windows, max_answer_length=30, num_best=1000)[0].spans
    expected = sorted(every.items(), key=lambda item: -item[1])
    assert [((span.start, span.end), pytest.approx(span.score)) for span in spans] == expected


def test_null_score_is_the_least_of_the_windows() -> None:
    windows = make_windows(np.random.default_rng(2), 3)
    sums = (windows["start_logits"] + windows["end_logits"])[windows["cu_seqlens"][:-1]]
    decoded = decode_spans(**windows, max_answer_length=5)
    for number, question in enumerate(decoded):
        assert question.null_score == pytest.approx(sums[windows["question_index"] == number].min())


@pytest.mark.heavy
def test_two_thousand_long_questions_take_seconds() -> None:
    windows = make_windows(np.random.default_rng(3), 2_000, longest=200)
    begin = time.process_time()
    decode_spans(**windows, max_answer_length=30)
    assert time.process_time() - begin < 6.0


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("start_logits", lambda logits: logits[:3]),
        ("question_index", lambda index: index + 1),
        ("end_logits", lambda logits: logits * np.nan),
    ],
)
def test_arrays_that_do_not_fit_are_refused(name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    windows = make_windows(np.random.default_rng(0), 2)
    with pytest.raises(DataError):
        decode_spans(**windows | {name: change(windows[name])}, max_answer_length=5)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.floats(0, 1), st.sampled_from([0.0, 1.0])), min_size=1, max_size=12))
def test_tuned_threshold_is_the_best_there_is(questions: list[tuple[int, float, float]]) -> None:
    margins, answered, null = (np.array(column, float) for column in zip(*questions, strict=True))

    def mean_score(threshold: float) -> float:
        return float(np.where(margins > threshold, null, answered).mean())

    best = max(mean_score(threshold) for threshold in (-4.0, *range(-3, 4)))
    assert mean_score(tune_null_threshold(margins, answered, null)) == pytest.approx(best)
