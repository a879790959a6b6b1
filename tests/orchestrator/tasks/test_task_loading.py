"""From a task's spec to a task: known and own layouts, labels, splits, and what is said when something is amiss.

Alone: pytest tests/orchestrator/tasks/test_task_loading.py
"""

import gzip
import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import OrchestratorError, SpecError, TaskDataError
from orchestrator.specs import TaskSpec
from orchestrator.tasks import TabularColumns, Task, load_task
from orchestrator.tasks.tabular_columns import CategoricalColumn, NumericalColumn
from orchestrator.tasks.types.multiple_choice import MultipleChoiceExample

SST2 = "sentence\tlabel\ngood \t1\nbad \t0\nfine \t1\n"


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


def load(**fields: Any) -> Task:
    return load_task(TaskSpec(**fields))


def squad_json(*answers: list[dict[str, Any]]) -> str:
    qas = [{"id": str(i), "question": "Who?", "answers": found} for i, found in enumerate(answers)]
    return json.dumps({"data": [{"paragraphs": [{"context": "Ada wrote it.", "qas": qas}]}]})


def test_a_known_task_finds_its_files_compressed_or_not(tmp_path: Path) -> None:
    write(tmp_path, train__tsv=SST2)
    (tmp_path / "dev.tsv.gz").write_bytes(gzip.compress(SST2.encode()))
    task = load(id="sst2", folder=str(tmp_path))
    assert (task.head, task.labels, task.metric) == ("classification", ("negative", "positive"), "accuracy")
    assert task.splits == ("train", "validation")
    assert [example.label for example in task.examples("validation")] == ["positive", "negative", "positive"]


def test_an_unlabeled_test_file_is_no_split_and_a_labeled_one_is(tmp_path: Path) -> None:
    write(tmp_path, train__tsv=SST2, dev__tsv=SST2, test__tsv="index\tsentence\n0\tgood\n")
    assert load(id="sst2", folder=str(tmp_path)).splits == ("train", "validation")
    write(tmp_path, test__tsv=SST2)
    assert load(id="sst2", folder=str(tmp_path)).splits == ("train", "validation", "test")


def test_an_unlabeled_test_file_without_a_header_is_no_split(tmp_path: Path) -> None:
    row = "gj04\t1\t\tWe go.\n"
    write(tmp_path, train__tsv=row, dev__tsv=row, test__tsv="index\tsentence\n0\tWe go.\n")
    task = load(id="cola", folder=str(tmp_path))
    assert task.splits == ("train", "validation")
    assert task.examples("train")[0].label == "acceptable"


def test_files_stand_before_those_of_the_folder(tmp_path: Path) -> None:
    write(tmp_path, train__tsv=SST2, dev__tsv=SST2, mine__tsv="sentence\tlabel\nmine\t1\n")
    task = load(id="sst2", folder=str(tmp_path), files={"validation": str(tmp_path / "mine.tsv")})
    assert [example.text for example in task.examples("validation")] == ["mine"]


def test_the_first_so_many_examples_are_read(tmp_path: Path) -> None:
    write(tmp_path, train__tsv=SST2, dev__tsv=SST2)
    task = load(id="sst2", folder=str(tmp_path), max_train_examples=2, max_validation_examples=1)
    assert [len(task.examples(split)) for split in task.splits] == [2, 1]


def test_broken_records_are_counted_when_skipped(tmp_path: Path) -> None:
    write(tmp_path, dev__tsv=SST2 + "what\t7\n")
    task = load(id="sst2", folder=str(tmp_path), on_bad_record="skip")
    assert (len(task.examples("validation")), task.read("validation").num_bad_records) == (3, 1)
    with pytest.raises(TaskDataError, match=r"dev\.tsv, line 5: label '7' is none of the labels 0, 1"):
        load(id="sst2", folder=str(tmp_path)).examples("validation")


def test_a_split_without_an_example_is_named(tmp_path: Path) -> None:
    write(tmp_path, dev__tsv="sentence\tlabel\nwhat\t\n")
    with pytest.raises(TaskDataError, match=r"dev\.tsv gives no example for task sst2: 1 record was left out"):
        load(id="sst2", folder=str(tmp_path), on_bad_record="skip").examples("validation")


def test_a_file_of_a_header_alone_has_no_record(tmp_path: Path) -> None:
    write(tmp_path, dev__tsv="sentence\tlabel\n")
    with pytest.raises(TaskDataError, match=r"dev\.tsv gives no example for task sst2: it has no record"):
        load(id="sst2", folder=str(tmp_path)).examples("validation")


def test_own_labels_are_those_of_the_whole_training_split_sorted(tmp_path: Path) -> None:
    write(tmp_path, a__csv="text,label\nx,red\ny,blue\nz,amber\n", b__csv="text,label\nx,red\n")
    files = {"train": str(tmp_path / "a.csv"), "validation": str(tmp_path / "b.csv")}
    spec = {"id": "mine", "head": "classification", "files": files, "text_columns": ("text",)}
    assert load(**spec, max_train_examples=1).labels == ("amber", "blue", "red")
    with pytest.raises(TaskDataError, match=r"a\.csv, line 3: label 'blue' is none of the labels red, amber"):
        load(**spec, labels=("red", "amber")).examples("train")


@pytest.mark.parametrize("policy", ["error", "skip"])
def test_a_file_with_other_labels_throughout_is_told_with_both_lists(policy: str, tmp_path: Path) -> None:
    write(tmp_path, a__csv="text,label\nx,1\ny,0\n")
    files = {"train": str(tmp_path / "a.csv"), "validation": str(tmp_path / "a.csv")}
    spec = {"id": "mine", "head": "classification", "files": files, "text_columns": ("text",), "on_bad_record": policy}
    with pytest.raises(
        TaskDataError, match=r"none of its labels .* 'label' has '0', '1'; .* are 'bad', 'good'\. Write"
    ):
        load(**spec, labels=("bad", "good")).examples("train")


@pytest.mark.parametrize("head", ["classification", "regression", "embedding"])
def test_conll_columns_are_no_table_of_texts(head: str, tmp_path: Path) -> None:
    write(tmp_path, a__conll="Ada B-PER\n")
    files = {"train": str(tmp_path / "a.conll"), "validation": str(tmp_path / "a.conll")}
    with pytest.raises(TaskDataError, match=f"has CoNLL columns by its name, and a {head} task reads tables"):
        load(id="mine", head=head, files=files, text_columns=("text", "next"))


SWAG = ",video-id,startphrase,sent1,sent2,ending0,ending1,ending2,ending3,label\n"
SWAG_ROW = '0,v,It rains. She,It rains.,She,swims.,"runs, fast.",eats.,sleeps.'


def test_swag_reads_its_official_files(tmp_path: Path) -> None:
    write(tmp_path, train__csv=SWAG + SWAG_ROW + ",1\n", val__csv=SWAG + SWAG_ROW + ",3\n")
    write(tmp_path, test__csv=SWAG.replace(",label", "") + SWAG_ROW + "\n")
    task = load(id="swag", folder=str(tmp_path))
    assert (task.head, task.metric, task.splits) == ("multiple_choice", "accuracy", ("train", "validation"))
    (example,) = task.examples("train")
    assert isinstance(example, MultipleChoiceExample)
    assert (example.text, example.choices[1], example.label) == ("It rains.", "She runs, fast.", 1)


def test_own_labels_are_collected_from_every_row(tmp_path: Path) -> None:
    write(tmp_path, a__csv="text,label\nx,red;blue\ny,\nz,amber\n")
    files = {"train": str(tmp_path / "a.csv"), "validation": str(tmp_path / "a.csv")}
    task = load(id="mine", head="multi_label", files=files, text_columns=("text",), label_separator=";")
    assert (task.labels, task.metric) == (("amber", "blue", "red"), "micro_f1")


def test_own_columns_are_learnt_from_the_whole_training_split(tmp_path: Path) -> None:
    write(tmp_path, a__csv="text,label,size,color\nx,1,2,red\ny,2,4,blue\n", b__csv="text,label,size,color\nz,3,,\n")
    spec = {"id": "mine", "head": "regression", "text_columns": ("text",), "max_train_examples": 1}
    spec |= {"numerical_columns": ("size",), "categorical_columns": ("color",)}
    files = {"train": str(tmp_path / "a.csv"), "validation": str(tmp_path / "b.csv")}
    task = load(**spec, files=files)
    assert task.columns == TabularColumns(
        (NumericalColumn("size", 3.0, 1.0),), (CategoricalColumn("color", ("blue", "red")),)
    )
    write(tmp_path, a__csv="text,label,size,color\nx,1,2,red\ny,2,4,green\n")
    assert load(**spec, files=files).fingerprint("validation") != task.fingerprint("validation")
    assert load(**spec, files={"validation": files["validation"]}).columns.names == ("size", "color")


def test_own_ner_labels_are_completed(tmp_path: Path) -> None:
    write(tmp_path, a__conll="Ada I-PER\nran O\n")
    task = load(
        id="mine", head="ner", files={"train": str(tmp_path / "a.conll"), "validation": str(tmp_path / "a.conll")}
    )
    assert (task.labels, task.metric) == (("O", "B-PER", "I-PER"), "f1")


def test_own_ner_tables_name_their_columns(tmp_path: Path) -> None:
    write(tmp_path, a__jsonl='{"tokens": ["Ada"], "tags": ["B-PER"], "words": ["Bob"], "label": ["O"]}\n')
    spec = {"id": "mine", "head": "ner", "files": {"validation": str(tmp_path / "a.jsonl")}, "labels": ("O", "B-PER")}
    assert load(**spec).examples("validation")[0].words == ("Ada",)
    other = load(**spec, text_columns=("words",), label_column="label").examples("validation")[0]
    assert (other.words, other.tags) == (("Bob",), ("O",))


def test_own_questions_tell_whether_some_have_no_answer(tmp_path: Path) -> None:
    answer = [{"text": "Ada", "answer_start": 0}]
    write(tmp_path, a__json=squad_json(answer), b__json=squad_json(answer, []))
    for name, unanswerable in (("a.json", False), ("b.json", True)):
        task = load(id="mine", head="qa", files={"validation": str(tmp_path / name)})
        assert (task.unanswerable, task.metric) == (unanswerable, "f1")


def test_own_regression_reads_its_columns(tmp_path: Path) -> None:
    write(tmp_path, a__tsv="left\tright\tscore\na\tb\t0.5\n")
    files = {"validation": str(tmp_path / "a.tsv")}
    task = load(id="mine", head="regression", files=files, text_columns=("left", "right"), label_column="score")
    assert (task.examples("validation")[0].value, task.metric, task.labels) == (0.5, "pearson", ())


def test_a_pickled_task_leaves_its_examples_behind(tmp_path: Path) -> None:
    write(tmp_path, dev__tsv=SST2)
    task = load(id="sst2", folder=str(tmp_path))
    before = len(pickle.dumps(task))
    examples = task.examples("validation")
    assert len(pickle.dumps(task)) == before
    assert pickle.loads(pickle.dumps(task)).examples("validation") == examples
    assert task.examples("validation") is examples


def test_a_spec_that_was_written_out_in_full_loads_as_well(tmp_path: Path) -> None:
    write(tmp_path, dev__tsv=SST2)
    spec = TaskSpec(id="sst2", folder=str(tmp_path))
    assert load(**spec.model_dump()) == load_task(spec)


def test_a_fingerprint_follows_the_file_and_how_it_is_read(tmp_path: Path) -> None:
    write(tmp_path, dev__tsv=SST2)
    spec: dict[str, Any] = {"id": "sst2", "folder": str(tmp_path)}
    first = load(**spec).fingerprint("validation")
    assert load(**spec).fingerprint("validation") == first
    assert load(**spec, max_validation_examples=2).fingerprint("validation") != first
    assert load(**spec, on_bad_record="skip").fingerprint("validation") != first
    assert load(**spec, max_train_examples=2).fingerprint("validation") == first
    write(tmp_path, dev__tsv=SST2 + "more\t1\n")
    assert load(**spec).fingerprint("validation") != first


def test_the_digests_of_a_part_lead_to_the_whole_and_to_the_file(tmp_path: Path) -> None:
    write(tmp_path, dev__tsv=SST2)
    spec: dict[str, Any] = {"id": "sst2", "folder": str(tmp_path)}
    whole, part, other_part, tolerant = (
        load(**spec, **limits).digests("validation")
        for limits in ({}, {"max_validation_examples": 2}, {"max_validation_examples": 1}, {"on_bad_record": "skip"})
    )
    assert whole.taken == whole.whole == load(**spec).fingerprint("validation")
    assert part.taken == load(**spec, max_validation_examples=2).fingerprint("validation")
    assert part.whole == other_part.whole == whole.taken
    assert len({whole.taken, part.taken, other_part.taken, tolerant.taken}) == 4
    assert tolerant.whole == tolerant.taken, "another reading may leave other examples out"
    assert whole.file == part.file == tolerant.file == hashlib.sha256((tmp_path / "dev.tsv").read_bytes()).hexdigest()


AMISS: dict[str, tuple[dict[str, Any], type[OrchestratorError], str]] = {
    "empty folder": (
        {"id": "rte", "folder": "{tmp}/none"},
        TaskDataError,
        r"none of its files is in .*train\.tsv or dev",
    ),
    "no folder": ({"id": "rte"}, TaskDataError, r"set task\.folder .*folder=DIR to evaluate .*train\.tsv or"),
    "no validation": (
        {"id": "sst2", "folder": "{tmp}/only_train"},
        TaskDataError,
        r"training split and no validation split \(dev\.tsv in .*\); give a labeled file as task\.files\.validation",
    ),
    "missing file": ({"id": "sst2", "files": {"test": "{tmp}/gone"}}, TaskDataError, r"files\.test: there is no file"),
    "known head": ({"id": "sst2", "folder": "{tmp}", "head": "ner"}, SpecError, r"task\.head: sst2 is a known task"),
    "known labels": ({"id": "sst2", "folder": "{tmp}", "labels": ("a", "b")}, SpecError, r"task\.labels: sst2"),
    "known columns": (
        {"id": "sst2", "folder": "{tmp}", "numerical_columns": ("a",)},
        SpecError,
        r"task\.numerical_columns: sst2 is a known task",
    ),
    "columns of a ner task": (
        {"id": "mine", "head": "ner", "files": {"validation": "{tmp}/a.csv"}, "categorical_columns": ("a",)},
        SpecError,
        r"task\.categorical_columns: .* head: ner has no use .* classification and multi_label and regression",
    ),
    "one choice": (
        {
            "id": "mine",
            "head": "multiple_choice",
            "files": {"validation": "{tmp}/a.csv"},
            "text_columns": ("text",),
            "choice_columns": ("label",),
        },
        SpecError,
        r"task\.choice_columns: name the two or more",
    ),
    "no such column": (
        {
            "id": "mine",
            "head": "regression",
            "files": {"train": "{tmp}/a.csv", "validation": "{tmp}/a.csv"},
            "text_columns": ("text",),
            "numerical_columns": ("size",),
        },
        TaskDataError,
        r"a\.csv has no column 'size', it has 'text', 'label'; name others with .* the field that named it",
    ),
    "typing error": ({"id": "sst-2", "folder": "{tmp}"}, SpecError, "no known task .*did you mean sst2"),
    "no head": ({"id": "mine", "files": {"train": "{tmp}/a.csv"}}, SpecError, r"needs task\.head and task\.files"),
    "no text": (
        {"id": "mine", "head": "classification", "files": {"validation": "{tmp}/a.csv"}},
        SpecError,
        r"task\.text_columns: name",
    ),
    "no labels": (
        {"id": "mine", "head": "classification", "files": {"validation": "{tmp}/a.csv"}, "text_columns": ("text",)},
        SpecError,
        r"task\.labels: task mine has no training split to learn its labels from",
    ),
    "one label": (
        {
            "id": "mine",
            "head": "classification",
            "files": {"validation": "{tmp}/a.csv"},
            "text_columns": ("text",),
            "labels": ("a", "a"),
        },
        SpecError,
        "at least two labels, each once",
    ),
    "one label in the file": (
        {
            "id": "mine",
            "head": "classification",
            "files": {"train": "{tmp}/a.csv", "validation": "{tmp}/a.csv"},
            "text_columns": ("text",),
        },
        TaskDataError,
        r"the training split has one label only \(a\); a classifier needs two",
    ),
    "no tags": (
        {"id": "mine", "head": "ner", "files": {"validation": "{tmp}/a.csv"}, "labels": ("O", "PER")},
        SpecError,
        "labels are O, and B-type and I-type",
    ),
    "metric": (
        {"id": "sst2", "files": {"validation": "{tmp}/a.csv"}, "metric": "f1"},
        SpecError,
        "task.metric 'f1': task sst2 has the scores accuracy",
    ),
}


@pytest.mark.parametrize("case", AMISS)
def test_what_is_amiss_is_named_with_its_remedy(tmp_path: Path, case: str) -> None:
    (tmp_path / "only_train").mkdir()
    write(tmp_path / "only_train", train__tsv=SST2)
    write(tmp_path, a__csv="text,label\nx,a\n")
    fields, error, message = AMISS[case]
    with pytest.raises(error, match=message):
        load(**json.loads(json.dumps(fields).replace("{tmp}", str(tmp_path))))


def test_a_split_that_is_not_there_is_named(tmp_path: Path) -> None:
    write(tmp_path, dev__tsv=SST2)
    with pytest.raises(
        TaskDataError, match=r"task sst2 has no labeled test split, only validation; .*task\.files\.test"
    ):
        load(id="sst2", folder=str(tmp_path)).examples("test")


@pytest.mark.parametrize(
    ("head", "reads"), [("ner", "is a CSV table, and a ner task reads CoNLL"), ("qa", "a qa task reads SQuAD's JSON")]
)
def test_a_table_for_another_kind_of_task_is_told_what_that_reads(tmp_path: Path, head: str, reads: str) -> None:
    path = str(write(tmp_path, a__csv="text,label\ngood,yes\n") / "a.csv")
    with pytest.raises(TaskDataError, match=reads):
        load(id="own", head=head, files={"train": path, "validation": path})
