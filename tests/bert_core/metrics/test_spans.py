"""Scores of entities and answers.

Alone: pytest tests/bert_core/metrics/test_spans.py
"""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.errors import DataError
from bert_core.metrics import answer_scores, ner_f1, ner_f1_by_type, squad_scores
from tests.shared_data import shared_file

TAGS = st.sampled_from(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"])
SENTENCES = st.lists(st.lists(st.tuples(TAGS, TAGS), max_size=8), min_size=1, max_size=5)


def entities(tags: list[str]) -> set[tuple[int, int, str]]:
    """All entities by definition: maximal stretches of one type in which no word but the first begins anew."""
    found = set()
    for first in range(len(tags)):
        for last in range(first, len(tags)):
            kinds = {tag[2:] for tag in tags[first : last + 1]}
            if len(kinds) > 1 or kinds == {""}:
                continue
            kind = kinds.pop()
            begins = first == 0 or tags[first] == f"B-{kind}" or tags[first - 1][2:] != kind
            ends = last + 1 == len(tags) or tags[last + 1] != f"I-{kind}"
            unbroken = all(tag == f"I-{kind}" for tag in tags[first + 1 : last + 1])
            if begins and ends and unbroken:
                found.add((first, last, kind))
    return found


@settings(deadline=None)
@given(SENTENCES)
def test_counts_agree_with_the_definition(pairs: list[list[tuple[str, str]]]) -> None:
    predicted = [[p for p, _ in sentence] for sentence in pairs]
    gold = [[g for _, g in sentence] for sentence in pairs]
    found = sum(len(entities(tags)) for tags in predicted)
    wanted = sum(len(entities(tags)) for tags in gold)
    right = sum(len(entities(p) & entities(g)) for p, g in zip(predicted, gold, strict=True))
    precision, recall = right / found if found else 0.0, right / wanted if wanted else 0.0
    scores = ner_f1(predicted, gold)
    assert scores["precision"] == precision
    assert scores["recall"] == recall
    assert scores["f1"] == pytest.approx(2 * precision * recall / (precision + recall) if right else 0.0)


def read_tags(path: Path) -> list[list[str]]:
    text = gzip.decompress(path.read_bytes()).decode().replace("\r", "")
    sentences: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.strip():
            sentences[-1].append(line.replace("\t", " ").split(" ")[-1])
        elif sentences[-1]:
            sentences.append([])
    return [sentence for sentence in sentences if sentence]


@pytest.mark.parametrize("name", ["uh_ritual", "spinningbytes", "mic-cis"])
def test_published_wnut17_submissions_score_as_published(name: str) -> None:
    expected = json.loads(shared_file("fixtures/expected_metrics.json").read_text())
    wanted = expected[f"wnut17-submissions/{name}.conll.gz"]
    gold = read_tags(shared_file("ner/wnut17/emerging.test.annotated.gz"))
    scores = ner_f1(read_tags(shared_file(f"fixtures/wnut17-submissions/{name}.conll.gz")), gold)
    # The expected numbers are counts; their percentages are rounded to four digits.
    assert scores["precision"] == pytest.approx(wanted["correct"] / wanted["predicted_entities"], abs=1e-12)
    assert scores["recall"] == pytest.approx(wanted["correct"] / wanted["gold_entities"], abs=1e-12)
    for score in ("precision", "recall", "f1"):
        assert scores[score] == pytest.approx(wanted[score] / 100, abs=5.1e-7)


def test_iob1_and_bio_of_the_same_entities_agree() -> None:
    iob1 = [["I-PER", "I-PER", "O", "I-LOC", "B-LOC"]]
    bio = [["B-PER", "I-PER", "O", "B-LOC", "B-LOC"]]
    assert ner_f1(iob1, bio) == {"precision": 1.0, "recall": 1.0, "f1": 1.0}


def test_types_are_scored_apart() -> None:
    scores = ner_f1_by_type([["B-PER", "B-LOC"]], [["B-PER", "B-ORG"]])
    assert {kind: values["f1"] for kind, values in scores.items()} == {"LOC": 0.0, "ORG": 0.0, "PER": 1.0}


@pytest.mark.parametrize(
    ("predicted", "gold"),
    [
        ([["O"]], [["O"], ["O"]]),
        ([["O"], ["O"]], [["O"], ["O", "O"]]),
        ([["PER"]], [["O"]]),
        ([["O"]], [["B-"]]),
    ],
)
def test_tags_that_do_not_line_up_are_refused(predicted: list, gold: list) -> None:
    with pytest.raises(DataError):
        ner_f1(predicted, gold)


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
@pytest.mark.heavy
@pytest.mark.core
def test_published_predictions_score_as_published(system: str) -> None:
    name = f"squad-v1.1-predictions/{system}.json.gz"
    expected = json.loads(shared_file("fixtures/expected_metrics.json").read_text())[name]
    scores = squad_scores(read_gzip_json(shared_file(f"fixtures/{name}")), references())
    assert scores["exact_match"] == pytest.approx(expected["exact_match"] / 100, abs=1e-9)
    assert scores["f1"] == pytest.approx(expected["f1"] / 100, abs=1e-9)
    assert scores.keys() == {"exact_match", "f1"}


@pytest.mark.parametrize(
    ("said", "gold", "exact", "f1"),
    [
        ("  The  U.S. ", ["us"], 1, 1),
        ("anthem", ["them"], 0, 0),
        ("in red red house", ["red house"], 0, 2 / 3),
        ("house", ["red barn", "house"], 1, 1),
    ],
)
def test_an_answer_is_compared_by_its_words(said: str, gold: list[str], exact: float, f1: float) -> None:
    assert squad_scores({"q": said}, {"q": gold}) == {"exact_match": exact, "f1": pytest.approx(f1)}


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
    assert squad_scores({}, {"q": []}) == dict.fromkeys(("exact_match", "f1", "NoAns_exact", "NoAns_f1"), 0.0)


def test_the_versions_differ_in_answers_of_nothing_but_articles() -> None:
    assert answer_scores("the", ["A"], unanswerable=False) == (1.0, 0.0)
    assert answer_scores("the", ["A"], unanswerable=True) == (1.0, 1.0)
    assert answer_scores("", [], unanswerable=False) == (1.0, 0.0)


@pytest.mark.parametrize(("predictions", "gold"), [({}, {}), ({"q": 3}, {"q": ["x"]}), ({"q": "x"}, {"q": "x"})])
def test_what_cannot_be_scored_is_refused(predictions: dict, gold: dict) -> None:
    with pytest.raises(DataError):
        squad_scores(predictions, gold)
