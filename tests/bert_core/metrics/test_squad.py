"""SQuAD's scores: published predictions, and the rules of the official scripts one by one.

Alone: pytest tests/bert_core/metrics/test_squad.py
"""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bert_core.errors import DataError
from bert_core.metrics import answer_scores, squad_scores
from tests.shared_data import shared_file


def read_gzip_json(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()))


@cache
def references() -> dict[str, list[str]]:
    articles = read_gzip_json(shared_file("squad/dev-v1.1.json.gz"))["data"]
    questions = [q for article in articles for paragraph in article["paragraphs"] for q in paragraph["qas"]]
    return {question["id"]: [answer["text"] for answer in question["answers"]] for question in questions}


@pytest.mark.parametrize(
    "system",
    [
        "bert-ensemble-google-ai-language",
        "logistic-regression-baseline-stanford-university",
        "r-net-ensemble-microsoft-research-asia",
    ],
)
def test_published_predictions_score_as_published(system: str) -> None:
    name = f"squad-v1.1-predictions/{system}.json.gz"
    expected = json.loads(shared_file("fixtures/expected_metrics.json").read_text())[name]
    scores = squad_scores(read_gzip_json(shared_file(f"fixtures/{name}")), references())
    assert scores["exact_match"] == pytest.approx(expected["exact_match"] / 100, abs=1e-9)
    assert scores["f1"] == pytest.approx(expected["f1"] / 100, abs=1e-9)
    assert scores.keys() == {"exact_match", "f1"}


def test_case_punctuation_articles_and_space_do_not_count() -> None:
    assert squad_scores({"q": "  The  U.S. "}, {"q": ["us"]}) == {"exact_match": 1.0, "f1": 1.0}


def test_an_article_inside_a_word_counts() -> None:
    assert squad_scores({"q": "anthem"}, {"q": ["them"]})["exact_match"] == 0.0


def test_f1_is_that_of_shared_words() -> None:
    scores = squad_scores({"q": "in red red house"}, {"q": ["red house"]})
    assert scores == {"exact_match": 0.0, "f1": pytest.approx(2 * (2 / 4) * 1 / (2 / 4 + 1))}


def test_the_best_gold_answer_counts() -> None:
    assert squad_scores({"q": "house"}, {"q": ["red barn", "house"]}) == {"exact_match": 1.0, "f1": 1.0}


def test_a_missing_prediction_scores_0_and_a_foreign_one_is_left_aside() -> None:
    assert squad_scores({"other": "x", "p": "y"}, {"q": ["x"], "p": ["y"]}) == {"exact_match": 0.5, "f1": 0.5}


def test_unanswerable_questions_bring_their_own_scores() -> None:
    predictions = {"has": "red house", "said_none": "", "none": "", "said_some": "house"}
    scores = squad_scores(predictions, {"has": ["house"], "said_none": ["barn"], "none": [], "said_some": []})
    assert scores == {
        "exact_match": 0.25,
        "f1": pytest.approx((2 / 3 + 0 + 1 + 0) / 4),
        "HasAns_exact": 0.0,
        "HasAns_f1": pytest.approx(1 / 3),
        "NoAns_exact": 0.5,
        "NoAns_f1": 0.5,
    }


def test_a_missing_prediction_is_no_claim_that_there_is_no_answer() -> None:
    assert squad_scores({}, {"q": []})["NoAns_exact"] == 0.0


def test_only_unanswerable_questions_have_no_has_answer_scores() -> None:
    assert squad_scores({"q": ""}, {"q": []}).keys() == {"exact_match", "f1", "NoAns_exact", "NoAns_f1"}


def test_the_versions_differ_in_answers_of_nothing_but_articles() -> None:
    assert answer_scores("the", ["A"], unanswerable=False) == (1.0, 0.0)
    assert answer_scores("the", ["A"], unanswerable=True) == (1.0, 1.0)
    assert answer_scores("", [], unanswerable=False) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("predictions", "gold", "message"),
    [
        ({}, {}, "no question"),
        ({"q": 3}, {"q": ["x"]}, "got 3"),
        ({"q": "x"}, {"q": "x"}, r"references \{id: \[texts\]\}"),
    ],
)
def test_what_cannot_be_scored_is_named(predictions: dict, gold: dict, message: str) -> None:
    with pytest.raises(DataError, match=message):
        squad_scores(predictions, gold)
