"""Names of metrics: direction, bounds, and whether they measure the machine."""

import math
from functools import lru_cache

BASELINE = "baseline."
"""Beginning, behind the split's, of the names of the majority baseline's scores."""
COLLAPSED = "collapsed"
"""Measurement of a trial that is 1 where it never rose above the majority baseline, else 0: a truth value."""
_BETTER_LOWER = frozenset(
    {"loss", "perplexity", "ppl", "nll", "entropy", "error", "mse", "rmse", "mae", "brier", "ece", "wer", "cer", "ter"}
    | {"bpc", "bpb", "s", "seconds", "latency", "bytes"}
)
"""Last words of measurements that are better the lower they are."""
_BETTER_LOWER_ENDS: tuple[str, ...] = (
    "_error_rate",
    "_brier_score",
    "_bits_per_character",
    "_bits_per_byte",
    "_bits_per_word",
    "_bits_per_token",
)
"""Last words together of further ones."""
_FRACTIONS = frozenset({"accuracy", "f1", "precision", "recall", "exact", "ndcg", "mrr"})
"""Words of scores that lie between 0 and 1."""
_CORRELATIONS = frozenset({"correlation", "pearson", "spearman"})
"""Words of scores that lie between -1 and 1."""
_BETTER_HIGHER = _FRACTIONS | _CORRELATIONS | {"map", "auc", "auroc", "auprc", "bleu", "chrf", "rouge", "kappa"}
"""Words of scores known to be better the higher they are; unknown scores are taken to be, too."""


def baseline_of(measurement: str) -> str:
    """Name of the majority baseline's score that stands beside a score.

    >>> baseline_of("f1"), baseline_of("test.f1")
    ('baseline.f1', 'test.baseline.f1')
    """
    split, dot, name = measurement.rpartition(".")
    return f"{split}{dot}{BASELINE}{name}"


def is_of_the_machine(measurement: str) -> bool:
    """Whether a measurement is of the machine: a time, a speed, memory or its use, in which two equal runs differ.

    >>> [is_of_the_machine(name) for name in ("train.mlm_loss", "tokens_per_s", "data_wait_share", "train.mfu")]
    [False, True, True, True]
    """
    return measurement.endswith(("_s", "seconds", "_bytes", "data_wait_share", "mfu")) or "speed" in measurement


@lru_cache  # boards ask it of the same few names again and again
def is_better_lower(measurement: str) -> bool:
    """Whether smaller values of a measurement are better: losses, perplexities, errors, times and memory.

    >>> [is_better_lower(name) for name in ("f1", "mlm_loss", "test.perplexity", "tokens_per_s", "step_s")]
    [False, True, True, False, True]
    >>> [is_better_lower(name) for name in ("word_error_rate", "cer", "bits_per_character", "learning_rate")]
    [True, True, True, False]
    """
    words = _words(measurement)
    if f"_{'_'.join(words)}".endswith(_BETTER_LOWER_ENDS):
        return True
    return words[-1] in _BETTER_LOWER and "per" not in words


def is_direction_known(measurement: str) -> bool:
    """Whether it is known which values of a score are better; where it is not, larger ones are taken to be.

    >>> [is_direction_known(name) for name in ("macro_f1", "error_rate", "surprise")]
    [True, True, False]
    """
    return is_better_lower(measurement) or not _BETTER_HIGHER.isdisjoint(_words(measurement))


def _words(measurement: str) -> list[str]:
    return measurement.lower().replace(".", "_").split("_")


@lru_cache
def score_bounds(measurement: str) -> tuple[float, float] | None:
    """Smallest and largest value that a score can have; None where it has no bounds, as a loss, or none are known.

    >>> [score_bounds(name) for name in ("macro_f1", "recall_at_5", "matthews_correlation", "mlm_loss", "f1_s")]
    [(0.0, 1.0), (0.0, 1.0), (-1.0, 1.0), None, None]
    """
    words = {*_words(measurement)}
    if is_better_lower(measurement) or is_of_the_machine(measurement):
        return None
    if words & _CORRELATIONS:
        return -1.0, 1.0
    return (0.0, 1.0) if words & _FRACTIONS else None


def best_first(measurement: str, score: float | None) -> tuple[bool, float]:
    """Sort key of a score: the best first, a missing one or NaN last.

    >>> sorted([0.5, None, 0.9], key=lambda score: best_first("f1", score))
    [0.9, 0.5, None]
    """
    if score is None or math.isnan(score):
        return True, 0.0
    return False, score * (1.0 if is_better_lower(measurement) else -1.0)
