"""Model folders: built, recorded, scored on a task. Alone: pytest tests/orchestrator/finetuning/test_model_folder.py"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from bert_core.config import BertConfig
from bert_core.constants import Precision
from bert_core.errors import CheckpointError, NewerFormatError
from bert_core.heads import BertForQuestionAnswering
from orchestrator.base.errors import SpecError
from orchestrator.finetuning.building import build_model
from orchestrator.finetuning.evaluation import evaluate_model, with_labels_of
from orchestrator.finetuning.heads import HEADS
from orchestrator.finetuning.model_folder import load_fine_tuned
from orchestrator.finetuning.model_record import FineTuningRecord
from orchestrator.inference.task_scores import Scoring, evaluate
from orchestrator.specs import RecipeSpec, TaskSpec
from orchestrator.specs.task import Head
from orchestrator.storage.model_folder import RECORD_FILE, count_parameters
from orchestrator.tasks.loading import load_task
from orchestrator.tasks.task import Task
from orchestrator.tasks.text_examples import CategoricalColumn, NumericalColumn, TabularColumns
from tests.orchestrator.finetuning import tiny_tasks
from tests.orchestrator.tasks.definitions import define, options_of


@pytest.mark.parametrize("head", HEADS)
def test_a_record_is_read_as_it_was_written(head: Head) -> None:
    columns = TabularColumns((NumericalColumn("size", 1.0, 2.0),), (CategoricalColumn("colour", ("blue", "red")),))
    task = define(head, metric="f1", objective="cosine" if head == "embedding" else None, columns=columns)
    record = FineTuningRecord(replace(task, text_columns=("title", "body")), options_of(head, max_seq_length=17))
    values = json.loads(json.dumps(record.to_dict()))
    assert FineTuningRecord.from_dict(values, ()) == record
    assert values["max_seq_length"] == 17


def test_a_record_keeps_the_options_of_its_own_type_alone() -> None:
    keys = {
        head: FineTuningRecord(define(head), options_of(head)).to_dict().keys() for head in ("qa", "ner", "regression")
    }
    assert keys["qa"] - keys["regression"] == {"doc_stride", "max_query_length", "max_answer_length", "null_threshold"}
    assert keys["ner"] - keys["regression"] == {"context"}


@pytest.mark.parametrize("missing", ["task", "head", "metric", "max_seq_length", "doc_stride"])
def test_a_record_without_a_value_that_it_needs_or_with_a_strange_one_is_not_read(missing: str) -> None:
    values = FineTuningRecord(define("qa"), options_of("qa")).to_dict()
    with pytest.raises(TypeError, match="strange"):
        FineTuningRecord.from_dict(values | {"strange": 1}, ())
    del values[missing]
    with pytest.raises((KeyError, TypeError), match=missing):
        FineTuningRecord.from_dict(values, ())


@pytest.mark.parametrize(
    ("dropout", "attention_dropout", "built"),
    [(None, None, (0.1, 0.1)), (0.2, None, (0.2, 0.2)), (0.2, 0.0, (0.2, 0.0)), (None, 0.0, (0.1, 0.0))],
)
def test_attention_weights_have_the_recipes_dropout_unless_it_has_one_for_them(
    tmp_path: Path, dropout: float | None, attention_dropout: float | None, built: tuple[float, float]
) -> None:
    recipe = tiny_tasks.RECIPE.model_copy(update={"dropout": dropout, "attention_dropout": attention_dropout})
    config = build_model(
        load_task(tiny_tasks.classification(tmp_path)), recipe, None, tiny_tasks.load_tokenizer(tmp_path)
    ).config
    assert isinstance(config, BertConfig)
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == built


RECIPE = RecipeSpec(max_seq_length=32)


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return load_task(tiny_tasks.classification(tmp_path))


def share_of(task: Task, label: str) -> float:
    examples = task.examples("validation")
    return sum(example.label == label for example in examples) / len(examples)  # type: ignore[union-attr]


def test_a_model_is_scored_in_fp32_unless_bf16_is_asked(tmp_path: Path, task: Task) -> None:
    folder = tiny_tasks.save_fine_tuned(tmp_path, task)

    def probabilities(**asked: Precision) -> list[float]:
        found = evaluate_model(folder, task, "validation", 16, str(tmp_path / "cache"), "cpu", **asked)
        return [prediction.probabilities[0] for prediction in found.predictions]

    exact, rounded = probabilities(precision="fp32"), probabilities(precision="bf16")
    assert probabilities() == exact
    assert rounded != exact
    assert rounded == pytest.approx(exact, abs=0.02)


@pytest.mark.parametrize("labels", [("no", "yes"), ("yes", "no")])
def test_labels_count_by_name_whatever_their_order(tmp_path: Path, task: Task, labels: tuple[str, str]) -> None:
    folder = tiny_tasks.save_fine_tuned(tmp_path, task, labels)
    metrics, predictions, *_ = evaluate_model(folder, task, "validation", 16, str(tmp_path / "cache"))
    assert {prediction.label for prediction in predictions} == {labels[0]}  # type: ignore[union-attr]
    assert metrics["accuracy"] == share_of(task, labels[0])


def test_probabilities_go_by_the_models_own_order_of_labels(tmp_path: Path, task: Task) -> None:
    folder, path = tiny_tasks.save_fine_tuned(tmp_path, task, ("yes", "no")), tmp_path / "predictions.jsonl"
    evaluate(Scoring(folder, task, "validation", str(tmp_path / "storage"), predictions=str(path)))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert {row["prediction"] for row in rows} == {"yes"}
    assert all(row["probabilities"]["yes"] > 0.99 for row in rows)


def test_nameless_labels_are_taken_in_the_tasks_order(tmp_path: Path, task: Task) -> None:
    folder = tiny_tasks.save_fine_tuned(tmp_path, task, ("LABEL_0", "LABEL_1"))
    metrics, *_ = evaluate_model(folder, task, "validation", 16, str(tmp_path / "cache"))
    assert metrics["accuracy"] == share_of(task, "no")


def test_random_weights_spread_as_the_recipe_says(tmp_path: Path) -> None:
    tokenizer = tiny_tasks.load_tokenizer(tmp_path)
    for spread in (0.02, 0.06):
        recipe = RECIPE.model_copy(update={"initializer_range": spread})
        weight = build_model(define("ner", ("O",)), recipe, None, tokenizer).bert.layers[0].intermediate.weight
        assert weight.std().item() == pytest.approx(spread, rel=0.05)


def test_weights_are_counted_without_loading_them(tmp_path: Path, task: Task) -> None:
    folder = tiny_tasks.save_fine_tuned(tmp_path, task)
    assert count_parameters(folder) == sum(p.numel() for p in load_fine_tuned(Path(folder)).model.parameters())


@pytest.mark.parametrize(
    ("labels", "make", "named"),
    [
        (("negative", "positive"), tiny_tasks.classification, "negative, positive"),
        (("no", "yes"), tiny_tasks.ner, "ner"),
        (("no", "yes"), tiny_tasks.columns, "size, color"),
    ],
)
def test_another_kind_of_task_is_refused(
    tmp_path: Path, task: Task, labels: tuple[str, str], make: Callable[[Path], TaskSpec], named: str
) -> None:
    folder, other = tiny_tasks.save_fine_tuned(tmp_path, task, labels), load_task(make(tmp_path / "other"))
    with pytest.raises(SpecError, match=named):
        evaluate_model(folder, other, "validation", 16, str(tmp_path / "cache"))


@pytest.mark.parametrize("may_lack", [False, True])
def test_a_model_gives_no_answer_where_it_has_learned_to_whatever_the_file_has(tmp_path: Path, may_lack: bool) -> None:
    learned, other = (load_task(tiny_tasks.qa(tmp_path / str(some), some)) for some in (may_lack, not may_lack))
    folder = Path(tiny_tasks.save_fine_tuned(tmp_path / str(may_lack), learned))
    values = json.loads((folder / RECORD_FILE).read_text()) | {"null_threshold": -1e9}
    (folder / RECORD_FILE).write_text(json.dumps(values))
    found = evaluate_model(str(folder), other, "validation", 16, str(tmp_path / "cache"))
    assert {bool(prediction.text) for prediction in found.predictions} == {not may_lack}


def test_columns_count_as_the_model_has_learnt_them(tmp_path: Path) -> None:
    spec = tiny_tasks.columns(tmp_path)
    task = load_task(spec)
    tiny_tasks.save_fine_tuned(tmp_path, task)
    fine_tuned = load_fine_tuned(tmp_path / "model")
    assert fine_tuned.task.columns == task.columns
    files = {"validation": spec.files["validation"]}
    elsewhere = load_task(spec.model_copy(update={"files": files, "labels": task.labels}))
    assert elsewhere.columns != task.columns
    assert with_labels_of(fine_tuned.task, elsewhere, "model").columns == task.columns


def test_transformers_loads_the_folder_and_agrees(tmp_path: Path, task: Task) -> None:
    folder = tiny_tasks.save_fine_tuned(tmp_path, task)
    text = "the good old road"
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    batch = transformers.AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")
    ours = load_fine_tuned(Path(folder))
    with torch.no_grad():
        expected = theirs(**batch).logits
        found = ours.model(**batch).logits
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert theirs.config.id2label == {0: "no", 1: "yes"}


def test_transformers_reads_several_labels_as_such(tmp_path: Path) -> None:
    task = load_task(tiny_tasks.multi_label(tmp_path))
    tiny_tasks.save_fine_tuned(tmp_path, task)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert theirs.config.problem_type == "multi_label_classification"
    assert theirs.config.id2label == dict(enumerate(task.labels))
    (tmp_path / "model" / RECORD_FILE).unlink()
    assert load_fine_tuned(tmp_path / "model").task.head == "multi_label"


@pytest.mark.parametrize(
    ("made", "config", "labels", "head"),
    [
        (transformers.BertForMultipleChoice, transformers.BertConfig, None, "multiple_choice"),
        (transformers.RobertaForTokenClassification, transformers.RobertaConfig, ["O", "B-PER", "I-PER"], "ner"),
        (transformers.RobertaForTokenClassification, transformers.RobertaConfig, ["NN", "VB"], "token_classification"),
    ],
)
def test_folder_of_transformers_tells_its_head(
    tmp_path: Path, made: Any, config: Any, labels: list[str] | None, head: str
) -> None:
    tokenizer = tiny_tasks.load_tokenizer(tmp_path)
    named = {} if labels is None else {"id2label": dict(enumerate(labels))}
    made(config(vocab_size=400, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, **named)).save_pretrained(
        tmp_path / "model"
    )
    tokenizer.save(tmp_path / "model")
    assert load_fine_tuned(tmp_path / "model").task.head == head


def test_folder_made_elsewhere_gets_usual_lengths(tmp_path: Path) -> None:
    tiny_tasks.save_pretrained(tmp_path / "model", BertForQuestionAnswering, max_position_embeddings=256)
    record = load_fine_tuned(tmp_path / "model").record
    assert (record.task.head, record.options.max_seq_length, record.options.max_answer_length) == ("qa", 256, 30)


def test_model_without_a_head_is_refused(tmp_path: Path) -> None:
    tiny_tasks.save_pretrained(tmp_path / "model")
    with pytest.raises(CheckpointError, match="BertForPreTraining"):
        load_fine_tuned(tmp_path / "model")


@pytest.mark.parametrize(
    ("values", "error"), [({"task": "words"}, CheckpointError), ({"format": 2, "tasks": ["words"]}, NewerFormatError)]
)
def test_a_record_that_is_cut_short_or_newer_is_refused(
    tmp_path: Path, task: Task, values: dict[str, object], error: type[Exception]
) -> None:
    path = Path(tiny_tasks.save_fine_tuned(tmp_path, task)) / RECORD_FILE
    path.write_text(json.dumps(values))
    with pytest.raises(error, match=r"fine_tuning\.json"):
        load_fine_tuned(path.parent)
