"""Entities: CoNLL columns, tags, character spans, windows. Alone: pytest tests/orchestrator/tasks/types/test_ner.py"""

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.metrics import entity_spans
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import TaskDataError
from orchestrator.specs.recipe import Context
from orchestrator.specs.task import TaskSpec
from orchestrator.tasks.bio_tags import (
    Span,
    find_form,
    read_spans,
    tag_words,
    to_bio,
)
from orchestrator.tasks.features import Features
from orchestrator.tasks.text_files import BadRecords
from orchestrator.tasks.types import TASK_TYPES
from orchestrator.tasks.types.conll import ConllReader, NerExample, NerTable, has_tag_columns
from orchestrator.tasks.types.ner import TagsPrediction
from tests.orchestrator.tasks.definitions import decode, define, examples_of, features_of, read, write, write_records

LABELS = ("O", "B-PER", "I-PER")
TAGS = st.lists(st.sampled_from(["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]))


def read_text(path: Path, text: str, policy: str = "error", tags: Any = None) -> tuple[list[Any], BadRecords]:
    return read(ConllReader(tags), write(path, text), policy)


@settings(deadline=None)
@given(TAGS)
def test_bio_keeps_the_entities_and_begins_each_with_b(tags: list[str]) -> None:
    bio = to_bio(tags)
    assert entity_spans(bio) == entity_spans(tags)
    assert [i for i, tag in enumerate(bio) if tag[0] == "B"] == [start for start, _, _ in entity_spans(tags)]
    assert to_bio(bio) == bio


def write_in(letters: str, pattern: str, outside: str, bio: tuple[str, ...]) -> list[str]:
    """A sentence's BIO tags in another scheme: letters of first, inner, last and only words, as the pattern says."""
    tags = [outside] * len(bio)
    begin, inside, last, single = letters
    for first, end, kind in entity_spans(bio):
        own = [begin, *[inside] * (end - first - 2), last] if end - first > 1 else [single]
        tags[first:end] = [pattern.format(letter, kind) for letter in own]
    return tags


PATTERNS = ("{0}-{1}", "{0}_{1}", "{0}:{1}", "{0}.{1}", "{1}-{0}", "{1}_{0}")


@settings(deadline=None)
@given(TAGS, st.sampled_from(["BIIB", "BIES", "BILU", "BMES", "BMEW"]), st.sampled_from(PATTERNS), st.booleans())
def test_tags_of_every_scheme_become_bio(tags: list[str], letters: str, pattern: str, is_lower: bool) -> None:
    bio = to_bio(tags)
    written = write_in(letters.lower() if is_lower else letters, pattern, "o" if is_lower else "O", bio)
    form = find_form(Counter(written))
    assert form is None or to_bio(written, form) == bio
    assert (form is None) == (not tags)


def test_entities_without_a_begin_are_told_apart_by_their_ends() -> None:
    assert to_bio(["I-PER", "E-PER", "E-PER", "I-LOC"]) == ("B-PER", "I-PER", "B-PER", "B-LOC")


def test_columns_document_starts_and_line_ends_are_understood(tmp_path: Path) -> None:
    text = "-DOCSTART- -X- O O\r\n\r\nEU NNP I-NP I-ORG\r\nrejects VBZ I-VP O\r\n\r\n\r\nPeter NNP I-NP I-PER\r\n"
    examples, _ = read_text(tmp_path / "a", text)
    assert [(e.id, e.words, e.tags) for e in examples] == [
        ("0", ("EU", "rejects"), ("B-ORG", "O")),
        ("1", ("Peter",), ("B-PER",)),
    ]


def test_a_document_start_begins_a_document_and_without_any_there_is_none(tmp_path: Path) -> None:
    text = "-DOCSTART- O\n\na O\n\nb O\n-DOCSTART- O\nc O\n"
    assert [e.document for e in read_text(tmp_path / "a", text)[0]] == [0, 0, 1]
    assert [e.document for e in read_text(tmp_path / "b", "a O\n\nb O\n")[0]] == [None, None]


TAGGED = ["Ann B-PER||runs O", "New York\tB-LOC\r", "-DOCSTART-||Ann", "Ann B-PER|" * 19 + "runs"]
TAGGED += ["Ann S-PER|New B-LOC|York E-LOC", "Ann b_per|runs o", "# sentence 1|Ann _ _ B-PER"]
PROSE = ["Ann B-PER|" * 9 + "runs", "I am O|and you are not", '{"words": ["Ann"]}', ""]


@pytest.mark.parametrize("text", [*TAGGED, *PROSE])
def test_tag_columns_are_told_from_prose(text: str) -> None:
    assert has_tag_columns([f"{line}\n" for line in text.split("|")]) == (text in TAGGED)


def test_comments_before_a_sentence_are_no_words_and_hash_tags_are(tmp_path: Path) -> None:
    text = "# id 0 domain=x\nAnn _ _ B-PER\n# _ _ O\n\n# id 1\n# more O\n#tag _ _ O\nruns _ _ O\n\n# _ _ O\n"
    assert [e.words for e in read_text(tmp_path / "a", text)[0]] == [("Ann", "#"), ("#tag", "runs"), ("#",)]
    plain = "# id 0\nAnn\n\n#\n#tag\n\n#tag\n"
    words = [e.words for e in examples_of(ConllReader(labeled=False), write(tmp_path / "b", plain))]
    assert words == [("Ann",), ("#", "#tag"), ("#tag",)]


def test_conll_u_has_its_words_behind_their_numbers(tmp_path: Path) -> None:
    text = "# text = a dog\n1-2\tado\t_\t_\n1\ta\tX\tO\n2\tdog\tX\tB-PET\n\n# text = O\n1\t7\tX\tO\n"
    examples, bad = read_text(tmp_path / "a.conllu", text)
    assert [(e.words, e.tags) for e in examples] == [(("a", "dog"), ("O", "B-PET")), (("7",), ("O",))]
    assert bad.remarks.total() == 2


def test_only_tabs_part_columns_or_spaces_where_there_is_none(tmp_path: Path) -> None:
    examples, _ = read_text(tmp_path / "a", "10\u00a0000  B-NUM\n\u3000x\u2003y O \n")
    assert examples[0].words == ("10\u00a0000", "\u3000x\u2003y")
    examples, _ = read_text(tmp_path / "a", "two words\tB-PER\n\t\n#\tO\n")
    assert [e.words for e in examples] == [("two words",), ("#",)]
    assert define("ner", LABELS).type.request.parse_text(" 10\u00a0000 x\n") == {"words": ["10\u00a0000", "x"]}


def test_another_scheme_is_read_as_bio_and_counted(tmp_path: Path) -> None:
    text = "Ann U-PER\nruns O\n\nNew B-LOC\nYork L-LOC\n"
    examples, bad = read_text(tmp_path / "a", text, tags=("O", "B-PER", "B-LOC", "I-LOC"))
    assert [e.tags for e in examples] == [("B-PER", "O"), ("B-LOC", "I-LOC")]
    assert list(bad.remarks.values()) == [2]


def test_tags_of_no_scheme_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TaskDataError, match="NNP"):
        read_text(tmp_path / "a", "Ann NNP\nruns VBZ\n", "skip")
    path = write_records(tmp_path / "a.jsonl", {"tokens": ["Ann"], "tags": ["NNP"]})
    with pytest.raises(TaskDataError, match="NNP"):
        examples_of(NerTable("tokens", "tags"), path, "skip")


def test_a_sentence_of_rows_begins_although_its_first_word_is_blank(tmp_path: Path) -> None:
    rows = "sentence,word,tag\n1,Ada,B-PER\n,slept,O\n2, ,O\n,London,B-LOC\n3, ,O\n"
    path = write(tmp_path / "a.csv", rows)
    examples, bad = read(NerTable("word", "tag", sentence_column="sentence"), path, "skip")
    assert [(example.words, bad.count) for example in examples] == [(("Ada", "slept"), 2), (("London",), 2)]


def test_tags_that_are_numbers_are_names_in_the_order_of_the_task_or_of_the_file(tmp_path: Path) -> None:
    record = {"tokens": ["Ann", "runs"], "ner_tags": [1, 0]}
    path = write_records(tmp_path / "a.jsonl", record)
    (example,), bad = read(NerTable("tokens", "ner_tags", LABELS), path)
    assert (example.tags, list(bad.remarks.values())) == (("B-PER", "O"), [1])
    for tags in (None, ("O",)):
        with pytest.raises(TaskDataError, match=r"line 1: ner_tags .*task\.labels"):
            examples_of(NerTable("tokens", "ner_tags", tags), path)
    feature = {"feature": {"names": ["O", "B-LOC"], "_type": "ClassLabel"}, "_type": "Sequence"}
    write_records(tmp_path / "a.parquet", record, features={"ner_tags": feature})
    for tags in (None, ("B-LOC", "O")):  # as the task has learned them, in an order of its own
        assert examples_of(NerTable("tokens", "ner_tags", tags), tmp_path / "a.parquet")[0].tags == ("B-LOC", "O")


def words_of(tag_column: str, *tags: str) -> Any:
    spec = TaskSpec(id="a", head="ner", files={"train": "a.csv"}, text_columns=("no", "word"), label_column=tag_column)
    return TASK_TYPES["ner"].reader(spec, tags or None)


@pytest.mark.parametrize("second", ["", "1"])
def test_a_table_with_a_word_a_row_has_a_column_that_parts_sentences(tmp_path: Path, second: str) -> None:
    (tmp_path / "a.csv").write_text(f'no,word,pos,tag\n1,Ann,NNP,U-PER\n{second},",",",",O\n2,Oslo,NNP,U-LOC\n')
    first, other = examples_of(words_of("tag"), tmp_path / "a.csv")
    assert (first.words, first.tags) == (("Ann", ","), ("B-PER", "O"))
    assert (other.words, other.tags) == (("Oslo",), ("B-LOC",))
    with pytest.raises(TaskDataError, match=r"'pos' has the tags 'NNP'"):
        examples_of(words_of("pos"), tmp_path / "a.csv")
    with pytest.raises(TaskDataError, match=r"line 2: tag 'B-PER'"):
        examples_of(words_of("tag", "O", "B-LOC"), tmp_path / "a.csv")
    assert examples_of(words_of("none").without_labels(), tmp_path / "a.csv")[0].words == ("Ann", ",")
    (tmp_path / "a.csv").write_text("no,word,tag\n1,Ann,B-PER\n1, ,O\n")
    with pytest.raises(TaskDataError, match=r"line 3: .*'word'"):
        examples_of(words_of("tag"), tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("line", "named"), [("alone", "'alone'"), ("word NN PER", "tag 'PER'"), ("word B-LOC", "tag 'B-LOC'")]
)
def test_a_broken_line_is_named_or_its_sentence_counted(tmp_path: Path, line: str, named: str) -> None:
    text, tags = f"a O\n\nb O\n{line}\n\nc O\n", ("O", "B-PER", "I-PER")
    with pytest.raises(TaskDataError, match=f"line 4: {named}"):
        read_text(tmp_path / "a", text, tags=tags)
    examples, bad = read_text(tmp_path / "a", text, "skip", tags)
    assert [e.words for e in examples] == [("a",), ("c",)]
    assert bad.count == 1


def test_lines_of_text_without_labels_are_no_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "Ann runs to Oslo.\n\nIt rained.\n\nAnn\n")
    with pytest.raises(TaskDataError, match=r"line 3: 'It rained\.'"):
        examples_of(ConllReader(labeled=False), path)
    assert read(ConllReader(labeled=False), path, "skip")[1].count == 1


DOCUMENTS = st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=6), min_size=1, max_size=3)


def sentence(text: str, document: int | None = 0) -> NerExample:
    words = tuple(text.split())
    return NerExample("0", words, ("B-PER",) * len(words), document)


def windows_of(features: Features[Any]) -> list[np.ndarray]:
    return np.split(features.input_ids, features.cu_seqlens[1:-1])


def texts_of(features: Features[Any], tokenizer: Tokenizer) -> list[str]:
    return [tokenizer.decode(ids[1:-1].tolist()) for ids in windows_of(features)]


def documents(examples: list[NerExample], tokenizer: Tokenizer, length: int, context: str = "document") -> Features:
    return features_of("ner", LABELS, examples, tokenizer, max_seq_length=length, context=context)


def test_a_window_shows_its_own_document_on_both_sides(tokenizer: Tokenizer) -> None:
    examples = [sentence("the house"), sentence("a river"), sentence("the engine"), sentence("nobody", 1)]
    narrow = documents(examples, tokenizer, 6)
    assert texts_of(narrow, tokenizer) == ["the house a river", "house a river the", "a river the engine", "nobody"]
    wide = documents(examples, tokenizer, 32)
    assert texts_of(wide, tokenizer) == ["the house a river the engine"] * 3 + ["nobody"]
    alone = documents(examples, tokenizer, 32, "sentence")
    assert texts_of(alone, tokenizer) == ["the house", "a river", "the engine", "nobody"]


def test_sentences_of_no_document_stand_alone(tokenizer: Tokenizer) -> None:
    examples = [sentence("the house", None), sentence("a river", None)]
    assert texts_of(documents(examples, tokenizer, 32), tokenizer) == ["the house", "a river"]


def test_windows_of_a_long_sentence_show_one_another(tokenizer: Tokenizer) -> None:
    windows = documents([sentence("the house a river the engine")], tokenizer, 6)
    assert texts_of(windows, tokenizer) == ["the house a river", "a river the engine"]
    assert windows.head_arrays.word_starts.tolist() == [1, 2, 3, 4, 9, 10]
    assert windows.counts["num_split"] == 1


@pytest.mark.parametrize("context", ["sentence", "document"])
@settings(deadline=None, max_examples=25)
@given(lengths=DOCUMENTS, seed=st.integers(0, 1000), max_seq_length=st.integers(8, 24))
def test_every_word_is_tagged_once_and_seen_within_its_document(
    tokenizer: Tokenizer, context: Context, lengths: list[list[int]], seed: int, max_seq_length: int
) -> None:
    rng = random.Random(seed)
    vocabulary = ["house", "Lovelace", "engines", "\x07", "river"]
    examples = [
        NerExample("0", tuple(rng.choices(vocabulary, k=length)), tuple(rng.choices(LABELS, k=length)), document)
        for document, sentences in enumerate(lengths)
        for length in sentences
    ]
    windows = documents(examples, tokenizer, max_seq_length, context)
    starts, labels = windows.head_arrays.word_starts, windows.head_arrays.token_labels
    assert [LABELS[label] for label in labels[starts]] == [tag for example in examples for tag in example.tags]
    assert np.count_nonzero(labels != -100) == len(starts)
    assert [windows.input_ids[start] for start in starts] == [
        first_piece(tokenizer, word) for example in examples for word in example.words
    ]
    assert (np.diff(starts) > 0).all()
    pieces = [[ids for e in examples if e.document == d for ids in tokens(tokenizer, e)] for d in range(len(lengths))]
    for ids, index in zip(windows_of(windows), windows.example_index, strict=True):
        document = pieces[examples[index].document or 0]
        inner = ids[1:-1].tolist()
        assert any(document[place : place + len(inner)] == inner for place in range(len(document)))
        assert len(ids) <= max_seq_length
        assert len(ids) == min(max_seq_length, len(document) + 2) if context == "document" else len(ids) >= 3


def tokens(tokenizer: Tokenizer, example: NerExample) -> list[int]:
    return [piece for word in example.words for piece in tokenizer.encode_words([word])[0] or [tokenizer.unk_id]]


def first_piece(tokenizer: Tokenizer, word: str) -> int:
    return tokens(tokenizer, NerExample("0", (word,)))[0]


def test_tags_are_those_of_first_sub_tokens_over_all_windows(tokenizer: Tokenizer) -> None:
    task = define("ner", LABELS)
    rng = np.random.default_rng(0)
    tags = [tuple(rng.choice(task.labels, size=size)) for size in (40, 1, 3)]
    examples = [NerExample(str(i), ("Lovelace",) * len(tags[i]), tags[i]) for i in range(3)]
    features = features_of(task.head, task.labels, examples, tokenizer, max_seq_length=16)
    numbers = np.where(features.head_arrays.token_labels < 0, 2, features.head_arrays.token_labels)
    assert features.num_windows > 3
    assert decode(task, features, examples, numbers) == [TagsPrediction(t) for t in tags]
    assert decode(task, features, examples, np.eye(3)[numbers]) == [TagsPrediction(t) for t in tags]


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


@pytest.mark.parametrize(
    ("spans", "tags", "num_misfits"),
    [
        ([(0, 5, "A")], ["B-A", "I-A", "O"], 1),  # ends within a word
        ([(5, 5, "A")], ["O", "O", "O"], 1),  # nothing, within a word
        ([(4, 8, "A"), (0, 8, "B")], ["B-B", "I-B", "O"], 1),  # the longer one
        ([(3, 4, "A")], ["O", "O", "O"], 1),  # a blank
        ([(0, 4, "A")], ["B-A", "O", "O"], 0),  # ends with a blank
    ],
)
def test_spans_that_do_not_fit_words_are_counted(spans: list[Any], tags: list[str], num_misfits: int) -> None:
    misfits: Counter[str] = Counter()
    assert tag_words("Ada King ran", [Span(*span) for span in spans], misfits)[1] == tags
    assert misfits.total() == num_misfits


@pytest.mark.parametrize(
    "value", [[[0, 3]], [["a", "b", "c"]], ["PER"], [{"start": 0, "label": "A"}], [[3, 0, "A"]], "x"]
)
def test_other_lists_are_no_spans(value: object) -> None:
    assert read_spans(value) is None


def test_a_table_of_texts_and_spans_gives_tagged_words_and_a_span_behind_its_text_is_broken(tmp_path: Path) -> None:
    rows = [
        {"text": "Ada ran.", "spans": [{"start_offset": 0, "end_offset": 3, "label": "PER"}]},
        {"text": "It ran", "spans": []},
    ]
    path = write_records(tmp_path / "a.jsonl", *rows)
    examples = examples_of(NerTable("text", "spans"), path)
    assert [(e.words, e.tags) for e in examples] == [
        (("Ada", "ran", "."), ("B-PER", "O", "O")),
        (("It", "ran"), ("O", "O")),
    ]
    assert [e.tags for e in examples_of(NerTable("text", "spans").without_labels(), path)] == [(), ()]
    path = write_records(path, {"text": "Ada", "spans": [[0, 4, "PER"]]})
    with pytest.raises(TaskDataError, match="line 1: the span"):
        examples_of(NerTable("text", "spans"), path)


NESTED = "1\tAnn\tB-PER\tO\n2\tLondon\tB-LOC\tB-ORG\n3\truns\tO\tO\n"


@pytest.mark.parametrize(
    "text", [NESTED, NESTED.replace("B-ORG", "O"), NESTED.replace("ORG", "LOC").replace("\t", " ")]
)
def test_of_names_within_names_the_outer_ones_are_read_and_told(tmp_path: Path, text: str) -> None:
    examples, bad = read_text(tmp_path / "a.conll", text)
    assert [e.tags for e in examples] == [("B-PER", "B-LOC", "O")]
    assert any("outer" in remark for remark in bad.remarks)


@pytest.mark.parametrize("cell", ["[(0, 3, 'PER')]", '[{"start": 0, "end": 3, "label": "PER"}]', '[[0, 3, "PER"]]'])
def test_spans_in_cells_of_csv_are_put_on_words(tmp_path: Path, cell: str) -> None:
    path = write(tmp_path / "a.csv", f"text|spans\nAnn runs|{cell}\nshe runs|[]\n")
    task = TaskSpec(id="own", head="ner", files={"train": str(path)}, text_columns=("text",), label_column="spans")
    assert [e.tags for e in examples_of(TASK_TYPES["ner"].reader(task, None), path)] == [("B-PER", "O"), ("O", "O")]
