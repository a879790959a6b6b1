"""Answers from start and end logits: the best spans of the passage over all windows of a question, and "no answer".

A span's score is the sum of its first token's start logit and its last token's end logit (Devlin et al. 2019,
section 4.2); both lie in the passage of one window, the end not before the start, at most `max_answer_length` tokens.
"No answer" gets the score of [CLS], the least over a question's windows, and is chosen where it beats the best span by
more than a threshold that is tuned on held-out questions (section 4.3).
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bert_core.errors import DataError

Logits = NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class AnswerSpan:
    """A span of the passage: its first character, the one past its last, and its score."""

    start: int
    end: int
    score: float


@dataclass(frozen=True, slots=True)
class QuestionSpans:
    """Best spans of one question, best first, none where no window holds any passage; and the score of "no answer"."""

    spans: tuple[AnswerSpan, ...]
    null_score: float

    @property
    def null_margin(self) -> float:
        """Score of "no answer" less the best span's; 0 where there is no span."""
        return self.null_score - self.spans[0].score if self.spans else 0.0


def decode_spans(
    start_logits: Logits,
    end_logits: Logits,
    offsets: NDArray[np.int32],
    cu_seqlens: NDArray[np.int64],
    question_index: NDArray[np.int32],
    *,
    max_answer_length: int,
    num_best: int = 5,
) -> list[QuestionSpans]:
    """Find the `num_best` spans of each question 0, 1, …; no two spans of a question cover the same characters.

    Shapes: logits (T,), offsets (T, 2) characters of the passage or -1 off it, cu_seqlens (W+1,), question_index (W,)
    ascending without gaps. Raises: DataError when they do not fit or a logit is not finite.
    """
    num_tokens, num_windows = int(cu_seqlens[-1]), len(cu_seqlens) - 1
    shapes = (start_logits.shape, end_logits.shape, offsets.shape, question_index.shape)
    wanted = ((num_tokens,), (num_tokens,), (num_tokens, 2), (num_windows,))
    if shapes != wanted or not num_windows or not np.isin(np.diff(question_index, prepend=-1), (0, 1)).all():
        raise DataError(
            f"logits, offsets and question_index have the shapes {shapes} where {wanted} belong together, and "
            "question_index must count the questions up from 0, each with a window at least"
        )
    if not (np.isfinite(start_logits).all() and np.isfinite(end_logits).all()):
        raise DataError(
            "the logits hold values that are not finite; the model has diverged; train it again with a lower rate"
        )
    starts, ends = (np.where(offsets[:, 0] >= 0, logits, -np.inf) for logits in (start_logits, end_logits))
    window_null = start_logits[cu_seqlens[:-1]] + end_logits[cu_seqlens[:-1]]
    firsts = np.flatnonzero(np.diff(question_index, prepend=-1))
    null_scores = np.minimum.reduceat(window_null, firsts)
    decoded = []
    for (first, stop), null_score in zip(pairwise([*firsts, len(question_index)]), null_scores, strict=True):
        found: list[tuple[float, int, int]] = []
        for begin, end in pairwise(cu_seqlens[first : stop + 1].tolist()):
            found += _best_in_window(starts[begin:end], ends[begin:end], begin, max_answer_length, num_best)
        decoded.append(QuestionSpans(_distinct(sorted(found, reverse=True), offsets, num_best), float(null_score)))
    return decoded


def tune_null_threshold(
    null_margins: NDArray[np.floating], answered_scores: NDArray[np.floating], null_scores: NDArray[np.floating]
) -> float:
    """Find the threshold with the best mean score: a question whose null margin exceeds it gets "no answer".

    `answered_scores` are the questions' scores with their best span, `null_scores` those of saying "no answer".
    Of equally good thresholds the lowest is taken.
    """
    order = np.argsort(null_margins, kind="stable")
    margins = np.asarray(null_margins, np.float64)[order]
    gain = np.cumsum((answered_scores - null_scores)[order])
    is_last = np.append(margins[1:] != margins[:-1], True)  # equal margins are answered together
    totals = np.concatenate([[0.0], gain[is_last]])
    thresholds = np.concatenate([[margins[0] - 1.0], margins[is_last]])
    return float(thresholds[int(np.argmax(totals))])


def _best_in_window(
    starts: Logits, ends: Logits, shift: int, max_answer_length: int, num_best: int
) -> list[tuple[float, int, int]]:
    """Find the best spans of one window, unordered: (score, first token, last token), tokens counted from `shift`."""
    padded = np.concatenate([ends, np.full(max_answer_length - 1, -np.inf)])
    reach = np.lib.stride_tricks.sliding_window_view(padded, max_answer_length)  # (S, max_answer_length)
    scores = (starts[:, None] + reach).ravel()
    best = np.argpartition(scores, -num_best)[-num_best:] if num_best < len(scores) else np.arange(len(scores))
    best = best[np.isfinite(scores[best])]
    first, length = np.divmod(best, max_answer_length)
    return list(zip(scores[best].tolist(), (first + shift).tolist(), (first + length + shift).tolist(), strict=True))


def _distinct(found: list[tuple[float, int, int]], offsets: NDArray[np.int32], num_best: int) -> tuple[AnswerSpan, ...]:
    """Take the first `num_best` spans that cover different characters; windows overlap, so one may come twice."""
    spans: dict[tuple[int, int], AnswerSpan] = {}
    for score, first, last in found:
        place = int(offsets[first, 0]), int(offsets[last, 1])
        spans.setdefault(place, AnswerSpan(*place, score))
        if len(spans) == num_best:
            break
    return tuple(spans.values())
