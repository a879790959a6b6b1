"""Losses of distillation against formulas written out, and students cut out of teachers.

Run alone: pytest tests/bert_core/test_distillation.py
"""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.distillation import (
    hidden_cosine_loss,
    soft_span_loss,
    soft_target_loss,
    student_of,
    vector_loss,
)
from bert_core.errors import ConfigError, DataError
from bert_core.heads import (
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from bert_core.packed_sequences import PackedSequences
from tests.bert_core.reference import scattered, small_config

LENGTHS = [5, 1, 9]


def packed(config: BertConfig) -> PackedSequences:
    ids = torch.randint(1, config.vocab_size, (sum(LENGTHS),), generator=torch.Generator().manual_seed(3))
    return PackedSequences.from_lengths(ids, torch.zeros_like(ids), torch.tensor([0, 5, 6, 15]))


def two_sides(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return 3 * torch.randn(shape, generator=generator), 3 * torch.randn(shape, generator=generator)


@hypothesis_settings(max_examples=20)
@given(rows=st.integers(1, 6), classes=st.integers(2, 9), temperature=st.floats(0.5, 10.0))
def test_soft_targets_are_the_divergence_written_out(rows: int, classes: int, temperature: float) -> None:
    student, teacher = two_sides(rows, classes)
    p, q = (torch.exp(x / temperature) / torch.exp(x / temperature).sum(1, True) for x in (teacher, student))
    expected = temperature**2 * (p * torch.log(p / q)).sum() / rows
    torch.testing.assert_close(soft_target_loss(student, teacher, temperature), expected, atol=1e-5, rtol=1e-4)


def test_soft_targets_pull_towards_the_teachers_distribution() -> None:
    student, teacher = two_sides(4, 5)
    student.requires_grad_()
    soft_target_loss(student, teacher, 3.0).backward()  # type: ignore[no-untyped-call]
    expected = 3.0 * ((student.detach() / 3.0).softmax(1) - (teacher / 3.0).softmax(1)) / 4  # Hinton et al., formula 2
    torch.testing.assert_close(student.grad, expected)


def test_spans_are_compared_within_their_own_sequence() -> None:
    student, teacher = two_sides(sum(LENGTHS), 2)
    student.requires_grad_()
    loss = soft_span_loss(student, teacher, packed(small_config()), 2.0)
    parts = []
    for own, other in zip(student.detach().split(LENGTHS), teacher.split(LENGTHS), strict=True):
        for side in range(2):
            log_q, p = F.log_softmax(own[:, side] / 2, 0), F.softmax(other[:, side] / 2, 0)
            parts.append(4 * F.kl_div(log_q, p, reduction="sum"))
    torch.testing.assert_close(loss, torch.stack(parts).mean())
    loss.backward()  # type: ignore[no-untyped-call]
    assert student.grad is not None
    assert student.grad.isfinite().all()


def test_cosine_is_a_tokens_mean_and_knows_no_length() -> None:
    student, teacher = two_sides(6, 8)
    one_by_one = [1 - a @ b / (a.norm() * b.norm()) for a, b in zip(student, teacher, strict=True)]
    torch.testing.assert_close(hidden_cosine_loss(student, teacher), torch.stack(one_by_one).mean())
    assert hidden_cosine_loss(5 * teacher, teacher).item() == pytest.approx(0.0, abs=1e-6)


SHAPES = {
    "bert": {},
    "distilbert": {"model_type": "distilbert", "type_vocab_size": 0, "sentence_head": False},
    "pre-norm": {"model_type": "bert_core", "norm_placement": "pre"},
    "albert": {"model_type": "albert", "embedding_size": 12, "num_hidden_groups": 1},
}


def teacher_of(head: type[PretrainedModel], num_layers: int, **changes: object) -> PretrainedModel:
    return scattered(head.from_config(small_config(num_hidden_layers=num_layers, **changes))).eval()


@pytest.mark.parametrize(
    ("num_layers", "kept", "origins"), [(6, 3, [0, 2, 4]), (6, 2, [0, 3]), (5, 3, [0, 1, 3]), (4, 1, [0])]
)
def test_a_student_has_evenly_spread_layers_and_all_else(num_layers: int, kept: int, origins: list[int]) -> None:
    teacher = teacher_of(BertForTokenClassification, num_layers, token_decoder="crf")
    student = student_of(teacher, kept)
    assert student.config.num_hidden_layers == len(student.bert.layers) == kept
    for place, origin in enumerate(origins):
        theirs = teacher.bert.layers[origin].state_dict()
        assert all(value.equal(theirs[name]) for name, value in student.bert.layers[place].state_dict().items())
    weights = teacher.state_dict()
    others = [name for name in student.state_dict() if "layers." not in name]
    assert {"classifier.weight", "crf.transitions", "bert.embeddings.word.weight"} <= set(others)
    assert all(student.state_dict()[name].equal(weights[name]) for name in others)


def test_a_student_may_have_another_dropout_than_its_teacher() -> None:
    teacher = teacher_of(BertForTokenClassification, 2)
    config = student_of(teacher, 1, dropout=0.2, attention_dropout=0.0).config
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.2, 0.0)
    own = teacher.config
    assert student_of(teacher, 1).config.attention_probs_dropout_prob == own.attention_probs_dropout_prob


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("head", [BertForPreTraining, BertForQuestionAnswering])
def test_a_student_computes_what_the_teachers_chosen_layers_do(shape: str, head: type[PretrainedModel]) -> None:
    teacher = teacher_of(head, 4, **SHAPES[shape])
    seqs = packed(teacher.config)
    student = student_of(teacher, 2).eval()
    if shape != "albert":  # whose one layer is simply used twice
        teacher.bert.layers = torch.nn.ModuleList(teacher.bert.layers[place] for place in (0, 2))
    teacher.bert.config = student.bert.config
    with torch.no_grad():
        assert student.bert.encode(seqs).equal(teacher.bert.encode(seqs))


def test_layers_that_share_weights_keep_their_groups() -> None:
    teacher = teacher_of(BertForPreTraining, 6, model_type="albert", embedding_size=12, num_hidden_groups=4)
    fewer = student_of(teacher, 2)
    assert fewer.config.num_hidden_groups == 2
    for place, origin in enumerate((0, 2)):
        assert fewer.bert.layers[place].qkv.weight.equal(teacher.bert.layers[origin].qkv.weight)
    assert len(student_of(teacher, 5).bert.layers) == 4


def test_a_scalar_mix_of_layers_starts_anew() -> None:
    student = student_of(teacher_of(BertForSequenceClassification, 4, layer_pooling="scalar_mix"), 2)
    assert student.bert.layer_pooling.weights.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("num_layers", [0, 3, 4])
def test_a_student_as_deep_as_its_teacher_is_refused(num_layers: int) -> None:
    with pytest.raises(ConfigError, match=rf"num_hidden_layers {num_layers} must be at least 1 and below .* 3"):
        student_of(teacher_of(BertForSequenceClassification, 3), num_layers)


def test_the_vectors_loss_is_the_mean_squared_distance_and_of_unit_vectors_the_cosines() -> None:
    student, teacher = two_sides(5, 8)
    distances = torch.stack([torch.dist(a, b) ** 2 for a, b in zip(student, teacher, strict=True)])
    torch.testing.assert_close(vector_loss(student, teacher), distances.mean())
    student, teacher = F.normalize(student, dim=-1), F.normalize(teacher, dim=-1)
    torch.testing.assert_close(vector_loss(student, teacher), 2 * hidden_cosine_loss(student, teacher))
    with pytest.raises(DataError, match=r"vectors have the shapes \(5, 8\) and \(5, 4\)"):
        vector_loss(student, teacher[:, :4])
