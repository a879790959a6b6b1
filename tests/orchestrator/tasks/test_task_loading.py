"""Loading of tasks: from a spec to labels and splits. Alone: pytest tests/orchestrator/tasks/test_task_loading.py"""

import gzip
import hashlib
import json
import pickle
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bert_core.text.characters import plain_text
from orchestrator.base.errors import OrchestratorError, SpecError, TaskDataError
from orchestrator.specs import TaskSpec
from orchestrator.storage.hub import pin
from orchestrator.tasks.catalogue import KNOWN_TASKS, ON_HUB
from orchestrator.tasks.loading import count_leaks, load_task
from orchestrator.tasks.task import Task
from orchestrator.tasks.text_examples import CategoricalColumn, NumericalColumn, TabularColumns
from orchestrator.tasks.types.multiple_choice import MultipleChoiceExample
from tests.hub_server import serving_hub
from tests.orchestrator.drafting.made_files import write_questions
from tests.shared_data import shared_file

SST2 = "sentence\tlabel\ngood \t1\nbad \t0\nfine \t1\n"


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return folder


def load(**fields: Any) -> Task:
    return load_task(TaskSpec(**fields))


def own(path: Path, head: str = "classification", **fields: Any) -> Task:
    """A task of one's own with one file for two splits; its texts are in the column `text`."""
    files = {"train": str(path), "validation": str(path)}
    return load(**{"id": "mine", "head": head, "files": files, "text_columns": ("text",), **fields})


def squad_json(*answers: list[dict[str, Any]]) -> str:
    qas = [{"id": str(i), "question": "Who?", "answers": found} for i, found in enumerate(answers)]
    return json.dumps({"data": [{"paragraphs": [{"context": "Ada wrote it.", "qas": qas}]}]})


def test_a_known_task_without_a_folder_comes_from_the_hub_at_a_commit(tmp_path: Path) -> None:
    pairs = {"sentence1": ["a", "b"], "sentence2": ["c", "d"]}
    with serving_hub(tmp_path) as hub:
        hub.commit_task("sst2", sentence=["good ", "bad"], label=[1, 0])
        hub.commit_task("mnli", premise=["a", "b"], hypothesis=["c", "d"], label=[2, 0])
        hub.commit_task("rte", **pairs, label=["entailment", "not_entailment"])
        hub.commit_task("stsb", **pairs, label=[2.5, 5.0])
        hub.commit_task("conll2003", tokens=[["EU", "rejects"], ["it"]], ner_tags=[[3, 0], [0]])
        labels = {
            name: [example.label for example in load(id=name).examples("train")] for name in ("sst2", "mnli", "rte")
        }
        assert labels["sst2"] == ["positive", "negative"]
        assert labels["mnli"] == ["contradiction", "entailment"]
        assert labels["rte"] == ["entailment", "not_entailment"]
        assert load(id="sst2").labels == ("negative", "positive")
        assert [example.label for example in load(id="stsb").examples("validation")] == [2.5, 5.0]
        assert [example.tags for example in load(id="conll2003").examples("test")] == [("B-ORG", "O"), ("O",)]
        assert load(id="sst2").splits == ("train", "validation")


def test_the_hubs_files_of_known_tasks_never_change() -> None:
    assert ON_HUB.keys() < KNOWN_TASKS.keys()
    for uri in (uri for known in ON_HUB.values() for uri in known.files.values()):
        assert pin(uri) == uri, "no network is asked"


def test_a_known_task_finds_its_files_compressed_or_not(tmp_path: Path) -> None:
    write(tmp_path, train__tsv=SST2)
    (tmp_path / "dev.tsv.gz").write_bytes(gzip.compress(SST2.encode()))
    task = load(id="sst2", folder=str(tmp_path))
    assert (task.head, task.labels, task.metric) == ("classification", ("negative", "positive"), "accuracy")
    assert task.splits == ("train", "validation")
    assert [example.label for example in task.examples("validation")] == ["positive", "negative", "positive"]


@pytest.mark.parametrize(("name", "labeled"), [("sst2", SST2), ("cola", "gj04\t1\t\tWe go.\n")])
def test_an_unlabeled_test_file_is_no_split_and_a_labeled_one_is(tmp_path: Path, name: str, labeled: str) -> None:
    write(tmp_path, train__tsv=labeled, dev__tsv=labeled, test__tsv="index\tsentence\n0\tgood\n")
    assert load(id=name, folder=str(tmp_path)).splits == ("train", "validation")
    write(tmp_path, test__tsv=labeled)
    task = load(id=name, folder=str(tmp_path))
    assert task.splits == ("train", "validation", "test")
    assert task.examples("train")[0].label in ("acceptable", "positive")


def test_files_stand_before_those_of_the_folder(tmp_path: Path) -> None:
    write(tmp_path, train__tsv=SST2, dev__tsv=SST2, mine__tsv="sentence\tlabel\nmine\t1\n")
    task = load(id="sst2", folder=str(tmp_path), files={"validation": str(tmp_path / "mine.tsv")})
    assert [example.text for example in task.examples("validation")] == ["mine"]


def test_the_first_so_many_examples_are_read_and_a_split_that_is_not_there_is_named(tmp_path: Path) -> None:
    write(tmp_path, train__tsv=SST2, dev__tsv=SST2)
    task = load(id="sst2", folder=str(tmp_path), max_train_examples=2, max_validation_examples=1)
    assert [len(task.examples(split)) for split in task.splits] == [2, 1]
    with pytest.raises(TaskDataError, match=r"task\.files\.test"):
        task.examples("test")


def test_broken_records_are_counted_when_skipped_and_a_split_without_an_example_is_named(tmp_path: Path) -> None:
    write(tmp_path, dev__tsv=SST2 + "what\t7\n")
    task = load(id="sst2", folder=str(tmp_path), on_bad_record="skip")
    assert (len(task.examples("validation")), task.read("validation").bad.count) == (3, 1)
    with pytest.raises(TaskDataError, match=r"dev\.tsv, line 5: label '7' is none of the labels 0, 1"):
        load(id="sst2", folder=str(tmp_path)).examples("validation")
    write(tmp_path, dev__tsv="sentence\tlabel\nwhat\t\n")
    with pytest.raises(TaskDataError, match=r"dev\.tsv.* 1 row without a label"):
        load(id="sst2", folder=str(tmp_path), on_bad_record="skip").examples("validation")


def test_own_labels_are_those_of_the_whole_training_split_sorted(tmp_path: Path) -> None:
    write(tmp_path, a__csv="text,label\nx,red\ny,blue\nz,amber\n", b__csv="text,label\nx,red\n")
    files = {"train": str(tmp_path / "a.csv"), "validation": str(tmp_path / "b.csv")}
    assert own(tmp_path, files=files, max_train_examples=1).labels == ("amber", "blue", "red")
    with pytest.raises(TaskDataError, match=r"a\.csv, line 3: label 'blue' is none of the labels red, amber"):
        own(tmp_path, files=files, labels=("red", "amber")).examples("train")


@pytest.mark.parametrize("policy", ["error", "skip"])
def test_a_file_with_other_labels_throughout_is_told_with_the_first(policy: str, tmp_path: Path) -> None:
    path = write(tmp_path, a__csv="text,label\nx,1\ny,0\n") / "a.csv"
    with pytest.raises(TaskDataError, match=r"a\.csv.*line 2: label '1' is none of the labels bad, good"):
        own(path, on_bad_record=policy, labels=("bad", "good")).examples("train")


SWAG = ",video-id,startphrase,sent1,sent2,ending0,ending1,ending2,ending3,label\n"
SWAG_ROW = '0,v,It rains. She,It rains.,She,swims.,"runs, fast.",eats.,sleeps.'


def test_swag_reads_its_official_files(tmp_path: Path) -> None:
    write(tmp_path, train__csv=SWAG + SWAG_ROW + ",1\n", val__csv=SWAG + SWAG_ROW + ",3\n")
    write(tmp_path, test__csv=SWAG.replace(",label", "") + SWAG_ROW + "\n")
    task = load(id="swag", folder=str(tmp_path))
    assert (task.head, task.metric, task.splits) == ("multiple_choice", "accuracy", ("train", "validation"))
    (example,) = task.examples("train")
    assert isinstance(example, MultipleChoiceExample)
    assert (example.text, example.choices[1], example.choice) == ("It rains.", "She runs, fast.", 1)


def test_own_labels_are_collected_from_every_row(tmp_path: Path) -> None:
    path = write(tmp_path, a__csv="text,label\nx,red;blue\ny,\nz,amber\n") / "a.csv"
    task = own(path, "multi_label", label_separator=";")
    assert (task.labels, task.metric) == (("amber", "blue", "red"), "micro_f1")


def test_own_columns_are_learnt_from_the_whole_training_split(tmp_path: Path) -> None:
    write(tmp_path, a__csv="text,label,size,color\nx,1,2,red\ny,2,4,blue\n", b__csv="text,label,size,color\nz,3,,\n")
    own_columns = {"numerical_columns": ("size",), "categorical_columns": ("color",), "max_train_examples": 1}
    files = {"train": str(tmp_path / "a.csv"), "validation": str(tmp_path / "b.csv")}
    task = own(tmp_path, "regression", files=files, **own_columns)
    assert task.columns == TabularColumns(
        (NumericalColumn("size", 3.0, 1.0),), (CategoricalColumn("color", ("blue", "red")),)
    )
    write(tmp_path, a__csv="text,label,size,color\nx,1,2,red\ny,2,4,green\n")
    again = own(tmp_path, "regression", files=files, **own_columns)
    assert again.fingerprint("validation") != task.fingerprint("validation")
    alone = own(tmp_path, "regression", files={"validation": files["validation"]}, **own_columns)
    assert alone.columns.names == ("size", "color")


def test_a_column_for_each_label_gives_the_labels_in_its_order(tmp_path: Path) -> None:
    path = write(tmp_path, a__csv="text,rude,loud,odd\nx,1,0,0\ny,0,1,0\n") / "a.csv"
    columns = ("rude", "odd", "loud")
    assert own(path, "multi_label", label_columns=columns).labels == columns
    assert own(path, "multi_label", label_columns=columns, labels=columns).labels == columns
    for other in ({"label_column": "rude"}, {"labels": ("rude", "loud")}):
        with pytest.raises(SpecError, match=rf"task\.{next(iter(other))}.*task\.label_columns"):
            own(path, "multi_label", label_columns=columns, **other)


def test_a_test_file_whose_labels_were_kept_back_is_no_split(tmp_path: Path) -> None:
    write(tmp_path, a__csv="text,label\nx,0\ny,1\n", b__csv="text,label\nx,-1\ny,-1\n")
    a, b = str(tmp_path / "a.csv"), str(tmp_path / "b.csv")
    assert own(tmp_path, files={"train": a, "validation": a, "test": b}).splits == ("train", "validation")
    assert own(tmp_path, files={"train": a, "validation": a, "test": a}).splits == ("train", "validation", "test")
    with pytest.raises(TaskDataError, match=r"b\.csv.* 2 rows without a label"):
        own(tmp_path, files={"train": a, "validation": b}).examples("validation")


def test_a_scheme_of_tags_that_becomes_bio_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path, a__conll="Ann S-PER\nruns O\n") / "a.conll"
    with caplog.at_level("INFO"):
        task = own(path, "ner", text_columns=())
    assert (task.labels, task.metric) == (("O", "B-PER", "I-PER"), "f1")
    assert [str(path) in message and "BIOES" in message for message in caplog.messages] == [True]


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


OWN: dict[str, Any] = {"id": "mine", "head": "classification", "files": {"validation": "{tmp}/a.csv"}}
TEXTS: dict[str, Any] = {**OWN, "text_columns": ("text",)}
BOTH: dict[str, Any] = {**TEXTS, "files": {"train": "{tmp}/a.csv", "validation": "{tmp}/a.csv"}}
SST2_HERE: dict[str, Any] = {"id": "sst2", "folder": "{tmp}"}
AMISS: dict[str, tuple[dict[str, Any], type[OrchestratorError], str]] = {
    "empty folder": ({"id": "rte", "folder": "{tmp}/none"}, TaskDataError, r"train\.tsv"),
    "no folder": ({"id": "rte"}, TaskDataError, r"task\.folder"),
    "no validation": ({"id": "sst2", "folder": "{tmp}/only_train"}, TaskDataError, r"task\.files\.validation"),
    "missing file": ({"id": "sst2", "files": {"test": "{tmp}/gone"}}, TaskDataError, r"files\.test"),
    "known head": ({**SST2_HERE, "head": "ner"}, SpecError, r"task\.head"),
    "known labels": ({**SST2_HERE, "labels": ("a", "b")}, SpecError, r"task\.labels"),
    "known columns": ({**SST2_HERE, "numerical_columns": ("a",)}, SpecError, r"task\.numerical_columns"),
    "one choice": ({**TEXTS, "head": "multiple_choice", "choice_columns": ("label",)}, SpecError, "choice_columns"),
    "no such column": ({**BOTH, "head": "regression", "numerical_columns": ("size",)}, TaskDataError, "'size'"),
    "typing error": ({"id": "sst-2", "folder": "{tmp}"}, SpecError, "did you mean sst2"),
    "no head": ({"id": "mine", "files": {"train": "{tmp}/a.csv"}}, SpecError, r"task\.head"),
    "no text": (OWN, SpecError, r"task\.text_columns"),
    "no labels": (TEXTS, SpecError, r"task\.labels"),
    "one label": ({**TEXTS, "labels": ("a", "a")}, SpecError, "labels"),
    "one label in the file": (BOTH, TaskDataError, r"\(a\)"),
    "no tags": ({**OWN, "head": "ner", "labels": ("O", "PER")}, SpecError, "labels"),
    "metric": ({"id": "sst2", "files": {"validation": "{tmp}/a.csv"}, "metric": "f1"}, SpecError, r"task\.metric 'f1'"),
}


@pytest.mark.parametrize("case", AMISS)
def test_what_is_amiss_is_named(tmp_path: Path, case: str) -> None:
    (tmp_path / "only_train").mkdir()
    write(tmp_path / "only_train", train__tsv=SST2)
    write(tmp_path, a__csv="text,label\nx,a\n")
    fields, error, message = AMISS[case]
    with pytest.raises(error, match=message):
        load(**json.loads(json.dumps(fields).replace("{tmp}", str(tmp_path))))


OTHERS = {"ner": ("a.csv", "CoNLL"), "qa": ("a.csv", "context")}
OTHERS |= {head: ("a.conll", f"CoNLL.*{head}") for head in ("classification", "embedding")}


@pytest.mark.parametrize("head", OTHERS)
def test_a_file_for_another_kind_of_task_is_told(tmp_path: Path, head: str) -> None:
    name, reads = OTHERS[head]
    path = write(tmp_path, a__csv="text,label\ngood,yes\n", a__conll="Ada B-PER\n") / name
    fields = {"objective": "cosine"} if head == "embedding" else {}
    with pytest.raises(TaskDataError, match=reads):
        own(path, head, text_columns=("text", "next") if name == "a.conll" else (), **fields)


COUNTS = {
    "sst2": ("glue/SST-2", {"train": 67349, "validation": 872}),
    "mrpc": ("glue/MRPC", {"train": 3668, "validation": 408}),
    "stsb": ("glue/STS-B", {"train": 5749, "validation": 1500}),
    "wnli": ("glue/WNLI", {"train": 635, "validation": 71}),
    "qnli": ("glue/QNLI", {"validation": 5463}),
    "qqp": ("glue/QQP-subset", {"train": 20496, "validation": 3000}),
    "conll2003": ("ner/conll2003", {"train": 14041, "validation": 3250, "test": 3453}),
    "wnut17": ("ner/wnut17", {"train": 3394, "validation": 1009, "test": 1287}),
    "squad": ("squad", {"train": 87599, "validation": 10570}),
}


@pytest.mark.parametrize("task_id", COUNTS)
@pytest.mark.heavy
def test_official_counts_are_read_without_a_broken_record(task_id: str) -> None:
    folder, expected = COUNTS[task_id]
    task = load(id=task_id, folder=str(shared_file(folder)))
    reads = {split: task.read(split) for split in task.splits}
    assert {split: len(read.examples) for split, read in reads.items()} == expected
    assert {(read.bad.count, read.bad.num_repaired) for read in reads.values()} == {(0, 0)}


def test_cola_is_read_without_a_header_and_mrpc_keeps_its_quotation_marks() -> None:
    train = str(shared_file("glue/CoLA/train.tsv.gz"))
    examples = load(id="cola", files={"train": train, "validation": train}).examples("train")
    assert len(examples) == 8551
    assert examples[0].text == "Our friends won't buy this analysis, let alone the next one we propose."
    examples = load(id="mrpc", folder=str(shared_file("glue/MRPC"))).examples("train")
    assert '"the witness"' in examples[0].text
    assert Counter(example.label for example in examples) == {"equivalent": 2474, "not_equivalent": 1194}


def test_conll2003_has_its_published_numbers_of_documents_and_entities() -> None:
    task = load(id="conll2003", folder=str(shared_file("ner/conll2003")))
    documents = {split: {example.document for example in task.examples(split)} for split in task.splits}
    expected = {"train": 946, "validation": 216, "test": 231}
    assert documents == {split: set(range(count)) for split, count in expected.items()}
    entities = Counter(tag[2:] for example in task.examples("test") for tag in example.tags if tag[0] == "B")
    assert entities == {"LOC": 1668, "MISC": 702, "ORG": 1661, "PER": 1617}


LABELED = [f"text {number}\t{'a' if number % 3 else 'b'}\n" for number in range(60)]
LABELED += ["TEXT  7\ta\n", "text 7\tb\n"]  # copies, which stay together
LABELED_TASK: dict[str, Any] = {"id": "own", "head": "classification", "text_columns": ("text",)}


def test_folds_deal_each_labels_texts_evenly_and_have_no_text_in_common(tmp_path: Path) -> None:
    write(tmp_path, train__tsv="text\tlabel\n" + "".join(LABELED), test__tsv="text\tlabel\nlast\ta\n")
    files = {split: str(tmp_path / f"{split}.tsv") for split in ("train", "test")}
    whole = load(**LABELED_TASK, files=files, split={"folds": 4})
    assert whole.splits == ("train", "validation", "test")
    assert whole.examples("train") == whole.examples("validation")
    assert not count_leaks(whole)
    parts = [replace(whole, fold=fold) for fold in range(4)]
    assert sorted(example.id for part in parts for example in part.examples("validation")) == sorted(
        example.id for example in whole.examples("train")
    )
    for part in parts:
        learned, scored = part.examples("train"), part.examples("validation")
        assert len(learned) + len(scored) == 62
        assert not {plain_text(example.text) for example in learned} & {plain_text(example.text) for example in scored}
        counts = Counter(example.label for example in scored)
        assert counts["a"] in (10, 11, 12)
        assert counts["b"] in (4, 5, 6)
        assert part.examples("test") == whole.examples("test")
        assert part.fingerprint("test") == whole.fingerprint("test")
        assert len(replace(part, train_fraction=0.5).examples("train")) < len(learned)
        assert pickle.loads(pickle.dumps(part)).examples("validation") == scored
    limited = load(**LABELED_TASK, files=files, split={"folds": 4}, max_train_examples=30).first_fold
    assert len(limited.examples("train")) + len(limited.examples("validation")) == 30
    tasks = [whole, *parts, limited]
    assert len({task.fingerprint(split) for task in tasks for split in ("train", "validation")}) == 2 * len(tasks)


def test_a_share_kept_for_validation_has_each_labels_part_and_no_text_of_training(tmp_path: Path) -> None:
    rows = [*LABELED, "alone\tc\n"]
    found = []
    for order in (rows, rows[::-1]):
        write(tmp_path, train__tsv="text\tlabel\n" + "".join(order))
        task = load(**LABELED_TASK, files={"train": str(tmp_path / "train.tsv")}, split={"validation": 0.2})
        learned, scored = task.examples("train"), task.examples("validation")
        assert len(learned) + len(scored) == len(rows)
        assert not {plain_text(example.text) for example in learned} & {plain_text(example.text) for example in scored}
        texts = {plain_text(example.text): example.label for example in scored}
        assert Counter(texts.values()) == {"a": 8, "b": 4}, "a label with one text stays in training"
        assert not count_leaks(task)
        assert task.fingerprint("train") != task.fingerprint("validation")
        found.append(texts.keys())
    assert found[0] == found[1], "the order of the rows decides nothing"


def test_all_of_labels_with_one_text_each_cannot_be_kept(tmp_path: Path) -> None:
    write(tmp_path, train__tsv="text\tlabel\n" + "one text\ta\n" * 9 + "another\tb\n" * 9)
    files = {"train": str(tmp_path / "train.tsv")}
    with pytest.raises(TaskDataError, match="each label stands beside one text only"):
        load(**LABELED_TASK, files=files, split={"validation": 0.2})


def test_questions_on_a_passage_are_kept_together(tmp_path: Path) -> None:
    path = write_questions(tmp_path / "a.json", 20)
    task = load(id="own", head="qa", files={"train": str(path)}, split={"validation": 0.2})
    passages = [{example.context for example in task.examples(split)} for split in ("train", "validation")]
    assert list(map(len, passages)) == [16, 4]
    assert not passages[0] & passages[1]


def test_folds_that_cannot_be_dealt_are_refused(tmp_path: Path) -> None:
    write(tmp_path, train__tsv="text\tlabel\nfine\ta\ndull\tb\n", dev__tsv="text\tlabel\nfine\ta\n")
    train, dev = (str(tmp_path / f"{split}.tsv") for split in ("train", "dev"))
    given = {**LABELED_TASK, "split": {"folds": 2}}
    with pytest.raises(SpecError, match=r"has a validation split, .*dev\.tsv; leave one out"):
        load(**given, files={"train": train, "validation": dev})
    with pytest.raises(TaskDataError, match="no training split to divide"):
        load(**given, files={"test": dev}, labels=("a", "b"))
    with pytest.raises(SpecError, match="says how many are for validation"):
        load(**given, files={"train": train}, max_validation_examples=1)
    with pytest.raises(TaskDataError, match=r"train\.tsv: nothing can be kept .* 3 folds, and it has 2 texts"):
        load(**{**given, "split": {"folds": 3}}, files={"train": train}).first_fold.examples("train")


def test_a_share_of_the_training_examples_has_its_part_of_each_label_and_lies_within_a_larger_one(
    tmp_path: Path,
) -> None:
    labels = ["a"] * 70 + ["b"] * 25 + ["c"] * 4 + ["d"]
    rows = [f"text {number}\t{label}\n" for number, label in enumerate(labels)]
    rows += ["Text 7\ta\n", "text 7\tb\n"]  # copies that go where the first one does
    write(tmp_path, train__tsv="text\tlabel\n" + "".join(rows), dev__tsv="text\tlabel\n" + "".join(rows[::20]))
    files = {"train": str(tmp_path / "train.tsv"), "validation": str(tmp_path / "dev.tsv")}
    whole = own(tmp_path, files=files)
    shares = {fraction: replace(whole, train_fraction=fraction) for fraction in (0.1, 0.3, 0.5, 1.0)}
    taken = {fraction: [example.id for example in task.examples("train")] for fraction, task in shares.items()}
    assert set(taken[0.1]) < set(taken[0.3]) < set(taken[0.5]) < set(taken[1.0])
    for fraction, task in shares.items():
        texts = {example.text.lower(): example.label for example in reversed(task.examples("train"))}
        assert Counter(texts.values()) == {
            label: max(1, round(fraction * count)) for label, count in {"a": 70, "b": 25, "c": 4, "d": 1}.items()
        }
        assert sum(example.text.lower() == "text 7" for example in task.examples("train")) in (0, 3)
        assert task.examples("validation") == whole.examples("validation")
        assert task.fingerprint("validation") == whole.fingerprint("validation")
    assert shares[1.0].fingerprint("train") == whole.fingerprint("train")
    assert len({task.fingerprint("train") for task in shares.values()}) == len(shares)
    turned = "".join(reversed(rows[:-1]))
    write(tmp_path, train__tsv=f"text\tlabel\n{turned}")
    again = own(tmp_path, files=files)
    kept = {example.text for example in replace(again, train_fraction=0.3).examples("train")}
    assert kept == {example.text for example in shares[0.3].examples("train")}
