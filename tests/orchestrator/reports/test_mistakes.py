"""The worst mistakes of kept predictions, with their text: which, in what order, how much of each.

Alone: .venv/bin/pytest tests/orchestrator/reports/test_mistakes.py
"""

from typing import Any

from orchestrator.reports.blocks import Page, Section, Table, Words
from orchestrator.reports.mistakes import NUM_MISTAKES, SHOWN_CHARACTERS, mistake_blocks
from orchestrator.reports.rendering import render
from tests.orchestrator.reports.samples import HOSTILE


def mistakes(rows: list[dict[str, Any]]) -> list[Any]:
    """Rows of the table of mistakes."""
    words, table = mistake_blocks(rows)
    assert isinstance(words, Words)
    assert isinstance(table, Table)
    return list(table.rows)


def names(number: int, predicted: list[str]) -> dict[str, Any]:
    """Kept tags of a sentence of four words."""
    gold = ["B-PER", "I-PER", "O", "B-LOC"]
    words = ["Ada", "Lovelace", "in", "London"]
    return {"id": number, "words": words, "prediction": predicted, "gold": gold, "correct": predicted == gold}


def answered(number: int, prediction: str, f1: float, **more: Any) -> dict[str, Any]:
    """A kept answer to a question whose right answers are two."""
    row = {"id": number, "prediction": prediction, "gold": ["in 1843", "1843"], "exact_match": 0.0, "f1": f1}
    return row | more


def test_entities_are_told_by_their_words_the_sentence_with_most_wrong_words_first() -> None:
    rows = [
        names(0, ["B-PER", "I-PER", "O", "B-LOC"]),
        names(1, ["B-PER", "I-PER", "O", "O"]),
        names(2, ["O", "B-ORG", "O", "O"]),
    ]
    worst, other = mistakes(rows)
    assert worst == {
        "id": 2,
        "text": "Ada Lovelace in London",
        "gold": "PER Ada Lovelace; LOC London",
        "prediction": "ORG Lovelace",
        "wrong words": 3,
    }
    assert (other["prediction"], other["wrong words"]) == ("PER Ada Lovelace", 1)


def test_answers_are_told_with_question_and_passage_the_farthest_first() -> None:
    near = answered(0, "in the year 1843", 0.5, question="When?", passage="Notes of 1843.")
    far = answered(1, "", 0.0, question="When?", passage="Notes of 1843.")
    worst, other = mistakes([near, far])
    assert (worst["prediction"], worst["gold"], worst["f1"]) == ("no answer", "in 1843 | 1843", 0.0)
    assert (worst["question"], worst["passage"]) == ("When?", "Notes of 1843.")
    assert other["prediction"] == "in the year 1843"


def test_answers_that_were_kept_without_their_question_are_shown_all_the_same() -> None:
    (row,) = mistakes([answered(0, "then", 0.0)])
    assert "question" not in row


def test_a_question_without_an_answer_is_told_as_such() -> None:
    row = {"id": 0, "prediction": "then", "gold": [], "exact_match": 0.0, "f1": 0.0}
    assert mistakes([row])[0]["gold"] == "no answer"


def test_of_classes_the_surest_mistake_stands_first() -> None:
    def taken(number: int, sure: float) -> dict[str, Any]:
        probabilities = {"bad": sure, "good": 1 - sure}
        return {"id": number, "prediction": "bad", "gold": "good", "correct": False, "probabilities": probabilities}

    assert [row["id"] for row in mistakes([taken(0, 0.6), taken(1, 0.9), taken(2, 0.7)])] == [1, 2, 0]


def test_number_and_size_are_bounded() -> None:
    many = [answered(number, "x" * 5_000, 0.0, passage="y" * 5_000) for number in range(100)]
    rows = mistakes(many)
    assert len(rows) == NUM_MISTAKES
    assert max(len(str(cell)) for row in rows for cell in row.values()) == SHOWN_CHARACTERS
    sentence = names(0, ["O"] * 4) | {"words": ["word"] * 400, "gold": ["O"] * 390 + ["B-X"] * 10}
    (row,) = mistakes([sentence | {"prediction": ["O"] * 400}])
    assert row["text"].startswith("… word")
    assert row["gold"].startswith("X word; X word")


def test_hostile_texts_stay_text() -> None:
    rows = [answered(0, HOSTILE, 0.0, question=HOSTILE, passage=HOSTILE), answered(1, "a", 0.0)]
    html = render(Page("t", "s", [Section("Where it errs", mistake_blocks(rows))]))
    assert HOSTILE not in html
    assert "&lt;/script&gt;" in html


def test_without_mistakes_nothing_is_shown() -> None:
    assert mistake_blocks([{"prediction": "a", "gold": "a", "correct": True}]) == []
