"""Columns and kind of task, chosen by names and values; facts of labeled files, and examples for validation.

Alone: pytest tests/orchestrator/drafting/test_task_choice.py
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import InputError
from orchestrator.drafting.columns import inspect_table
from orchestrator.drafting.task_choice import TaskChoice, choose_task
from orchestrator.drafting.task_draft import SplitFacts, read_data
from orchestrator.specs.task import TaskSpec
from orchestrator.tasks.loading import load_task
from tests.orchestrator.drafting.made_files import request_for, write, write_reviews


def choose(path: Path, **fields: Any) -> TaskSpec:
    return choose_both(path, **fields).task


def choose_both(path: Path, **fields: Any) -> TaskChoice:
    return choose_task(inspect_table(str(path)), request_for(path.parent, path, **fields))


def table(folder: Path, header: str, row: Callable[[int], str]) -> Path:
    """A TSV file of forty rows, each made of its number."""
    return write(folder / "a.tsv", "\n".join([header, *map(row, range(40))]) + "\n")


@pytest.mark.parametrize(
    ("header", "row", "kind", "texts", "label"),
    [
        ("text\tlabel", lambda n: f"a word {n}\t{n % 2}", "classification", ("text",), "label"),
        ("id\treview\tstars", lambda n: f"{n}\tit was {n}\t{n % 5}", "classification", ("review",), "stars"),
        (
            "premise\thypothesis\tlabel",
            lambda n: f"a {n}\tb {n}\t{n % 3}",
            "classification",
            ("premise", "hypothesis"),
            "label",
        ),
        (
            "genre\tsentence1\tsentence2\tscore",
            lambda n: f"g\ta {n}\tb {n}\t{n / 7}",
            "regression",
            ("sentence1", "sentence2"),
            "score",
        ),
        ("what\twhich", lambda n: f"some words stand here {n}\tx{n % 4}", "classification", ("what",), "which"),
        ("text\ttags", lambda n: f"a word {n}\tx|y{n % 3}", "multi_label", ("text",), "tags"),
        ("text\tmeasured", lambda n: f"a word {n}\t{n}.5", "regression", ("text",), "measured"),
        ("question\tcontext\tanswer_text", lambda n: f"who {n}\tAda wrote {n}\tAda", "qa", (), None),
        ("anchor\tpositive\tnegative", lambda n: f"a {n}\tb {n}\tc {n}", "embedding", ("anchor", "positive"), None),
        (
            "Sentence #\tWord\tTag",
            lambda n: f"Sentence: {n // 4}\tAda{n}\t{('O', 'B-PER')[n % 2]}",
            "ner",
            ("Sentence #", "Word"),
            "Tag",
        ),
    ],
)
def test_columns_and_kind_are_found(
    tmp_path: Path, header: str, row: Callable[[int], str], kind: str, texts: tuple[str, ...], label: str
) -> None:
    choice = choose(table(tmp_path, header, row))
    assert (choice.head, choice.text_columns, choice.label_column) == (kind, texts, label)


def test_a_person_decides_otherwise(tmp_path: Path) -> None:
    path = table(tmp_path, "title\tbody\trating\ttopic", lambda n: f"t {n}\tthe body of {n}\t{n % 5}\tx{n % 2}")
    choice = choose(path, text_columns=("title",), label_column="rating", kind="regression")
    assert (choice.head, choice.text_columns, choice.label_column) == ("regression", ("title",), "rating")


def test_a_label_that_a_person_named_may_differ_in_every_row(tmp_path: Path) -> None:
    path = table(tmp_path, "text\tprice\tintent", lambda n: f"some words {n}\t{n + 100}\tx{n % 30}")
    assert choose(path, label_column="price").head == "regression"
    assert choose(path, label_column="price", kind="regression").label_column == "price"
    assert choose(path, label_column="intent").head == "classification"
    with pytest.raises(InputError, match="price"):
        choose(path, label_column="price", kind="classification")


@pytest.mark.parametrize("tags", [["B-PER", "O"], ["S-PER", "O"], ["b_per", "o"]])
def test_lists_of_words_and_tags_of_any_scheme_are_ner(tmp_path: Path, tags: list[str]) -> None:
    row = json.dumps({"tokens": ["Ada", "wrote"], "tags": tags})
    choice = choose(write(tmp_path / "a.jsonl", f"{row}\n" * 40))
    assert (choice.head, choice.text_columns, choice.label_column) == ("ner", ("tokens",), "tags")


@pytest.mark.parametrize("text", [{}, {"text": "Ada wrote it"}])
def test_lists_of_other_tags_are_taken_as_they_are(tmp_path: Path, text: dict[str, str]) -> None:
    row = json.dumps({**text, "tokens": ["Ada", "wrote", "it"], "tags": ["NNP", "VBD", "NNP"]})
    path = write(tmp_path / "a.jsonl", f"{row}\n" * 40)
    choice = choose(path)
    assert (choice.head, choice.text_columns, choice.label_column) == ("token_classification", ("tokens",), "tags")
    with pytest.raises(InputError, match=r"'NNP'.*head token_classification"):
        choose(path, kind="ner")


@pytest.mark.parametrize("name", ["label", "entities"])
@pytest.mark.parametrize("span", [[0, 3, "PER"], {"start": 0, "end": 3, "label": "PER"}])
def test_character_spans_are_ner(tmp_path: Path, name: str, span: object) -> None:
    rows = [json.dumps({"text": f"Ada wrote {n}", name: [span] * (n % 2)}) + "\n" for n in range(40)]
    choice = choose(write(tmp_path / "a.jsonl", "".join(rows)))
    assert (choice.head, choice.text_columns, choice.label_column) == ("ner", ("text",), name)


@pytest.mark.parametrize("fields", [{}, {"kind": "ner"}, {"label_column": "tag"}])
def test_a_word_and_its_tag_in_each_row_are_told_how_to_be_saved(tmp_path: Path, fields: dict[str, Any]) -> None:
    path = table(tmp_path, "word\ttag", lambda n: f"Ada{n}\t{('B-PER', 'I-PER', 'O')[n % 3]}")
    with pytest.raises(InputError, match=r"'tag'.*\.conll"):
        choose(path, **fields)
    assert choose(path, kind="classification").label_column == "tag"


@pytest.mark.parametrize("kind", ["ner", None])
def test_tags_as_numbers_are_told_with_the_remedy(tmp_path: Path, kind: str | None) -> None:
    record = json.dumps({"id": "0", "tokens": ["Ada", "wrote"], "pos_tags": [22, 41], "ner_tags": [1, 0]})
    path = write(tmp_path / "a.jsonl", f"{record}\n" * 20)
    with pytest.raises(InputError, match="ner_tags"):
        choose(path, kind=kind)


def test_records_without_a_label_are_for_pretraining(tmp_path: Path) -> None:
    choice = choose(write(tmp_path / "a.jsonl", "".join(f'{{"id": "{n}", "body": "words {n}"}}\n' for n in range(30))))
    assert (choice.head, choice.text_columns) == (None, ("body",))


@pytest.mark.parametrize(
    ("header", "row", "problem"),
    [
        ("text", lambda n: f"some words {n}", "--label"),
        ("text\tlabel", lambda n: f"some words {n}\tx{n}", "40 values in 40 rows"),
        ("count\tlabel", lambda n: f"{n}\t{n % 2}", "--text"),
        ("film 1 was good\tpos", lambda n: f"film {n}\tpos", "names of its columns"),
        ("text\tscore", lambda n: f"a word {n}\t1,{n:03}.5", "thousands"),
        ("text\tscore", lambda n: f"a word {n}\t{n} %", "percent"),
    ],
)
def test_a_table_with_nothing_to_learn_is_refused(
    tmp_path: Path, header: str, row: Callable[[int], str], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        choose(table(tmp_path, header, row))


def test_a_column_that_is_not_there_is_told(tmp_path: Path) -> None:
    path = write_reviews(tmp_path / "a.csv")
    with pytest.raises(InputError, match="stars"):
        choose(path, label_column="stars")
    with pytest.raises(InputError, match="ner"):
        choose(path, kind="ner")
    with pytest.raises(InputError, match="label"):
        choose(path, text_columns=("label",), label_column="label")


@pytest.mark.parametrize(
    ("content", "problem"), [(b"text,label\n", "no row"), (b"text,label\ncaf\xe9,a\n", "line 2: .*UTF-8")]
)
def test_a_table_without_a_row_is_told_why(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(InputError, match=problem):
        inspect_table(str(tmp_path / "a.csv"))


@pytest.mark.parametrize(
    ("header", "row", "named"),
    [
        ("text\tlabel\tlabel_text", lambda n: f"some words {n}\t{n % 3}\t{'abc'[n % 3]}", "--label label_text"),
        ("channel\tcomment\tverdict", lambda n: f"c{n % 2}\tsome words {n}\tv{n % 2}", "--label channel"),
    ],
)
def test_names_that_are_easily_mistaken_and_other_labels_are_told(
    tmp_path: Path, header: str, row: Callable[[int], str], named: str
) -> None:
    assert any(named in remark for remark in choose_both(table(tmp_path, header, row)).remarks)


def test_columns_of_0_and_1_are_a_label_each(tmp_path: Path) -> None:
    path = table(tmp_path, "id\ttext\ttoxic\tinsult", lambda n: f"{n}\tsome words {n}\t{n % 2}\t{n % 3 // 2}")
    task, remarks, _ = choose_both(path)
    assert (task.head, task.label_column, task.label_columns) == ("multi_label", None, ("toxic", "insult"))
    assert "--label toxic" in remarks[0]
    assert choose(path, label_column="insult").head == "classification"


def test_pairs_are_embedded_when_that_is_asked_for(tmp_path: Path) -> None:
    triples = table(tmp_path, "anchor\tpositive\tnegative", lambda n: f"words {n}\tlike {n}\tother {n}")
    assert choose(triples).negative_columns == ("negative",)
    pairs = write_reviews(tmp_path / "a.csv")
    assert choose(pairs, kind="embedding", text_columns=("text", "label")).text_columns == ("text", "label")
    with pytest.raises(InputError, match="--text"):
        choose(pairs, kind="embedding")


def test_what_a_pretraining_leaves_unread_is_told(tmp_path: Path) -> None:
    rows = (json.dumps({"text": f"some words {n}", "shop": f"shop {n % 30}"}) + "\n" for n in range(40))
    task, remarks, _ = choose_both(write(tmp_path / "a.jsonl", "".join(rows)))
    assert task.head is None
    assert "--label shop" in remarks[0]


def test_many_fractions_are_no_classes(tmp_path: Path) -> None:
    path = table(tmp_path, "text\tlabel", lambda n: f"some words stand {n}\t{n / 8}")
    path.write_text(path.read_text() + path.read_text().partition("\n")[2] * 4)
    with pytest.raises(InputError, match="--kind regression"):
        choose(path, kind="classification")


def test_a_file_may_say_any_delimiter(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sep=:\ntext:label\n" + "a word:x\nmore words:y\n" * 4)
    facts = inspect_table(str(tmp_path / "a.csv"))
    assert facts.names == "'text', 'label'"


TASK = TaskSpec(id="own", head="classification", text_columns=("text",), label_column="label")


def read(train: Path, dev: Path | None = None, task: TaskSpec = TASK) -> SplitFacts:
    """The training file of a task as it is drafted."""
    files = {"train": str(train), **({"validation": str(dev)} if dev else {})}
    return read_data(task.model_copy(update={"files": files, "on_bad_record": "skip"})).files["train"]


def test_duplicates_empties_and_broken_rows_are_counted(tmp_path: Path) -> None:
    rows = ["good one,pos", "Good  One,neg", "good one,pos", ",pos", "bad one,neg", "no label,", *["x y,pos"] * 20]
    facts = read(write(tmp_path / "a.csv", "text,label\n" + "\n".join(rows) + "\n"))
    assert (len(facts.examples), facts.num_empty, *facts.duplicates) == (25, 1, 21, 1)
    assert facts.bad.num_unlabeled == facts.bad.remarks.total() == 1
    assert facts.labels == {"pos": 23, "neg": 2}


def test_a_file_of_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"text,label\n" + b"caf\xe9,pos\n" * 20 + b"tea,neg\ntee,pos\n" * 20)
    with pytest.raises(InputError, match=r"20 of 60 .*UTF-8"):
        read(tmp_path / "a.csv")


@pytest.mark.parametrize(("other", "told"), [("middle", "none of the labels"), ("Pos", "'pos' is another spelling")])
def test_a_label_that_training_never_shows_is_refused(tmp_path: Path, other: str, told: str) -> None:
    train = write(tmp_path / "train.csv", "text,label\n" + "so fine,pos\nso bad,neg\n" * 20)
    dev = write(tmp_path / "dev.csv", f"text,label\nso so,{other}\nfine,pos\n")
    with pytest.raises(InputError, match=rf"dev\.csv.*'{other}'.*{told}"):
        read(train, dev)


_CLASSES = ("classification", "klasse")
_ANSWER = ("classification", "answer")
_CLASS, _MANY, _NUMBER, _TAGS, _FLAGS, _NEAR = (
    *((head, "label") for head in ("classification", "multi_label", "regression")),
    ("token_classification", "t"),
    ("multi_label", None),
    ("embedding", None),
)


def rows(path: Path, make: Callable[[int], dict[str, object]]) -> Path:
    """A JSONL file of forty records, each made of its number."""
    return write(path / "a.jsonl", "".join(json.dumps(make(n)) + "\n" for n in range(40)))


@pytest.mark.parametrize(
    ("make", "head", "label", "told"),
    [
        (lambda n: {"satz": f"some words {n}", **({"klasse": "ab"[n % 8 // 4]} if n % 4 < 1 else {})}, *_CLASSES, ""),
        (lambda n: {"satz": f"some words {n}", "klasse": "abc"[n % 3], "x": n % 2, "y": n % 5 // 4}, *_CLASSES, "x, y"),
        (lambda n: {"satz": f"some words {n}", "label": n % 2, "x": n % 3 // 2}, *_CLASS, "--label x"),
        (lambda n: {"satz": f"some words {n}", "x": n % 2, "y": n % 3 // 2, "z": -(n % 4 // 3), "w": 0}, *_FLAGS, ""),
        (lambda n: {"satz": f"some words {n}", "cats": {"A": n % 2, "B": n % 3 // 2}}, *_FLAGS, "--label cats.A"),
        (lambda n: {"satz": f"some words {n}", "klasse": ("1,0", "0,0")[n % 2]}, *_CLASSES, ""),
        (lambda n: {"satz": f"some words {n}", "klasse": n % 2, "names": "ny"[n % 2]}, *_CLASSES, "--label names"),
        (lambda n: {"satz": n if n % 4 == 0 else f"some words {n}", "klasse": "ab"[n % 2]}, *_CLASSES, ""),
        (lambda n: {"w": ["Ada", "wrote"], "t": ["PER", "O"]}, *_TAGS, "B- and I-"),
        (lambda n: {"q": f"a {n}", "positive": f"b {n}", "hard_negative": f"c {n}"}, *_NEAR, ""),
        (lambda n: {"q": f"a word {n}", "pos": f"a word {n}", "hard_neg": [f"a word {n}"]}, *_NEAR, ""),
        (lambda n: {"question": f"is it {n}", "passage": f"It is {n}.", "answer": n % 2 > 0}, *_ANSWER, ""),
        (lambda n: {"query": f"it {n}", "document": f"It is {n}", "start": n, "end": n, "label": n % 2}, *_CLASS, ""),
        (lambda n: {"q": f"a word {n}", "positive": n % 2, "negative": 1 - n % 2}, *_FLAGS, ""),
        (lambda n: {"woerter": "['Ada', 'wrote']", "tags": "['B-PER', 'O']"}, "ner", "tags", ""),
        (lambda n: {"text": f"a long text {n}", "label": ["neg"], "by": ["ab"[n % 2]]}, *_MANY, "by: lists"),
        (lambda n: {"text": f"some words {n}", "label": n % 5, "images": [], "videos": []}, *_CLASS, ""),
        (lambda n: {"At": f"a {n}", "Positive": f"so {n}", "Negative": f"no {n}", "label": n / 7}, *_NUMBER, ""),
        (lambda n: {"tokens": ["Ada", "ran"], "chunk": ["B-NP", "O"], "ner": ["B-PER", "O"]}, "ner", "ner", ""),
        (lambda n: {"Sentence": n // 4, "Word": f"w{n}", "POS": "NV"[n % 2]}, "token_classification", "POS", ""),
        (lambda n: {"v1": ("ham", "spam")[n % 2], "v2": f"some words to read {n}"}, "classification", "v1", ""),
        (lambda n: {"sentence1": f"some words {n}", "sentence2": f"and others {n}"}, None, None, "sentence2"),
        (lambda n: {"ctx": f"a text {n}", "endings": ["an end", "other"], "label": n % 2}, *_CLASS, "multiple_choice"),
        (lambda n: {"text": f"some words {n}", "labels": f"{n % 5},{n % 3}"}, "multi_label", "labels", ""),
        (lambda n: {"text": f"some words {n}", "label": ("a,b", "a")[n % 2]}, *_CLASS, "--kind multi_label"),
        (lambda n: {"text": f"some words {n}", "Class Index": n % 4 + 1}, "classification", "Class Index", ""),
        (lambda n: {"text": f"some words {n}", "at": "ab"[n % 2], "my_score": n / 7}, "regression", "my_score", ""),
        (lambda n: {"text": f"some words {n}", "vector": [n / 7, n / 9]}, None, None, "vector"),
        (
            lambda n: {"satz": f"some words {n}", "x": ("Yes", "No")[n % 2], "y": ("Yes", "No")[n % 3 // 2]},
            *_FLAGS,
            "--label x",
        ),
        (
            lambda n: {"satz": f"some words {n}", "x": ("ja", "nein")[n % 2], "y": ("ja", "nein")[n % 3 // 2]},
            "classification",
            "x",
            "columns of 0 and 1",
        ),
        (lambda n: {"text": f"some words {n}", "label": f"{n % 5}/5"}, *_CLASS, ""),
        (lambda n: {"text": f"some words {n}", "label": f"{n % 5} stars"}, *_CLASS, ""),
        (
            lambda n: {"text": f"some words {n}", "label": f"3.{n % 3 + 9}"},
            *_NUMBER,
            "--kind classification",
        ),
    ],
)
def test_what_stands_beside_a_label_or_in_few_records_is_seen(
    tmp_path: Path, make: Callable[[int], dict[str, object]], head: str, label: str | None, told: str
) -> None:
    task, remarks, _ = choose_both(rows(tmp_path, make))
    assert (task.head, task.label_column) == (head, label)
    assert told in " ".join(remarks)


@pytest.mark.parametrize(
    ("beside", "named"),
    [
        ({"tags": "['B-PER', 'O', 'O']"}, "lists of words and of tags"),
        ({"ents": [{"begin": 0, "end": 3, "type": "PER"}]}, "character offsets"),
        ({"a": [{"label": ["P"], "points": [{"start": 0, "end": 2}]}]}, "character offsets"),
        ({"entities": [["PER", 0, 3]]}, "character spans"),
        ({"spans": {"start": [0], "end": [3], "label": ["PER"]}}, "character spans"),
        ({"questions": "who is it", "answers": ["Ada"]}, "SQuAD's JSON"),
        ({"price": "$1,012.50"}, "currency"),
        ({"w": ["Ada", "##bo"], "labels": [1, -100]}, "tags as numbers"),
        ({"sure": "12.5 %"}, "percent"),
        ({"price": "12.50 EUR"}, "currency"),
    ],
)
def test_what_no_task_reads_is_named(tmp_path: Path, beside: dict[str, object], named: str) -> None:
    with pytest.raises(InputError, match=named):
        choose(rows(tmp_path, lambda n: {"text": f"Ada saw it {n}", **beside}))
    assert choose(rows(tmp_path, lambda n: {"text": f"Ada saw it {n}", **beside}), kind="pretraining").head is None


@pytest.mark.parametrize("names", [("choice1", "choice2"), ("ending0", "ending1", "ending2"), ("A", "B", "C", "D")])
def test_choices_to_answer_with_are_no_classes(tmp_path: Path, names: tuple[str, ...]) -> None:
    make = {"question": "what is it {}", **dict.fromkeys(names, "it is {}")}
    path = rows(tmp_path, lambda n: {name: text.format(n) for name, text in make.items()} | {"label": n % len(names)})
    with pytest.raises(InputError, match=f"{', '.join(names)} .*multiple_choice"):
        choose(path)
    assert choose(path, kind="classification").label_column == "label"


def test_lists_of_labels_have_no_mark_between_them(tmp_path: Path) -> None:
    choice = choose_both(rows(tmp_path, lambda n: {"text": f"some words {n}", "label": ["a", "b"][: 1 + n % 2]}))
    assert (choice.task.head, choice.remarks) == ("multi_label", [])


def test_lists_where_texts_are_wanted_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'text' \(lists\)"):
        choose(rows(tmp_path, lambda n: {"text": ["some", "words"], "label": n % 2}))


def test_a_word_among_numbers_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'n/a' is not a number"):
        choose(rows(tmp_path, lambda n: {"satz": f"some words {n}", "score": n / 10 if n % 9 else "n/a"}))


def test_a_tag_of_one_sentence_alone_is_known_whichever_part_it_lies_in(tmp_path: Path) -> None:
    lines = [f"Ada\tNN\nran{n}\tX{n}\n\n" for n in range(40)]
    path = write(tmp_path / "a.conll", "".join(lines))
    task = load_task(
        TaskSpec(id="a", head="token_classification", files={"train": str(path)}, split={"validation": 0.2})
    )
    assert len(task.labels) == 41
    assert len(task.examples("validation")) == 8


@pytest.mark.parametrize(
    ("values", "head"),
    [
        (("3,5", "4", "4,5", "4,8"), "regression"),
        (("1.333", "1.667", "2", "2.333"), "regression"),
        (("\N{MINUS SIGN}1", "0", "1"), "classification"),
        (("Inf", "Fin", "Part"), "classification"),
        (("R&D", "Sales/Marketing", "18-24", "C++"), "classification"),
        (("strongly agree", "agree", "disagree", "strongly disagree"), "classification"),
    ],
)
def test_ordinary_labels_are_no_signs_of_something_else(tmp_path: Path, values: Sequence[str], head: str) -> None:
    path = rows(tmp_path, lambda n: {"satz": f"some words {n}", "label": values[n % len(values)]})
    task = choose_both(path)[0]
    assert task.head == head
    assert len(inspect_table(str(path)).column("label").distinct) == len(values)
