"""Distillation below Ray: a student learns its teacher's answers, whatever the labels say; both are compared.

Run alone: pytest tests/orchestrator/finetuning/test_distillation_job.py
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bert_core.config import BertConfig
from bert_core.errors import CheckpointError, TokenizerError
from bert_core.heads import BertForPreTraining
from bert_core.text.tokenizer_training import train_wordpiece
from orchestrator.base.errors import ClusterError, SpecError
from orchestrator.finetuning.evaluation import evaluate_model
from orchestrator.finetuning.heads.embedding import DualEncoder
from orchestrator.finetuning.model_folder import load_fine_tuned
from orchestrator.specs import TaskSpec
from orchestrator.tasks.loading import load_task
from tests.orchestrator.finetuning import tiny_tasks
from tests.orchestrator.finetuning.tiny_distillation import Bench, train_teacher

pytestmark = pytest.mark.training


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A teacher of the task of good and bad, and its training split with every label turned round."""
    folder = tmp_path_factory.mktemp("classifier")
    task = tiny_tasks.classification(folder / "task")
    teacher = train_teacher(task, folder)
    lines = [json.loads(line) for line in Path(task.files["train"]).read_text().splitlines()]
    turned = [{**line, "label": {"yes": "no", "no": "yes"}[line["label"]]} for line in lines]
    path = folder / "turned.jsonl"
    path.write_text("\n".join(map(json.dumps, turned)), encoding="utf-8")
    return Bench(task.model_copy(update={"files": {**task.files, "train": str(path)}}), teacher, folder)


def test_a_student_learns_what_the_teacher_says_and_not_what_the_labels_say(classifier: Bench) -> None:
    result = classifier.run()
    assert result.metrics["teacher.accuracy"] > 0.95
    assert result.metrics["agreement"] > 0.95
    assert result.metrics["accuracy"] > 0.9 > result.metrics["baseline.accuracy"] + 0.2
    assert classifier.run(objective={"soft_targets_weight": 0.0, "labels_weight": 1.0}).metrics["agreement"] < 0.6


def test_texts_without_labels_teach_what_few_labels_do_not(classifier: Bench, tmp_path: Path) -> None:
    task = classifier.task.model_copy(update={"max_train_examples": 8})
    few = Bench(task, classifier.teacher, tmp_path)
    texts = [json.loads(line)["text"] for line in Path(task.files["train"]).read_text().splitlines()]
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    taught = few.run(unlabeled=[str(tmp_path / "texts.txt")], recipe={"epochs": 6.0})
    assert taught.metrics["agreement"] > 0.95 > few.run(recipe={"epochs": 120.0}).metrics["agreement"]
    assert [dataset.counts["num_train_examples"] for dataset in taught.datasets] == [8, 320]
    begun = [few.run(unlabeled=[str(tmp_path / name)], recipe={"epochs": 1.0}) for name in ("texts.txt", "texts.jsonl")]
    assert begun[0].metrics["agreement"] == begun[1].metrics["agreement"]


def test_a_student_without_a_card_is_told_the_field_of_its_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    bench = Bench(tiny_tasks.classification(tmp_path), "teacher", tmp_path)
    with pytest.raises(ClusterError, match=r"execution\.gpus"):
        bench.run(execution={"gpus": 1})


HEADS: dict[str, tuple[Callable[[Path], TaskSpec], str, dict[str, object]]] = {
    "regression": (tiny_tasks.regression, "pearson", {}),
    "crf": (tiny_tasks.ner, "f1", {"token_decoder": "crf"}),
    "qa": (tiny_tasks.qa, "f1", {"epochs": 8.0}),
}


@pytest.mark.parametrize("head", HEADS)
def test_a_student_of_each_head_agrees_with_its_teacher(head: str, tmp_path: Path) -> None:
    make, metric, recipe = HEADS[head]
    task = make(tmp_path / "task")
    bench = Bench(task, train_teacher(task, tmp_path, **recipe), tmp_path)
    result = bench.run(recipe={"epochs": 8.0})
    assert result.metrics["agreement"] > 0.9
    assert result.metrics[metric] > 0.8 > result.metrics[f"baseline.{metric}"]
    student = load_fine_tuned(Path(result.model.folder))
    assert student.model.config.token_decoder == ("crf" if head == "crf" else "softmax")


@pytest.mark.parametrize(("objective", "metric"), [("cosine", "spearman"), ("in_batch_negatives", "mrr_at_10")])
def test_a_students_vectors_come_to_be_its_teachers(objective: str, metric: str, tmp_path: Path) -> None:
    task = tiny_tasks.pairs(tmp_path / "task", objective)
    bench = Bench(task, train_teacher(task, tmp_path, pooling="max"), tmp_path)
    before, after = (bench.run(recipe={"epochs": epochs}).metrics for epochs in (0.01, 4.0))
    assert before["agreement"] < 0.7 < 0.95 < after["agreement"]
    assert after[metric] == pytest.approx(after[f"teacher.{metric}"], abs=0.1)
    student = load_fine_tuned(bench.folder / "run/model").model
    assert isinstance(student, DualEncoder)
    assert student.embedding.pooling == "max"


def test_vectors_of_unequal_width_are_refused(tmp_path: Path) -> None:
    task = tiny_tasks.pairs(tmp_path / "task", "cosine")
    bench = Bench(task, train_teacher(task, tmp_path, epochs=0.1), tmp_path)
    with pytest.raises(SpecError, match=r"objective\.soft_targets_weight"):
        bench.run(recipe={"size": "mini"})


def test_a_student_of_fewer_layers_is_a_fine_tuned_model_like_others(classifier: Bench) -> None:
    result = classifier.run(num_hidden_layers=1, recipe={"dropout": 0.1})
    metrics = result.metrics
    student, teacher = (load_fine_tuned(Path(folder)) for folder in (result.model.folder, classifier.teacher))
    assert (student.model.config.num_hidden_layers, student.model.config.hidden_dropout_prob) == (1, 0.1)
    assert student.record == teacher.record
    assert result.model.num_parameters == metrics["num_parameters"]
    assert metrics["parameter_ratio"] == metrics["num_parameters"] / metrics["teacher.num_parameters"] < 1
    assert metrics["speed_ratio"] == metrics["examples_per_s"] / metrics["teacher.examples_per_s"]
    again, *_ = evaluate_model(
        result.model.folder, load_task(classifier.task), "validation", 16, str(classifier.folder)
    )
    assert again["accuracy"] == metrics["accuracy"]
    rows = [json.loads(line) for line in Path(str(result.predictions_path)).read_text().splitlines()]
    assert sum(row["correct"] for row in rows) / len(rows) == metrics["accuracy"]
    assert result.test_metrics["accuracy"] > 0.9 > result.test_metrics["baseline.accuracy"]
    assert result.test_metrics["teacher.accuracy"] > 0.9
    assert len((classifier.folder / "run/predictions/test.jsonl").read_text().splitlines()) == 50


def save_start(folder: Path, words: str) -> str:
    """A pretrained model of one layer whose tokenizer knows these words, or those of the tiny tasks."""
    tokenizer = train_wordpiece([words], 300, min_frequency=1) if words else tiny_tasks.load_tokenizer(folder)
    shape = BertConfig.from_shape(1, 128, vocab_size=tokenizer.vocab_size)
    BertForPreTraining.from_config(shape, seed=5).save_pretrained(folder / "start")
    tokenizer.save(folder / "start")
    return str(folder / "start")


def test_a_student_starts_from_another_model_of_the_same_vocabulary(classifier: Bench, tmp_path: Path) -> None:
    start = save_start(tmp_path, "")
    result = classifier.run(start, recipe={"init_from": "start", "learning_rate": 1e-9, "epochs": 0.1})
    student = load_fine_tuned(Path(result.model.folder)).model
    before = BertForPreTraining.from_pretrained(start)
    torch.testing.assert_close(student.bert.layers[0].qkv.weight, before.bert.layers[0].qkv.weight, atol=1e-6, rtol=0)


def test_another_vocabulary_is_refused(classifier: Bench, tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="vocabulary is not"):
        classifier.run(save_start(tmp_path, "quite other words"), recipe={"init_from": "start"})


def test_hidden_states_of_unequal_width_are_refused(classifier: Bench) -> None:
    with pytest.raises(SpecError, match=r"objective\.hidden_cosine_weight"):
        classifier.run(recipe={"size": "mini"}, objective={"hidden_cosine_weight": 1.0})


def test_a_teacher_without_a_head_is_refused(classifier: Bench, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="has no head"):
        Bench(classifier.task, save_start(tmp_path, ""), tmp_path).run()


def test_texts_longer_than_the_teacher_reads_are_refused(classifier: Bench) -> None:
    with pytest.raises(SpecError, match=r"recipe\.max_seq_length"):
        classifier.run(recipe={"max_seq_length": 513})
