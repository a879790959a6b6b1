"""The worst mistakes of kept predictions, with their text: which, in what order, how much of each.

Alone: .venv/bin/pytest tests/orchestrator/reports/test_mistake_blocks.py
"""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from orchestrator.reports.mistake_blocks import NUM_MISTAKES, SHOWN_CHARACTERS, mistake_blocks, prediction_blocks
from orchestrator.reports.page_blocks import Chart, Page, Section, Table, Words
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
    (bare,) = mistakes([answered(0, "then", 0.0, gold=[])])
    assert "question" not in bare
    assert bare["gold"] == "no answer"


def taken(number: int, sure: float, **said: Any) -> dict[str, Any]:
    """A good text that was taken for a bad one."""
    probabilities = {"bad": sure, "good": 1 - sure}
    row = {"id": number, "prediction": "bad", "gold": "good", "correct": False, "probabilities": probabilities}
    return said | row


def test_of_classes_the_surest_mistake_stands_first_with_its_texts_and_how_sure_the_model_was() -> None:
    rows = mistakes([taken(0, 0.6), taken(1, 0.75, text="a charming film", text_pair="It rains."), taken(2, 0.7)])
    assert [row["id"] for row in rows] == [1, 2, 0]
    said = {"text": "a charming film", "second text": "It rains."}
    assert rows[0] == {"id": 1, **said, "gold": "good", "prediction": "bad", "probability": 0.75}


def test_of_several_labels_the_surest_wrong_one_decides() -> None:
    def tagged(number: int, **probabilities: float) -> dict[str, Any]:
        found = [label for label, probability in probabilities.items() if probability > 0.5]
        row = {"id": number, "text": "x", "prediction": found, "gold": ["a"], "correct": found == ["a"]}
        return row | {"probabilities": probabilities}

    added, missed, right = tagged(0, a=0.9, b=0.7), tagged(1, a=0.1, b=0.4), tagged(2, a=0.8, b=0.2)
    worst, other = mistakes([added, missed, right])
    assert (worst["id"], worst["prediction"], worst["gold"]) == (1, "none", "a")
    assert (other["id"], other["prediction"]) == (0, "a, b")


def test_a_choice_is_told_by_its_number_and_what_it_says() -> None:
    row = {"id": 0, "text": "He opened the", "choices": ["door", "sky"], "prediction": 1, "gold": 0, "correct": False}
    (shown,) = mistakes([row | {"probabilities": [0.25, 0.75]}])
    assert (shown["gold"], shown["prediction"], shown["probability"]) == ("0: door", "1: sky", 0.75)


def test_of_values_the_largest_differences_are_told_whichever_side_they_are_on() -> None:
    """With generated values, as a similarity task has them, against a sort of its own."""
    rng = random.Random(0)
    rows = []
    for number in range(60):
        gold, found = rng.choice([0.0, 2.5, 5.0]), rng.choice([0.0, rng.uniform(0.0, 5.0)])
        pair = {"text": f"first {number}", "text_pair": f"second {number}"}
        rows.append({"id": number, **pair, "prediction": found, "gold": gold, "error": found - gold})
    shown = mistakes(rows)
    assert [row["id"] for row in shown] == [
        row["id"] for row in sorted(rows, key=lambda row: -abs(row["error"]))[:NUM_MISTAKES]
    ]
    assert shown[0].keys() == {"id", "text", "second text", "gold", "prediction", "error"}
    words = mistake_blocks(rows)[0]
    assert isinstance(words, Words)
    assert words.text.startswith(f"{sum(row['prediction'] != row['gold'] for row in rows)} of 60 ")


@pytest.mark.parametrize(
    "said",
    [
        HOSTILE,
        '" onmouseover=alert(1) x="',
        "{{ 7 * 7 }}{% raw %}",
        "a\u2028b\u2029c\x85d\x0be",
        "\0\x1b[2J\u202egnp.exe",
        "&lt;b&gt; \ufeff 👍🏽 \U0010ffff",
        "</td></tr></table>" * 1_000,
    ],
)
def test_hostile_texts_of_classes_and_values_stay_text(said: str, tmp_path: Path) -> None:
    """Written and read as a run keeps them; each page has one row, and what it says cannot leave its cell."""
    classes = [taken(0, 0.75, text=said, text_pair=said) | {"gold": said}]
    values = [{"id": 0, "text": said, "text_pair": said, "prediction": 1.0, "gold": 0.0, "error": 1.0}]
    for rows in (classes, values):
        path = tmp_path / "predictions.jsonl"
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
        blocks = prediction_blocks(str(path))
        table = blocks[-1]
        assert isinstance(table, Table)
        assert table.rows[0]["text"] == (said if len(said) <= SHOWN_CHARACTERS else said[: SHOWN_CHARACTERS - 1] + "…")
        html = render(Page("t", "s", [Section("Where it errs", [table])]))
        body = html[html.index("<tbody>") : html.index("</tbody>")]
        assert body.count("<td") == body.count("</td>") == len(table.columns)
        assert "<script" not in body
        assert '" onmouseover' not in body
        assert not {"\0", "\x1b", "\u202e"} & set(body)


def test_number_and_size_are_bounded() -> None:
    many = [answered(number, "x" * 5_000, 0.0, passage="y" * 5_000) for number in range(100)]
    rows = mistakes(many)
    assert len(rows) == NUM_MISTAKES
    assert max(len(str(cell)) for row in rows for cell in row.values()) == SHOWN_CHARACTERS
    sentence = names(0, ["O"] * 4) | {"words": ["word"] * 400, "gold": ["O"] * 390 + ["B-X"] * 10}
    (row,) = mistakes([sentence | {"prediction": ["O"] * 400}])
    assert row["text"].startswith("… word")
    assert row["gold"].startswith("X word; X word")


def test_without_mistakes_nothing_is_shown() -> None:
    assert mistake_blocks([{"prediction": "a", "gold": "a", "correct": True}]) == []


TAGS = {"id": "1", "words": ["Anna", "ran"], "prediction": ["O", "O"], "gold": ["B-PER", "O"], "correct": False}
ANSWER = {"id": "1", "question": "Is it?", "prediction": "no", "gold": ["yes"], "exact_match": 0.0, "f1": 0.0}
CHOICE = {"id": "1", "prediction": 1, "gold": 2, "correct": False, "probabilities": [0.1, 0.6, 0.3]}


@pytest.mark.parametrize(
    ("row", "blocks", "columns"),
    [
        (TAGS, [Table, Words, Table], "entity"),
        (ANSWER, [Table, Words, Table], "questions"),
        ({"prediction": 1.5, "gold": 2.0}, [Chart], None),
        (CHOICE, [Words, Table], None),
    ],
    ids=["tags", "answer", "value", "place of a choice, which is no value"],
)
def test_each_form_of_prediction_has_its_blocks(
    tmp_path: Path, row: dict[str, Any], blocks: list[type], columns: str | None
) -> None:
    path = tmp_path / "predictions.jsonl"
    path.write_text(json.dumps(row) + "\n")
    found = prediction_blocks(str(path))
    assert [type(block) for block in found] == blocks
    assert columns is None or found[0].columns[0] == columns


@pytest.mark.parametrize("content", [None, "{broken", "[1]", '{"prediction": "a", "gold": "a"}\n{"prediction": "b"}'])
def test_predictions_that_cannot_be_read_are_told(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "predictions.jsonl"
    if content is not None:
        path.write_text(content)
    (words,) = prediction_blocks(str(path))
    assert isinstance(words, Words)
    assert str(path) in words.text
