"""Scores of each class. Alone: pytest tests/bert_core/metrics/test_per_class.py"""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import confusion_matrix as reference_confusions
from sklearn.metrics import precision_recall_fscore_support

from bert_core.metrics import class_scores, confusion_matrix

LABELS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40)


@given(LABELS)
def test_scores_of_classes_are_those_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    predicted, gold = zip(*pairs, strict=True)
    counts = confusion_matrix(predicted, gold, 4)
    assert np.array_equal(counts, reference_confusions(gold, predicted, labels=range(4)))
    reference = precision_recall_fscore_support(gold, predicted, labels=range(4), zero_division=0)
    ours = [(scores.precision, scores.recall, scores.f1, scores.support) for scores in class_scores(counts)]
    assert np.allclose(ours, np.transpose(reference))
