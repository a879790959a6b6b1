"""Distillation as a kind of run: what it refuses, plans, takes of the cluster and records.

pytest tests/orchestrator/kinds/test_distill.py
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from bert_core.checkpoints.sentence_transformers import SentenceEmbeddingConfig, write_sentence_embedding
from bert_core.config import BertConfig
from bert_core.config_fields import TokenDecoder
from bert_core.errors import CheckpointError, TokenizerError
from bert_core.heads import BertForPreTraining, BertForTokenClassification
from bert_core.text.tokenizer_training import train_wordpiece
from orchestrator.base.errors import CorpusError, SpecError, TaskDataError
from orchestrator.base.settings import Settings
from orchestrator.cluster.capacity import Processes
from orchestrator.kinds.distill import DistillKind
from orchestrator.kinds.pretrain import PretrainKind
from orchestrator.registry.recorder import Recorder
from orchestrator.specs import DistillSpec, PretrainSpec
from orchestrator.specs.loading import parse_spec
from orchestrator.storage import write_bytes
from tests.orchestrator.kinds.samples import SAMPLES, complete
from tests.orchestrator.small_specs import (
    CLASSIFIER,
    DISTILL,
    FILES,
    PRETRAIN,
    SWEEP,
    check,
    input_identity,
    pipeline,
    plan,
)


@pytest.mark.parametrize(
    ("architecture", "message"),
    [(CLASSIFIER, "labels"), ("BertForTokenClassification", "token_classification"), ("BertForPreTraining", "no head")],
)
def test_a_teacher_of_something_else(settings: Settings, architecture: str, message: str) -> None:
    config = json.loads(Path("short/config.json").read_text())
    changes = {"architectures": [architecture], "id2label": {"0": "b", "1": "c"}}
    Path("short/config.json").write_text(json.dumps(config | changes))
    with pytest.raises((SpecError, CheckpointError), match=message):
        check(settings, student=DISTILL)


def test_a_stage_that_learns_other_labels_than_the_student(settings: Settings) -> None:
    others = {**SWEEP["task"], "labels": ["b", "c"]}
    with pytest.raises(SpecError, match="teacher @large"):
        check(settings, large=SWEEP, student={**DISTILL, "teacher": "@large", "task": others})


def test_a_teacher_whose_f1_is_of_another_class(settings: Settings) -> None:
    turned = {**SWEEP["task"], "labels": SWEEP["task"]["labels"][::-1]}
    with pytest.raises(SpecError, match=r"labels: f1 is that of a in their order, and of b in that of teacher @large"):
        check(settings, large=SWEEP, student={**DISTILL, "teacher": "@large", "task": turned})


PAIRS = {
    **{"id": "pairs", "head": "embedding", "text_columns": ["text", "label"], "label_column": "label"},
    **{"objective": "classification", "labels": ["a", "b"], "files": FILES},
}


def test_an_embedding_teacher(settings: Settings) -> None:
    config = json.loads(Path("short/config.json").read_text())
    Path("short/config.json").write_text(json.dumps({**config, "architectures": ["BertModel"]}))
    write_sentence_embedding(Path("short"), SentenceEmbeddingConfig(), config["hidden_size"])
    Path("scored.csv").write_text("text,other,label\na cat,a dog,0.5\n")
    files = {"train": "scored.csv", "validation": "scored.csv"}
    cosine = {**PAIRS, "files": files, "objective": "cosine", "score_range": [0, 1]}
    cosine.pop("labels")
    check(settings, student={**DISTILL, "task": cosine})
    with pytest.raises(SpecError, match="soft_targets_weight"):
        check(settings, student={**DISTILL, "task": cosine, "recipe": {"max_seq_length": 40, "size": "mini"}})
    with pytest.raises(SpecError, match="classifier"):
        check(settings, student={**DISTILL, "task": PAIRS})


def test_a_teacher_that_reads_from_left_to_right_fills_no_masks(settings: Settings) -> None:
    config = replace(BertConfig.from_pretrained("short"), causal_attention=True)
    BertForPreTraining.from_config(config).save_pretrained("short")
    student = {k: v for k, v in PRETRAIN.items() if k != "kind"} | {"phases": [{"max_seq_length": 40}]}
    spec = {"kind": "distill", "teacher": "short", "pretraining": student}
    with pytest.raises(SpecError, match="teacher short"):
        check(settings, student=spec)


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
    rows = plan(settings, spec)
    assert rows["texts without labels"] == "3, which the teacher answers"
    assert rows["steps"] == "5 of 1 examples"
    before = input_identity(settings, spec)
    Path("texts.txt").write_text("a cat\n")
    assert input_identity(settings, spec) != before
    with pytest.raises(TaskDataError, match=r"unlabeled: there is no file absent\.txt"):
        check(settings, student={**DISTILL, "unlabeled": ["absent.txt"]})
    Path("empty.txt").touch()
    stages = {"student": {**DISTILL, "unlabeled": ["empty.txt"]}}
    with pytest.raises(TaskDataError, match=r"stages\.student: empty\.txt is empty"):
        plan(settings, pipeline(**stages))


def test_fields_of_a_students_recipe_that_its_head_has_no_use_for(settings: Settings) -> None:
    with pytest.raises(SpecError, match=r"recipe\.pooling"):
        check(settings, student={**DISTILL, "recipe": {"max_seq_length": 40, "pooling": "cls"}})


@pytest.mark.parametrize(
    ("recipe", "fields"),
    [
        ({"layer_pooling": "scalar_mix"}, {"num_hidden_layers": 1}),
        ({"num_lstm_layers": 1}, {"num_hidden_layers": 1}),
        ({"size": "mini"}, {"num_hidden_layers": 1}),
        ({"size": "mini", "init_from": "short"}, {}),
        ({"class_weights": "balanced"}, {}),
        ({"label_smoothing": 0.1}, {}),
    ],
)
def test_a_field_of_the_recipe_without_effect_is_refused_before_a_run_alone(
    settings: Settings, recipe: dict[str, Any], fields: dict[str, Any]
) -> None:
    student = {**DISTILL, **fields, "recipe": {"max_seq_length": 40, **recipe}}
    assert parse_spec(student), "as a run by an earlier version may have recorded it"
    with pytest.raises(SpecError, match=rf"recipe\.{next(iter(recipe))} "):
        check(settings, student=student)


@pytest.mark.parametrize(
    ("decoder", "used", "unused"),
    [
        ("crf", {"token_decoder": "crf", "crf_learning_rate": 0.01}, {"class_weights": "balanced"}),
        ("softmax", {"class_weights": "balanced"}, {"token_decoder": "crf"}),
    ],
)
def test_fields_of_another_decoder_than_the_teachers(
    settings: Settings, decoder: TokenDecoder, used: dict[str, Any], unused: dict[str, Any]
) -> None:
    config = replace(BertConfig.from_pretrained("short").with_labels(["O", "B-a", "I-a"]), token_decoder=decoder)
    BertForTokenClassification.from_config(config).save_pretrained("short")
    Path("task.conll").write_text("a O\ncat B-a\n")
    task = {"id": "own", "head": "ner", "files": {"train": "task.conll", "validation": "task.conll"}}
    student = {**DISTILL, "task": task, "objective": {"labels_weight": 1.0}}
    check(settings, student={**student, "recipe": {"max_seq_length": 40, **used}})
    (name,) = unused
    with pytest.raises(SpecError, match=rf"recipe\.{name}"):
        check(settings, student={**student, "recipe": {"max_seq_length": 40, **unused}})


def test_hidden_states_that_cannot_be_compared(settings: Settings) -> None:
    student = {**DISTILL, "objective": {"hidden_cosine_weight": 1.0}}
    check(settings, student=student)
    student["recipe"] = {"max_seq_length": 40, "size": "mini"}
    with pytest.raises(SpecError, match="hidden_cosine_weight"):
        check(settings, student=student)


def test_a_pretrained_teacher_and_the_text_for_its_student(settings: Settings) -> None:
    pretraining = {**PRETRAIN, "phases": [{"max_seq_length": 40}], "global_batch_size": 8}
    student = {"kind": "distill", "teacher": "short", "num_hidden_layers": 1, "pretraining": pretraining}
    rows = plan(settings, student)
    assert rows["text"] == "1 file, 21 bytes as stored"
    assert rows["steps"] == "10 of 8 examples up to 40 tokens"
    assert rows["parameters"].startswith("222,208 in the student, 420,480 in the teacher")
    assert rows["resources"] == "2 CPU, and 1 GPU if available"
    long = {**student, "pretraining": PRETRAIN}
    with pytest.raises(SpecError, match=r"pretraining\.phases\.max_seq_length 128"):
        check(settings, student=long)
    train_wordpiece(["quite other words here"], vocab_size=200, min_frequency=1).save("others")
    with pytest.raises(TokenizerError, match="vocab_size"):
        check(settings, student={**student, "pretraining": {**pretraining, "tokenizer": "others"}})
    with pytest.raises(SpecError, match=r"pretraining\.execution\.snapshot_optimizer"):
        check(settings, student={**student, "pretraining": {**pretraining, "execution": {"snapshot_optimizer": True}}})
    with pytest.raises(CorpusError, match="absent"):
        check(settings, student={**student, "pretraining": {**pretraining, "corpus": {"files": ["absent.txt"]}}})


def test_a_plan_of_a_distillation(settings: Settings) -> None:
    execution = {"cpus": 2, "gpus": 0.5}
    rows = plan(settings, {**DISTILL, "num_hidden_layers": 1, "execution": execution})
    assert rows["task"] == "own (classification), ranked by accuracy"
    assert rows["data"] == "2 training examples; splits: train, validation"
    assert rows["steps"] == "3 of 32 examples"
    assert rows["parameters"] == "222,208 in the student, 420,480 in the teacher, and a small head each"
    assert rows["memory"] == "3.6 MB and activations, and 1.7 MB of the teacher"
    assert rows["resources"] == "2 CPU, 0.5 GPU"
    assert plan(settings, DISTILL)["resources"] == "1 CPU, and 1 GPU if available"


def test_a_distillation_leaves_a_student_and_both_scores(recorder: Recorder) -> None:
    run = recorder.start({"kind": "distill", "name": "small", "task": {"id": "x"}}, "f", metric="f1")
    complete(recorder, run.id, "distill")
    registry = recorder.registry
    assert registry.metrics.latest(run.id) == {"f1": 0.7, "teacher.f1": 0.8, "agreement": 0.9, "test.f1": 0.6}
    assert (registry.models.get("small").head, registry.models.get("small").run_id) == ("ner", run.id)
    ended = registry.run(run.id)
    assert (ended.model_folder, ended.predictions_path) == (SAMPLES["distill"].result.model.folder, "predictions.jsonl")
    assert registry.datasets.table(run.id).values("fingerprint") == ["c" * 64]
    assert list(registry.runs("metrics.teacher.f1 > 0.75 and metrics.f1 < 0.75")["id"]) == [run.id]


def test_a_students_pretraining_holds_the_workers_of_one(settings: Settings) -> None:
    pretraining = {**PRETRAIN, "global_batch_size": 8, "execution": {"num_workers": 2}}
    spec = DistillSpec.model_validate({"teacher": "short", "pretraining": pretraining})
    resources = DistillKind().for_spec(spec).resources(spec)
    assert resources == PretrainKind().resources(PretrainSpec.model_validate(pretraining))
    assert resources.processes == [Processes(2, {"CPU": 1.0})]


def test_a_student_of_a_pretrained_teacher_is_recorded_as_a_pretraining(recorder: Recorder) -> None:
    run = recorder.start({"kind": "distill", "name": "small"}, "f")
    kind = DistillKind().for_spec(DistillSpec.model_validate({"teacher": "short", "pretraining": PRETRAIN}))
    recorder.complete(run.id, kind.record(SAMPLES["pretrain"].result, run.id, recorder))
    assert recorder.registry.metrics.latest(run.id)["perplexity"] == 12.2
    assert recorder.registry.models.get("small").head == "pretraining"
