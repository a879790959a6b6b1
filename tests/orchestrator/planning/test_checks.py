"""What is refused before anything starts, since a run would only find it out later, perhaps after hours.

Alone: pytest tests/orchestrator/planning/test_checks.py
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from bert_core.config import BertConfig
from bert_core.errors import CheckpointError, ConfigError, TokenizerError
from bert_core.text.tokenizer_training import train_wordpiece
from orchestrator.errors import CorpusError, InputError, NotFoundError, SpecError, TaskDataError
from orchestrator.planning.checks import check_inputs, input_identity, plan_rows
from orchestrator.registry import Registry
from orchestrator.results import ModelResult
from orchestrator.settings import Settings
from orchestrator.specs.loading import parse_spec
from orchestrator.storage import write_bytes

CORPUS = {"files": ["corpus.txt"]}
TOKENIZER = {"kind": "tokenizer", "corpus": CORPUS, "vocab_size": 100}
PRETRAIN = {"kind": "pretrain", "corpus": CORPUS, "tokenizer": "words", "steps": 10}
TASK = {"id": "own", "head": "classification", "text_columns": ["text"], "labels": ["a", "b"]}
FILES = {"train": "task.csv", "validation": "task.csv"}
SWEEP = {"kind": "sweep", "task": {**TASK, "files": FILES}, "recipe": {"tokenizer": "words"}}
CLASSIFIER = "BertForSequenceClassification"
DISTILL = {"kind": "distill", "teacher": "short", "task": SWEEP["task"], "recipe": {"max_seq_length": 40}}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A working folder with texts, the tokenizer `words`, and `short`, a classifier of 40 positions that reads it."""
    monkeypatch.chdir(tmp_path)
    Path("corpus.txt").write_text("a cat sat\n")
    Path("task.csv").write_text("text,label\na cat,a\na dog,b\n")
    tokenizer = train_wordpiece(["a cat sat"], vocab_size=100, min_frequency=1)
    tokenizer.save("words")
    shutil.copytree("words", "short")
    config = BertConfig.from_size("tiny", vocab_size=tokenizer.vocab_size, max_position_embeddings=40)
    Path("short/config.json").write_text(json.dumps({**config.to_dict(), "architectures": [CLASSIFIER]}))
    return Settings.from_options(home=str(tmp_path / "home"), environ={})


def check(settings: Settings, **stages: dict[str, Any]) -> None:
    check_inputs(parse_spec({"kind": "pipeline", "name": "all", "stages": stages}), settings)


def test_what_fits_together_is_let_through(settings: Settings) -> None:
    short = [{"max_seq_length": 40}]
    sweep = {**SWEEP, "space": {"init_from": ["@more", "short", "random"]}}
    sweep["recipe"] = {"tokenizer": "@words", "max_seq_length": 40}
    check(
        settings,
        words=TOKENIZER,
        first={**PRETRAIN, "tokenizer": "@words"},
        more={**PRETRAIN, "init_from": "short", "phases": short},
        task=sweep,
        student={**DISTILL, "teacher": "@task", "num_hidden_layers": 1},
        score={"kind": "evaluate", "model": "@student", "task": sweep["task"]},
    )


def test_a_range_that_its_field_refuses(settings: Settings) -> None:
    space = {"batch_size": {"uniform": [8, 32]}}
    with pytest.raises(SpecError, match=r"space\.batch_size"):
        check(settings, task={**SWEEP, "space": space, "search": "random", "trials": 2})


@pytest.mark.parametrize(
    ("stage", "split"),
    [(SWEEP, "train"), (DISTILL, "train"), ({"kind": "evaluate", "model": "short", "split": "test"}, "test")],
)
def test_a_split_that_the_task_lacks(settings: Settings, stage: dict[str, Any], split: str) -> None:
    task = {**TASK, "files": {"validation": "task.csv"}}
    with pytest.raises(TaskDataError, match=rf"no labeled {split} split.*task\.files\.{split}"):
        check(settings, stage={**stage, "task": task})


def test_a_reranker_of_a_task_without_hits(settings: Settings) -> None:
    score = {"kind": "evaluate", "model": "short", "task": SWEEP["task"], "rerank": "short", "relevant": "a"}
    with pytest.raises(InputError, match=r"stages\.score: task own is no retrieval: .*; leave rerank out"):
        check(settings, score=score)


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ({**PRETRAIN, "init_from": "@words"}, "init_from @words is a stage of kind tokenizer; .* pretrain or sweep"),
        ({**PRETRAIN, "tokenizer": "@store"}, "tokenizer @store is a stage of kind corpus; name one of kind tokenizer"),
        (
            {"kind": "evaluate", "model": "@model", "task": SWEEP["task"]},
            "model @model is a .* of kind sweep",
        ),
        (
            {**DISTILL, "teacher": "@words"},
            "teacher @words is a stage of kind tokenizer; name one of kind pretrain or sw",
        ),
    ],
)
def test_a_stage_that_makes_something_else(settings: Settings, stage: dict[str, Any], message: str) -> None:
    store = {"kind": "corpus", "corpus": CORPUS, "tokenizer": "@words"}
    with pytest.raises(SpecError, match=rf"stages\.last: {message}"):
        check(settings, words=TOKENIZER, store=store, model=PRETRAIN, last=stage)


def test_sequences_that_the_model_cannot_read(settings: Settings) -> None:
    with pytest.raises(SpecError, match=r"phases\.max_seq_length 128 is longer than the 40 positions of short"):
        check(settings, model={**PRETRAIN, "init_from": "short"})
    model = {**PRETRAIN, "model": {"max_position_embeddings": 128}}
    recipe = {"init_from": "@model", "max_seq_length": 129}
    with pytest.raises(SpecError, match=r"recipe\.max_seq_length 129 is longer than the 128 positions of @model"):
        check(settings, model=model, task={**SWEEP, "recipe": recipe})
    with pytest.raises(SpecError, match=r"recipe\.max_seq_length 41 is longer than the 40 positions of short"):
        check(settings, student={**DISTILL, "recipe": {"max_seq_length": 41}})


@pytest.mark.parametrize(
    ("recipe", "space", "what"),
    [
        (
            {"init_from": "short", "layer_pooling": "sum_last_four"},
            {},
            "sum_last_four needs four layers, and init_from short",
        ),
        (
            {"layer_pooling": "concat_last_four"},
            {"size": ["small", "2x128"]},
            "concat_last_four .* and size 2x128 has 2",
        ),
        ({}, {"layer_pooling": ["last", "sum_last_four"], "init_from": ["random", "@model"]}, "init_from @model has 2"),
    ],
)
def test_a_head_that_reads_more_layers_than_there_are(
    settings: Settings, recipe: dict[str, Any], space: dict[str, Any], what: str
) -> None:
    model = {**PRETRAIN, "model": {"num_hidden_layers": 2}}
    sweep = {**SWEEP, "recipe": {"tokenizer": "words", "size": "small", "max_seq_length": 40, **recipe}, "space": space}
    with pytest.raises(SpecError, match=what):
        check(settings, model=model, task=sweep)
    if not space:
        with pytest.raises(SpecError, match=what):
            check(settings, student={**DISTILL, "recipe": {"max_seq_length": 40, **recipe}})


@pytest.mark.parametrize(
    ("architecture", "message"),
    [
        (CLASSIFIER, "short knows the labels b, c; task own has a, b"),
        ("BertForTokenClassification", "short is a model for ner, task own needs one for classification"),
        ("BertForPreTraining", r"short has no head for a task .*fine-tune it first"),
    ],
)
def test_a_teacher_of_something_else(settings: Settings, architecture: str, message: str) -> None:
    config = json.loads(Path("short/config.json").read_text())
    changes = {"architectures": [architecture], "id2label": {"0": "b", "1": "c"}}
    Path("short/config.json").write_text(json.dumps(config | changes))
    with pytest.raises((SpecError, CheckpointError), match=message):
        check(settings, student=DISTILL)


def test_a_stage_whose_model_cannot_teach_the_task(settings: Settings) -> None:
    with pytest.raises(SpecError, match="teacher @model makes a model for no task, task own needs one for classific"):
        check(settings, model=PRETRAIN, student={**DISTILL, "teacher": "@model"})


def test_a_stage_that_learns_other_labels_than_the_student(settings: Settings) -> None:
    others = {**SWEEP["task"], "labels": ["b", "c"]}
    with pytest.raises(SpecError, match="teacher @large will know the labels a, b; task own has b, c: give both"):
        check(settings, large=SWEEP, student={**DISTILL, "teacher": "@large", "task": others})


def test_what_a_sweep_or_a_distillation_will_make_is_known_where_all_trials_are_alike(settings: Settings) -> None:
    deep = {**SWEEP, "recipe": {"tokenizer": "words", "size": "4x128", "max_seq_length": 600}}
    half = {**DISTILL, "teacher": "@deep", "num_hidden_layers": 2, "recipe": {"max_seq_length": 600}}
    check(settings, deep=deep, half=half)
    with pytest.raises(ConfigError, match="num_hidden_layers 4 must be at least 1 and below the teacher's 4"):
        check(settings, deep=deep, same={**half, "num_hidden_layers": 4})
    with pytest.raises(ConfigError, match="num_hidden_layers 2 must be at least 1 and below the teacher's 2"):
        check(settings, deep=deep, half=half, quarter={**half, "teacher": "@half"})
    with pytest.raises(SpecError, match=r"recipe\.max_seq_length 601 is longer than the 600 positions of @deep"):
        check(settings, deep=deep, next={**SWEEP, "recipe": {"init_from": "@deep", "max_seq_length": 601}})
    head = {"init_from": "@half", "layer_pooling": "sum_last_four"}
    with pytest.raises(SpecError, match="sum_last_four needs four layers, and init_from @half has 2"):
        check(settings, deep=deep, half=half, next={**SWEEP, "recipe": head})
    check(settings, any={**deep, "space": {"size": ["tiny", "4x128"]}}, half={**half, "teacher": "@any"})


PAIRS = {
    **{"id": "pairs", "head": "embedding", "text_columns": ["text", "label"], "label_column": "label"},
    **{"objective": "classification", "labels": ["a", "b"], "files": FILES},
}


def test_an_embedding_teacher(settings: Settings) -> None:
    config = json.loads(Path("short/config.json").read_text())
    Path("short/config.json").write_text(json.dumps({**config, "architectures": ["BertModel"]}))
    Path("short/modules.json").write_text("[]")
    cosine = {**PAIRS, "objective": "cosine", "score_range": [0, 1]}
    cosine.pop("labels")
    check(settings, student={**DISTILL, "task": cosine})
    with pytest.raises(
        SpecError, match=r"objective\.soft_targets_weight compares vectors, .* 256 wide .* 128 in short"
    ):
        check(settings, student={**DISTILL, "task": cosine, "recipe": {"max_seq_length": 40, "size": "mini"}})
    with pytest.raises(SpecError, match="this model has no classifier of pairs"):
        check(settings, student={**DISTILL, "task": PAIRS})


def test_a_teacher_elsewhere_is_planned_without_its_weights(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in Path("short").iterdir():
        write_bytes(f"memory://planned/short/{path.name}", path.read_bytes())
    write_bytes("memory://planned/short/model.safetensors", b"never read")
    fetched: list[str] = []
    get_file = MemoryFileSystem.get_file

    def note(system: MemoryFileSystem, path: str, *rest: Any, **options: Any) -> None:
        fetched.append(Path(path).name)
        get_file(system, path, *rest, **options)

    monkeypatch.setattr(MemoryFileSystem, "get_file", note)
    check(settings, student={**DISTILL, "teacher": "memory://planned/short"})
    assert "config.json" in fetched
    assert "model.safetensors" not in fetched


def test_texts_without_labels_are_planned_and_must_be_there(settings: Settings) -> None:
    Path("texts.txt").write_text("a cat\na dog\na cat sat\n")
    spec = {**DISTILL, "unlabeled": ["texts.txt"], "recipe": {"max_seq_length": 40, "batch_size": 1, "epochs": 1}}
    rows = {row.what: row.value for row in plan_rows(parse_spec(spec), settings)}
    assert rows["texts without labels"] == "3, which the teacher answers"
    assert rows["steps"] == "5 of 1 examples"
    Path("short/model.safetensors").write_bytes(b"weights")
    before = input_identity(parse_spec(spec), settings)
    Path("texts.txt").write_text("a cat\n")
    assert input_identity(parse_spec(spec), settings) != before
    with pytest.raises(TaskDataError, match=r"unlabeled: there is no file absent\.txt"):
        check(settings, student={**DISTILL, "unlabeled": ["absent.txt"]})
    Path("empty.txt").touch()
    stages = {"student": {**DISTILL, "unlabeled": ["empty.txt"]}}
    with pytest.raises(TaskDataError, match=r"stages\.student: empty\.txt is empty"):
        plan_rows(parse_spec({"kind": "pipeline", "stages": stages}), settings)


def test_fields_of_a_students_recipe_that_its_head_has_no_use_for(settings: Settings) -> None:
    with pytest.raises(
        SpecError, match=r"recipe\.pooling: it is for vectors .* head is classification: leave 'cls' out"
    ):
        check(settings, student={**DISTILL, "recipe": {"max_seq_length": 40, "pooling": "cls"}})


def test_a_student_as_deep_as_its_teacher(settings: Settings) -> None:
    with pytest.raises(ConfigError, match="num_hidden_layers 2 must be at least 1 and below the teacher's 2"):
        check(settings, student={**DISTILL, "num_hidden_layers": 2})


def test_hidden_states_that_cannot_be_compared(settings: Settings) -> None:
    student = {**DISTILL, "objective": {"hidden_cosine_weight": 1.0}}
    check(settings, student=student)
    student["recipe"] = {"max_seq_length": 40, "size": "mini"}
    with pytest.raises(SpecError, match=r"objective\.hidden_cosine_weight .* 256 wide in the student and 128 in short"):
        check(settings, student=student)


def test_a_pretrained_teacher_and_the_text_for_its_student(settings: Settings) -> None:
    pretraining = {**PRETRAIN, "phases": [{"max_seq_length": 40}], "global_batch_size": 8}
    student = {"kind": "distill", "teacher": "short", "num_hidden_layers": 1, "pretraining": pretraining}
    rows = {row.what: row.value for row in plan_rows(parse_spec(student), settings)}
    assert rows["text"] == "1 file, 0.0 MB as stored"
    assert rows["steps"] == "10 of 8 examples up to 40 tokens"
    assert rows["parameters"].startswith("222,208 in the student, 420,480 in the teacher")
    assert rows["resources"] == "2 CPU"
    long = {**student, "pretraining": PRETRAIN}
    with pytest.raises(SpecError, match=r"pretraining\.phases\.max_seq_length 128 is longer than the 40 positions"):
        check(settings, student=long)
    train_wordpiece(["quite other words here"], vocab_size=200, min_frequency=1).save("others")
    with pytest.raises(TokenizerError, match="use the tokenizer"):
        check(settings, student={**student, "pretraining": {**pretraining, "tokenizer": "others"}})
    with pytest.raises(CorpusError, match="absent"):
        check(settings, student={**student, "pretraining": {**pretraining, "corpus": {"files": ["absent.txt"]}}})


def test_a_plan_of_a_distillation(settings: Settings) -> None:
    execution = {"cpus": 2, "gpus": 0.5}
    spec = parse_spec({**DISTILL, "num_hidden_layers": 1, "execution": execution})
    rows = {row.what: row.value for row in plan_rows(spec, settings)}
    assert rows["task"] == "own (classification), ranked by accuracy"
    assert rows["data"] == "2 training examples; splits: train, validation"
    assert rows["steps"] == "3 of 32 examples"
    assert rows["parameters"] == "222,208 in the student, 420,480 in the teacher, and a small head each"
    assert rows["memory"] == "3.6 MB and activations, and 1.7 MB of the teacher"
    assert rows["resources"] == "2 CPU, 0.5 GPU"


def test_a_tokenizer_that_the_model_was_not_trained_with(settings: Settings) -> None:
    train_wordpiece(["quite other words here"], vocab_size=200, min_frequency=1).save("others")
    model = {**PRETRAIN, "init_from": "short", "tokenizer": "others", "phases": [{"max_seq_length": 40}]}
    with pytest.raises(TokenizerError, match="use the tokenizer"):
        check(settings, model=model)


def test_a_registered_model_whose_folder_is_gone(settings: Settings) -> None:
    with Registry(settings.registry) as registry:
        run = registry.create_run(kind="pretrain", name="base", fingerprint="f" * 64, spec={})
        registry.register_model("base", ModelResult("/gone/model", "d" * 64, 1, "pretraining"), run)
    with pytest.raises(NotFoundError, match="init_from: the folder of base, /gone/model, is gone"):
        check(settings, model={**PRETRAIN, "init_from": "base"})


def test_recurrent_layers_count_among_a_trials_weights(settings: Settings) -> None:
    Path("task.conll").write_text("anna B-PER\n\nsat O\n")
    task = {"id": "own", "head": "ner", "files": {"train": "task.conll", "validation": "task.conll"}}
    space = {"num_lstm_layers": [0, 1, 2], "layer_pooling": ["last", "scalar_mix"]}

    def parameters(**fields: Any) -> int:
        spec = parse_spec({**SWEEP, "task": task, **fields})
        rows = {row.what: row.value for row in plan_rows(spec, settings)}
        return int(rows["parameters"].removesuffix(", and a small head").replace(",", ""))

    layer = 2 * 4 * 64 * (128 + 64 + 2)  # directions, gates, their width, what each reads and two biases
    assert parameters(space=space) == parameters() + 2 * layer
