"""Facts of a run as short lines of text.

Alone: .venv/bin/pytest tests/orchestrator/reports/test_run_texts.py
"""

from orchestrator.reports.run_texts import data_line, score_lines


def test_a_line_on_data_leaves_zeros_out() -> None:
    counts = {"num_train_examples": 60, "num_train_bad_records": 0, "num_train_tokens": 9_200}
    line = data_line({"name": "complaints", "counts": counts, "path": "/c"})
    assert line == "complaints: 60 train examples, 9,200 train tokens; at /c"


def test_a_truth_value_among_scores_is_a_word_and_a_rate_keeps_its_digits() -> None:
    lines = score_lines({"accuracy": 0.5, "collapsed": 1.0, "train.learning_rate": 0.00125}, "accuracy")
    assert lines == {"accuracy": "0.5000", "collapsed": "yes", "train.learning_rate": "0.00125"}


def test_a_refused_test_score_is_told_with_the_reason() -> None:
    lines = score_lines({"f1": 0.5, "test.f1": 0.75, "test.baseline.f1": 0.5}, "f1", "the reason")
    assert lines == {"f1": "0.5000", "test.f1": "0.7500 (refused: the reason)"}
