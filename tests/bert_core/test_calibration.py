"""Temperatures and thresholds against scipy and scikit-learn. Alone: pytest tests/bert_core/test_calibration.py"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.metrics import f1_score, precision_recall_curve

from bert_core.calibration import fit_temperature, tune_threshold


def likelihood_loss(logits: np.ndarray, labels: np.ndarray, temperature: float) -> float:
    return float(-log_softmax(logits.astype(np.float64) / temperature, axis=1)[np.arange(len(labels)), labels].mean())


@pytest.mark.parametrize("scale", [0.3, 1.0, 8.0])
def test_temperature_is_where_scipy_finds_the_least_loss(scale: float) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(400, 3)) * 2
    labels = np.array([rng.choice(3, p=np.exp(row) / np.exp(row).sum()) for row in logits])
    logits = (scale * logits).astype(np.float32)
    found = fit_temperature(logits, labels)
    best = minimize_scalar(lambda log: likelihood_loss(logits, labels, np.exp(log)), bounds=(-4, 4), method="bounded")
    assert found == pytest.approx(np.exp(best.x), rel=1e-4)
    assert found == pytest.approx(scale, rel=0.2), "labels drawn from the softmax itself need none"


def test_temperature_stays_within_bounds_where_all_labels_are_right_or_wrong() -> None:
    logits = np.array([[3.0, -1.0], [-2.0, 5.0]])
    assert fit_temperature(logits, np.array([0, 1])) == pytest.approx(0.01)
    assert fit_temperature(logits, np.array([1, 0])) == pytest.approx(100.0)


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.2, 0.5, 0.5000001, 0.9, 1.0]), st.booleans()), min_size=1))
def test_threshold_has_the_best_f1_of_scikit_learns_curve(rows: list[tuple[float, bool]]) -> None:
    probabilities, has_label = (np.array(column) for column in zip(*rows, strict=True))
    found = tune_threshold(probabilities, has_label)
    assert 0.0 <= found < 1.0
    if not has_label[probabilities > 0].any():
        return
    precision, recall, thresholds = precision_recall_curve(has_label, probabilities)
    can_be = thresholds > 0  # a label of probability 0 is never predicted
    p, r = precision[:-1][can_be], recall[:-1][can_be]
    best = (2 * p * r / np.maximum(p + r, 1e-12)).max()
    assert f1_score(has_label, probabilities > found) == pytest.approx(best)


def test_a_threshold_lies_midway_and_at_one_half_where_nobody_has_the_label() -> None:
    assert tune_threshold(np.array([0.2, 0.9]), np.array([False, False])) == 0.5
    assert tune_threshold(np.array([0.8, 0.4]), np.array([True, False])) == pytest.approx(0.6)
    near = np.nextafter(0.5, 1.0)
    threshold = tune_threshold(np.array([near, 0.5]), np.array([True, False]))
    assert 0.5 <= threshold < near
