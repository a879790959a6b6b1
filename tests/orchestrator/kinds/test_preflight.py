"""Checks before anything starts, across the stages of a pipeline: what a run would only find out later.

Alone: pytest tests/orchestrator/kinds/test_preflight.py
"""

from pathlib import Path
from typing import Any

import pytest

from bert_core.errors import CheckpointError, ConfigError
from orchestrator.base.errors import CorpusError, InputError, NotFoundError, SpecError, TaskDataError
from orchestrator.base.results import ModelResult
from orchestrator.base.settings import Settings
from orchestrator.kinds import resolved_inputs
from orchestrator.kinds.plan import plan_rows
from orchestrator.registry import Registry
from orchestrator.specs.loading import parse_spec
from tests.orchestrator.small_specs import CORPUS, DISTILL, PRETRAIN, STORE, SWEEP, TASK, TOKENIZER, check, pipeline


def test_what_fits_together_is_let_through(settings: Settings) -> None:
    short = [{"max_seq_length": 40}]
    sweep = {**SWEEP, "space": {"init_from": ["@more", "short", "random"]}}
    sweep["recipe"] = {"tokenizer": "@words", "max_seq_length": 40}
    stages = {
        "words": TOKENIZER,
        "first": {**PRETRAIN, "tokenizer": "@words"},
        "more": {**PRETRAIN, "init_from": "short", "phases": short},
        "task": sweep,
        "student": {**DISTILL, "teacher": "@task", "num_hidden_layers": 1},
        "score": {"kind": "evaluate", "model": "@student", "task": sweep["task"]},
    }
    check(settings, **stages)
    spec = parse_spec(pipeline(**stages))
    rows = plan_rows(spec, resolved_inputs(spec, settings))
    assert {row.stage for row in rows} == {*stages, ""}
    notes = {row.stage: row.value for row in rows if row.what == "note"}
    assert notes["task"].startswith("stages.task: "), "advice on a field says of which stage, as a problem does"
    assert not settings.home.exists(), "nothing has been started"


@pytest.mark.parametrize(
    ("stage", "split"),
    [(SWEEP, "train"), (DISTILL, "train"), ({"kind": "evaluate", "model": "short", "split": "test"}, "test")],
)
def test_a_split_that_the_task_lacks(settings: Settings, stage: dict[str, Any], split: str) -> None:
    task = {**TASK, "files": {"validation": "task.csv"}}
    with pytest.raises(TaskDataError, match=rf"task\.files\.{split}"):
        check(settings, stage={**stage, "task": task})


@pytest.mark.parametrize(
    "stage",
    [
        {**PRETRAIN, "init_from": "short"},
        {**SWEEP, "recipe": {"init_from": "short"}},
        DISTILL,
        {"kind": "evaluate", "model": "short", "task": SWEEP["task"]},
    ],
)
def test_a_model_whose_weights_cannot_be_read(settings: Settings, stage: dict[str, Any]) -> None:
    Path("short/model.safetensors").write_bytes(b"cut")
    with pytest.raises(CheckpointError, match=r"stages\.stage: .*model\.safetensors"):
        check(settings, stage=stage)


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        ({**PRETRAIN, "init_from": "@words"}, "init_from @words"),
        ({**PRETRAIN, "tokenizer": "@store"}, "tokenizer @store"),
        ({"kind": "evaluate", "model": "@model", "task": SWEEP["task"]}, "model @model"),
        ({**DISTILL, "teacher": "@words"}, "teacher @words"),
    ],
)
def test_a_stage_that_makes_something_else(settings: Settings, stage: dict[str, Any], message: str) -> None:
    store = {"kind": "corpus", "corpus": CORPUS, "tokenizer": "@words"}
    with pytest.raises(SpecError, match=rf"stages\.last: {message}"):
        check(settings, words=TOKENIZER, store=store, model=PRETRAIN, last=stage)


def test_problems_of_all_stages_are_told_together_and_each_once(settings: Settings) -> None:
    wordless = {**PRETRAIN, "tokenizer": "nowhere"}
    task = {**SWEEP, "recipe": {"init_from": "@model", "max_seq_length": 41}}
    with pytest.raises(NotFoundError) as refused:
        check(settings, model=wordless, task=task, long={**DISTILL, "recipe": {"max_seq_length": 41}})
    stages = [line.partition(": ")[0] for line in str(refused.value).splitlines()]
    assert stages == ["stages.model", "stages.long"]


def test_sequences_that_the_model_cannot_read(settings: Settings) -> None:
    with pytest.raises(SpecError, match=r"phases\.max_seq_length 128"):
        check(settings, model={**PRETRAIN, "init_from": "short"})
    model = {**PRETRAIN, "model": {"max_position_embeddings": 128}}
    recipe = {"init_from": "@model", "max_seq_length": 129}
    with pytest.raises(SpecError, match=r"recipe\.max_seq_length 129"):
        check(settings, model=model, task={**SWEEP, "recipe": recipe})
    with pytest.raises(SpecError, match=r"recipe\.max_seq_length 41"):
        check(settings, student={**DISTILL, "recipe": {"max_seq_length": 41}})


@pytest.mark.parametrize(
    ("recipe", "space", "what"),
    [
        ({"init_from": "short", "layer_pooling": "sum_last_four"}, {}, "init_from short"),
        ({"layer_pooling": "concat_last_four"}, {"size": ["small", "2x128"]}, "size 2x128"),
        ({}, {"layer_pooling": ["last", "sum_last_four"], "init_from": ["random", "@model"]}, "init_from @model"),
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


def test_what_a_sweep_or_a_distillation_will_make_is_known_where_all_trials_are_alike(settings: Settings) -> None:
    deep = {**SWEEP, "recipe": {"tokenizer": "words", "size": "4x128", "max_seq_length": 600}}
    half = {**DISTILL, "teacher": "@deep", "num_hidden_layers": 2, "recipe": {"max_seq_length": 600}}
    check(settings, deep=deep, half=half)
    with pytest.raises(ConfigError, match="num_hidden_layers 4"):
        check(settings, deep=deep, same={**half, "num_hidden_layers": 4})
    with pytest.raises(ConfigError, match="num_hidden_layers 2"):
        check(settings, deep=deep, half=half, quarter={**half, "teacher": "@half"})
    with pytest.raises(SpecError, match=r"recipe\.max_seq_length 601"):
        check(settings, deep=deep, next={**SWEEP, "recipe": {"init_from": "@deep", "max_seq_length": 601}})
    head = {"init_from": "@half", "layer_pooling": "sum_last_four"}
    with pytest.raises(SpecError, match="init_from @half"):
        check(settings, deep=deep, half=half, next={**SWEEP, "recipe": head})
    check(settings, any={**deep, "space": {"size": ["tiny", "4x128"]}}, half={**half, "teacher": "@any"})


def test_a_registered_model_whose_folder_is_gone(settings: Settings) -> None:
    with Registry(settings.registry) as registry:
        run = registry.lifecycle.create(kind="pretrain", name="base", fingerprint="f" * 64, spec={})
        registry.models.register("base", ModelResult("/gone/model", "d" * 64, 1, "pretraining"), run)
    with pytest.raises(InputError, match=r"init_from: .*/gone/model"):
        check(settings, model={**PRETRAIN, "init_from": "base"})


@pytest.mark.parametrize("stage", [SWEEP, DISTILL, {"kind": "evaluate", "model": "short", "split": "validation"}])
def test_a_label_of_the_validation_split_that_the_task_does_not_know(
    settings: Settings, tmp_path: Path, stage: dict[str, Any]
) -> None:
    (tmp_path / "dev.csv").write_text("text,label\na cat,a\na cow,c\n")
    task = {**TASK, "files": {"train": "task.csv", "validation": "dev.csv"}}
    with pytest.raises(TaskDataError, match=r"dev\.csv, line 3: "):
        check(settings, stage={**stage, "task": task})


@pytest.mark.parametrize("stage", [TOKENIZER, STORE, PRETRAIN])
def test_files_without_a_document(settings: Settings, tmp_path: Path, stage: dict[str, Any]) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(CorpusError, match=r"empty\.txt"):
        check(settings, stage={**stage, "corpus": {"files": ["empty.txt"]}})


def test_files_of_bad_records_alone(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes("caf\u00e9\n".encode("latin-1"))
    corpus = {"files": ["latin.txt"], "on_bad_record": "skip"}
    with pytest.raises(CorpusError, match=r"latin\.txt .*on_bad_record"):
        check(settings, stage={**PRETRAIN, "corpus": corpus})


def test_a_leak_between_splits_is_told_once_by_plan_and_by_run(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """Both splits of the small sweep are the same file of two rows; two stages have the same task."""
    check(settings, first=SWEEP, second={**SWEEP, "name": "again"})
    (told,) = (message for message in caplog.messages if "training split as well" in message)
    assert "task own: 2 of 2 validation examples have a text" in told
    assert told.endswith("; task.csv is both")


def test_splits_that_share_no_text_are_not_spoken_of(
    settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = {"train": "task.csv", "validation": "dev.csv"}
    (tmp_path / "dev.csv").write_text("text,label\na bird,a\n")
    check(settings, alone={**SWEEP, "task": {**SWEEP["task"], "files": files}})
    assert not caplog.messages
    (tmp_path / "dev.csv").write_text("text,label\na cat,a\n")
    check(settings, alone={**SWEEP, "task": {**SWEEP["task"], "files": files}})
    assert caplog.messages[0].endswith("; take them out of dev.csv or of task.csv")


def test_labels_that_look_alike_are_told(settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "task.csv").write_text("text,label\na cat,Not spam\na dog,not_spam\na bird,spam\n")
    check(settings, alone={**SWEEP, "task": {**SWEEP["task"], "labels": None}})
    assert "'Not spam' and 'not_spam'" in caplog.messages[0]
