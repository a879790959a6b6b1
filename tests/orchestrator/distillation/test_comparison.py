"""Agreement, sizes and speeds of two models. Run alone: pytest tests/orchestrator/distillation/test_comparison.py"""

from pathlib import Path

from bert_core.config import BertConfig
from bert_core.heads import BertForSequenceClassification
from orchestrator.distillation.comparison import compare_sizes, compare_speeds
from orchestrator.tasks import load_task
from tests.orchestrator.finetuning import tiny_tasks
from tests.orchestrator.tasks.definitions import features_of


def two_models(vocab_size: int) -> tuple[BertForSequenceClassification, BertForSequenceClassification]:
    small, large = (BertConfig.from_shape(layers, 128, vocab_size=vocab_size) for layers in (1, 8))
    return BertForSequenceClassification.from_config(small), BertForSequenceClassification.from_config(large)


def test_sizes_count_every_weight() -> None:
    student, teacher = two_models(100)
    layer = sum(parameter.numel() for parameter in teacher.bert.layers[0].parameters())
    sizes = compare_sizes(student, teacher)
    assert sizes["teacher.num_parameters"] - sizes["num_parameters"] == 7 * layer
    assert sizes["parameter_ratio"] == sizes["num_parameters"] / sizes["teacher.num_parameters"]


def test_an_eighth_of_the_layers_is_faster(tmp_path: Path) -> None:
    tokenizer = tiny_tasks.load_tokenizer(tmp_path)
    task = load_task(tiny_tasks.classification(tmp_path))
    features = features_of(task.head, task.labels, task.examples("train"), tokenizer, max_seq_length=32)
    student, teacher = two_models(tokenizer.vocab_size)
    speeds = compare_speeds(student, teacher, features)
    assert speeds["examples_per_s"] > speeds["teacher.examples_per_s"] > 0
    assert speeds["speed_ratio"] > 1.5
