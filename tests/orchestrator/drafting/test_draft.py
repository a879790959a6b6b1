"""Whole drafts, of made files and of published ones: the spec, the files beside it, what is told.

Alone: pytest tests/orchestrator/drafting/test_draft.py
"""

import json
import shlex
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import yaml

from orchestrator.base.errors import InputError, NotFoundError, TaskDataError
from orchestrator.base.settings import Settings
from orchestrator.drafting.draft import Draft, draft_spec
from orchestrator.kinds import kind_of, resolved_inputs
from orchestrator.specs.loading import load_spec
from orchestrator.specs.task import TaskSpec, task_of
from orchestrator.tasks.loading import load_task
from tests.orchestrator.drafting.made_files import (
    request_for,
    review,
    write,
    write_questions,
    write_records,
    write_reviews,
    write_sentences,
    write_text,
)
from tests.orchestrator.tiny_models import save_encoder
from tests.shared_data import shared_file


def draft(folder: Path, *files: Path, **fields: Any) -> Draft:
    return draft_spec(request_for(folder, *files, **fields))


def written(folder: Path, *files: Path, **fields: Any) -> dict[str, Any]:
    """The values of the spec that is written, which must be one that a run begins with."""
    made = draft(folder, *files, **fields)
    made.write(replaces=True)
    spec = load_spec(made.spec_path)
    kind_of(spec).preflight(spec, resolved_inputs(spec, Settings.from_options(home=str(folder / "home"), environ={})))
    values: dict[str, Any] = yaml.safe_load(Path(made.spec_path).read_text(encoding="utf-8"))
    return values


def splits_of(values: dict[str, Any]) -> list[list[Any]]:
    """The examples that a drafted spec trains and validates on."""
    values = values.get("stages", {}).get("finetuning", values)
    task = load_task(TaskSpec.model_validate(values["task"]))
    return [list(task.examples(split)) for split in ("train", "validation")]


def told(made: Draft) -> str:
    return "\n".join(f"{topic}: {text}" for topic, text in made.findings)


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_a_csv_becomes_a_split_and_a_baseline(tmp_path: Path, delimiter: str) -> None:
    path = write_reviews(tmp_path / "reviews.csv", 90, delimiter)
    before = path.read_bytes()
    stages = written(tmp_path, path)["stages"]
    train, dev = ([(example.text, example.label) for example in part] for part in splits_of({"stages": stages}))
    assert sorted(train + dev) == sorted(map(review, range(90)))
    assert (len(train), len(dev)) == (72, 18)
    assert stages["finetuning"]["recipe"]["tokenizer"] == "@tokenizer"
    assert "on_bad_record" not in stages["finetuning"]["task"]
    assert (tmp_path / "drafted.texts.txt").read_text().count("\n\n") == 72
    assert path.read_bytes() == before


def test_given_splits_are_used_as_they_are(tmp_path: Path) -> None:
    train, dev = write_reviews(tmp_path / "train.csv"), write_reviews(tmp_path / "dev.csv", 20, first=50)
    made = draft(tmp_path, dev, train)
    files = yaml.safe_load(made.spec_text)["stages"]["finetuning"]["task"]["files"]
    assert files == {"train": str(train), "validation": str(dev)}
    assert "leak: 10 of 20 validation examples" in told(made)


def test_a_model_to_start_from_makes_a_plain_sweep(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    encoder = save_encoder(tmp_path_factory.mktemp("encoder"), seed=0)
    values = written(tmp_path, write_reviews(tmp_path / "reviews.csv"), model=encoder)
    assert values["kind"] == "sweep"
    assert values["recipe"]["init_from"] == encoder
    assert not (tmp_path / "drafted.texts.txt").exists()


def test_every_layout_is_split_alike(tmp_path: Path) -> None:
    records = [{"text": text, "label": label, "year": 2000} for text, label in map(review, range(40))]
    jsonl = write(tmp_path / "a.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), tmp_path / "a.parquet")
    splits = []
    made = (write_reviews(tmp_path / "a.csv", 40), write_records(tmp_path / "a.json", 40))
    for path in (jsonl, tmp_path / "a.parquet", *made):
        splits.append([[(one.text, one.label) for one in part] for part in splits_of(written(tmp_path, path))])
    assert all(split == splits[0] for split in splits)


def test_character_spans_are_split_and_misfits_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    rows = [json.dumps({"text": f"Ada{n} wrote", "spans": [[0, 2, "PER"]]}) + "\n" for n in range(30)]
    made = draft(tmp_path, write(tmp_path / "a.jsonl", "".join(rows)))
    assert [record.message[-4:] for record in caplog.records] == [": 30"]
    assert "split: 24 for training, 6 for validation" in told(made)


def test_tagged_sentences_and_questions_are_split(tmp_path: Path) -> None:
    ner = written(tmp_path, write_sentences(tmp_path / "names.conll"))
    assert splits_of(ner)[1][0].tags
    qa = written(tmp_path, write_questions(tmp_path / "questions.json"))
    contexts = [{example.context for example in part} for part in splits_of(qa)]
    assert qa["stages"]["finetuning"]["task"]["head"] == "qa"
    assert [len(some) for some in contexts] == [16, 4]
    assert not contexts[0] & contexts[1]


def test_a_record_broken_in_another_column_is_in_the_split(tmp_path: Path) -> None:
    records = [{"text": review(n)[0], "label": review(n)[1], "note": f"note {n}"} for n in range(40)]
    records[3]["note"] = "\ud800"
    path = write(tmp_path / "a.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    assert sum(map(len, splits_of(written(tmp_path, path)))) == 40


def test_a_carriage_return_in_a_text_is_in_the_split(tmp_path: Path) -> None:
    rows = "".join(f'"film {n}\rwas {review(n)[1]}",{review(n)[1]}\n' for n in range(40))
    (tmp_path / "reviews.csv").write_bytes(f"text,label\n{rows}".encode())
    train, dev = splits_of(written(tmp_path, tmp_path / "reviews.csv"))
    assert {example.text for example in train + dev} == {f"film {n}\rwas {review(n)[1]}" for n in range(40)}


def test_a_test_file_whose_labels_are_lists_is_kept(tmp_path: Path) -> None:
    rows = "".join(json.dumps({"text": f"words {n}", "label": ["a", "bc"[n % 2]]}) + "\n" for n in range(30))
    paths = [write(tmp_path / name, rows) for name in ("train.jsonl", "test.jsonl")]
    assert "test" in yaml.safe_load(draft(tmp_path, *paths).spec_text)["stages"]["finetuning"]["task"]["files"]


def test_triples_are_split(tmp_path: Path) -> None:
    rows = "".join(f"words {n},like {n},other {n}\n" for n in range(30))
    task = written(tmp_path, write(tmp_path / "a.csv", f"query,positive,negative\n{rows}"))["stages"]["finetuning"][
        "task"
    ]
    assert (task["objective"], task["negative_columns"]) == ("in_batch_negatives", ["negative"])
    assert len(splits_of({"task": task})[1][0].negatives) == 1


def test_text_becomes_a_pipeline_that_the_text_can_bear(tmp_path: Path) -> None:
    stages = written(tmp_path, write_text(tmp_path / "films.txt"))["stages"]
    assert list(stages) == ["tokenizer", "pretraining"]
    assert stages["pretraining"]["validation_fraction"] > 0
    assert stages["pretraining"]["steps"] <= 200


def test_text_of_one_document_holds_nothing_out(tmp_path: Path) -> None:
    stages = written(tmp_path, write(tmp_path / "book.md", "A sentence of the book stands here.\n" * 100))["stages"]
    assert (stages["pretraining"]["validation_fraction"], stages["tokenizer"]["corpus"]["format"]) == (0.0, "text")


def test_records_of_text_are_read_by_their_field(tmp_path: Path) -> None:
    records = "".join(json.dumps({"body": f"The film {n} was long and nobody left."}) + "\n" for n in range(60))
    stages = written(tmp_path, write(tmp_path / "films.jsonl", records))["stages"]
    assert stages["pretraining"]["corpus"]["text_field"] == "body"


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.txt", "few words\n", "2 words"),
        ("a.csv", "text,label\n" + "good,pos\n" * 20, "one label"),
        ("a.csv", "text,score\n" + "good,0.5\n" * 20, "all scores are 0.5"),
        ("a.csv", "text\n" + "good\n" * 20, "label"),
        ("a.csv", "text,label\ngood,pos\nbad,neg\n", "at least 10"),
    ],
)
def test_data_that_is_not_enough_writes_nothing(tmp_path: Path, name: str, text: str, problem: str) -> None:
    path = write(tmp_path / name, text)
    with pytest.raises(InputError, match=problem):
        draft(tmp_path, path)
    assert list(tmp_path.iterdir()) == [path]


def test_options_that_do_not_fit_the_file_are_refused(tmp_path: Path) -> None:
    text, tagged, table = write_text(tmp_path / "a.txt"), write_sentences(tmp_path / "a.conll"), tmp_path / "a.csv"
    write_reviews(table)
    refused: list[tuple[tuple[Path, ...], dict[str, Any], str]] = [
        ((text,), {"label_column": "label"}, "--label"),
        ((text,), {"kind": "qa"}, "--kind qa"),
        ((tagged,), {"kind": "qa"}, "--kind qa"),
        ((text, table), {}, r"a\.csv"),
        ((table,), {"kind": "pretraining"}, "pretraining"),
        ((table,), {"output": "spec.txt"}, r"\.yaml"),
    ]
    for files, fields, named in refused:
        with pytest.raises(InputError, match=named):
            draft(tmp_path, *files, **fields)


@pytest.mark.parametrize("name", ["my reviews.csv", "films.txt"])
def test_the_commands_in_a_spec_can_be_pasted(tmp_path: Path, name: str) -> None:
    path = (write_reviews if name.endswith(".csv") else write_text)(tmp_path / name)
    options: dict[str, Any] = {"minutes": 2.5, "output": str(tmp_path / "my spec.yaml")}
    if name.endswith(".csv"):
        options |= {"kind": "classification", "text_columns": ("text",), "label_column": "label"}
    made = draft(tmp_path, path, **options)
    lines = [line.strip("# ") for line in made.spec_text.splitlines() if line.lstrip().startswith("#   orch")]
    init, plan, run, *_ = map(shlex.split, lines)
    said = ["--text", "text"] if name.endswith(".csv") else []
    kind = ["--kind", "classification", "--label", "label"] if said else []
    assert init[:3] == ["orchestrator", "init", str(path)]
    assert init[3:] == [*said, "--output", made.spec_path, *kind, "--minutes", "2.5"]
    assert (plan, run) == (["orchestrator", "plan", made.spec_path], ["orchestrator", "run", made.spec_path])


def test_a_known_tasks_name_is_not_taken(tmp_path: Path) -> None:
    made = draft(tmp_path, write_reviews(tmp_path / "sst2.csv"))
    assert yaml.safe_load(made.spec_text)["stages"]["finetuning"]["task"]["id"] == "sst2_own"


def test_text_and_a_model_go_on_with_its_pretraining(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    encoder = save_encoder(tmp_path_factory.mktemp("encoder"), seed=0)
    values = written(tmp_path, write_text(tmp_path / "films.txt"), model=encoder)
    assert (values["kind"], values["init_from"], values["tokenizer"]) == ("pretrain", encoder, encoder)


def test_what_a_person_should_look_at_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUs, registered models, the class of f1; broken, long and few examples."""
    monkeypatch.setattr("orchestrator.drafting.task_draft.pretrained_models", lambda settings: ("minilm", "wiki"))
    path = write_reviews(tmp_path / "reviews.csv")
    plain = told(draft(tmp_path, path))
    path.write_text(path.read_text() + "no label\n" + "word " * 4000 + ",pos\n")
    noted = told(draft(tmp_path, path, gpus=("H200",) * 2))
    for words in ("2 GPUs", "1 broken record", "line 62", "the longest has 5,603"):
        assert words in noted
        assert words not in plain
    assert "minilm, wiki" in plain
    assert "f1 is the score of pos" in plain
    assert "each is 50 points" in told(draft(tmp_path, write_reviews(tmp_path / "few.csv", 10)))


def test_lengths_are_tokens_in_scripts_without_blanks(tmp_path: Path) -> None:
    rows = "".join(f"{'小狗跑步' * 75}{n},{'ab'[n % 2]}\n" for n in range(20))
    recipe = written(tmp_path, write(tmp_path / "a.csv", f"text,label\n{rows}"))["stages"]["finetuning"]["recipe"]
    assert recipe["max_seq_length"] == 384
    text = "\n\n".join("ที่นี่มีหมา" * 30 for _ in range(30))
    stages = written(tmp_path, write(tmp_path / "a.txt", text), output=str(tmp_path / "thai.yaml"))["stages"]
    assert stages["pretraining"]["phases"][-1]["max_seq_length"] == 128
    assert stages["tokenizer"]["strip_accents"] is False


def test_a_vocabulary_has_room_for_the_characters_of_the_text(tmp_path: Path) -> None:
    text = "\n\n".join("".join(chr(0x4E00 + (n * 40 + i) % 600) for i in range(40)) for n in range(60))
    stages = written(tmp_path, write(tmp_path / "a.txt", text))["stages"]
    assert stages["tokenizer"]["vocab_size"] >= 1800


def test_examples_that_are_cut_are_told(tmp_path: Path) -> None:
    rows = [f"{'word ' * (9 if n else 1000)}{n},{'ab'[n % 2]}" for n in range(20)]
    made = draft(tmp_path, write(tmp_path / "a.csv", "\n".join(["text,label", *rows])))
    assert "cut: about 1 of 20 examples" in told(made)
    assert "cut:" not in told(draft(tmp_path, write(tmp_path / "a.csv", "\n".join(["text,label", *rows[1:]]))))


def test_a_model_that_knows_no_word_of_the_texts_is_told(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    encoder = save_encoder(tmp_path_factory.mktemp("encoder"), seed=0)
    rows = "".join(f"小狗跑步{n},{'ab'[n % 2]}\n" for n in range(20))
    assert "unknown:" in told(draft(tmp_path, write(tmp_path / "a.csv", f"text,label\n{rows}"), model=encoder))


def test_a_model_that_is_not_there_is_told_and_nothing_is_made(tmp_path: Path) -> None:
    path = write_reviews(tmp_path / "reviews.csv")
    with pytest.raises(NotFoundError, match="no registered model"):
        draft(tmp_path, path, model="minilm")
    assert list(tmp_path.iterdir()) == [path]


def test_labels_that_validation_lacks_are_told(tmp_path: Path) -> None:
    path = write_reviews(tmp_path / "reviews.csv", 150)
    assert "not in validation" not in told(draft(tmp_path, path))
    path.write_text(path.read_text() + "stars: one,rare\n")
    assert "not in validation: rare" in told(draft(tmp_path, path))


def test_files_that_cannot_be_used_as_their_names_say_are_left_out(tmp_path: Path) -> None:
    train = write_reviews(tmp_path / "train.csv")
    made = draft(tmp_path, train, write(tmp_path / "test.csv", "id,text\n1,a film\n"))
    assert "test" not in yaml.safe_load(made.spec_text)["stages"]["finetuning"]["task"]["files"]
    files = write_text(tmp_path / "wiki.train.txt"), write_text(tmp_path / "wiki.valid.txt", 10)
    made = draft(tmp_path, *files)
    assert yaml.safe_load(made.spec_text)["stages"]["tokenizer"]["corpus"]["files"] == [str(files[0])]
    assert f"left out: {files[1]}" in told(made)


def test_a_file_with_other_columns_than_the_one_for_training_is_refused(tmp_path: Path) -> None:
    train = write_reviews(tmp_path / "train.csv")
    dev = write(tmp_path / "dev.csv", "review,sentiment\na film,pos\n")
    with pytest.raises(TaskDataError, match=r"dev\.csv.*'review'"):
        draft(tmp_path, train, dev)


@pytest.mark.parametrize(
    ("files", "kind", "columns"),
    [
        (("glue/MRPC/train.tsv.gz", "glue/MRPC/dev.tsv.gz"), "classification", ("#1 String", "#2 String")),
        (("glue/STS-B/train.tsv.gz", "glue/STS-B/dev.tsv.gz"), "regression", ("sentence1", "sentence2")),
        (("glue/SST-2/dev.tsv.gz",), "classification", ("sentence",)),
        (("classification/Subj/test.jsonl.gz",), "classification", ("text",)),
        (("ner/wikigold/wikigold.conll.txt.gz",), "ner", ()),
        (("squad/xquad.en.json.gz",), "qa", ()),
    ],
)
@pytest.mark.heavy
def test_the_kind_of_a_published_task_is_found(
    tmp_path: Path, files: tuple[str, ...], kind: str, columns: tuple[str, ...]
) -> None:
    made = draft_spec(request_for(tmp_path, *map(shared_file, files)))
    made.write(replaces=True)
    task = task_of(load_spec(made.spec_path).stage_specs()["finetuning"])
    assert task is not None
    assert (task.head, task.text_columns) == (kind, columns)


def test_published_text_is_for_pretraining(tmp_path: Path) -> None:
    made = draft_spec(request_for(tmp_path, shared_file("pretrain/wikitext-2/valid.txt.gz")))
    made.write(replaces=True)
    assert list(load_spec(made.spec_path).stage_specs()) == ["tokenizer", "pretraining"]
