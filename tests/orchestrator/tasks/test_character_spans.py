"""Character spans on words. Alone: pytest tests/orchestrator/tasks/test_character_spans.py"""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_core.metrics.spans import entity_spans
from orchestrator.errors import TaskDataError
from orchestrator.tasks.character_spans import Span, read_spans, tag_words, words_of
from orchestrator.tasks.text_files import BadRecords
from orchestrator.tasks.types.conll import NerTable


@given(st.lists(st.sampled_from(["Ada", "née", "it", "北", "."]), max_size=9), st.data())
def test_spans_of_whole_words_are_those_entities(words: list[str], data: st.DataObject) -> None:
    text = " ".join(words)
    offsets = [len(" ".join([*words[:i], ""])) for i in range(len(words))]
    borders = sorted(data.draw(st.sets(st.integers(0, len(words)))))
    wanted = [(first, end, f"T{first}") for first, end in pairwise(borders)]
    spans = [Span(offsets[first], offsets[end - 1] + len(words[end - 1]), kind) for first, end, kind in wanted]
    misfits: Counter[str] = Counter()
    found, tags = tag_words(text, reversed(spans), misfits)
    assert (found, entity_spans(tags), misfits.total()) == (words, wanted, 0)
    assert words_of(text) == words


@pytest.mark.parametrize(
    ("spans", "tags"),
    [
        ([(0, 5, "A")], ["B-A", "I-A", "O"]),  # ends within a word
        ([(4, 8, "A"), (0, 8, "B")], ["B-B", "I-B", "O"]),  # the longer one
        ([(3, 4, "A")], ["O", "O", "O"]),  # a blank
    ],
)
def test_spans_that_do_not_fit_words_are_counted(spans: list[tuple[int, int, str]], tags: list[str]) -> None:
    misfits: Counter[str] = Counter()
    assert tag_words("Ada King ran", [Span(*span) for span in spans], misfits)[1] == tags
    assert misfits.total() == 1


def test_a_blank_at_a_spans_end_is_no_misfit() -> None:
    misfits: Counter[str] = Counter()
    assert tag_words("Ada ran", [Span(0, 4, "A")], misfits)[1] == ["B-A", "O"]
    assert not misfits


@pytest.mark.parametrize(
    "value", [[[0, 3]], [["a", "b", "c"]], ["PER"], [{"start": 0, "label": "A"}], [[3, 0, "A"]], "x"]
)
def test_other_lists_are_no_spans(value: object) -> None:
    assert read_spans(value) is None


def test_a_table_of_texts_and_spans_gives_tagged_words(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [
        {"text": "Ada ran.", "spans": [{"start_offset": 0, "end_offset": 3, "label": "PER"}]},
        {"text": "It ran", "spans": []},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    bad = BadRecords(str(path), "error")
    examples = list(NerTable("text", "spans").read(str(path), bad))
    assert [(e.words, e.tags) for e in examples] == [
        (("Ada", "ran", "."), ("B-PER", "O", "O")),
        (("It", "ran"), ("O", "O")),
    ]
    assert [e.tags for e in NerTable("text", "spans").without_labels().read(str(path), bad)] == [(), ()]


def test_a_span_behind_its_text_is_a_broken_record(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "Ada", "spans": [[0, 4, "PER"]]}\n')
    with pytest.raises(TaskDataError, match="line 1"):
        list(NerTable("text", "spans").read(str(path), BadRecords(str(path), "error")))
