"""NeoBERT against its definition, written down here from the paper and the authors' code on the hub: no package has it.

Run alone: pytest tests/bert_core/families/test_neobert.py
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig
from bert_core.heads import BertForPreTraining, BertForSequenceClassification
from tests.bert_core.reference import ragged_batch, scattered

PUBLISHED: dict[str, Any] = {
    "model_type": "neobert",
    "architectures": ["NeoBERTLMHead"],
    "dim_head": 64,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "max_length": 4096,
    "norm_eps": 1e-05,
    "num_attention_heads": 12,
    "num_hidden_layers": 28,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
    "vocab_size": 30522,
}


class Weights(dict[str, Tensor]):
    """Weights by their names in a file, all of which a definition has to read."""

    def __init__(self, model: PretrainedModel) -> None:
        named = model.weight_names.to_file(model.state_dict())
        super().__init__({name: tensor.clone().requires_grad_() for name, tensor in named.items()})
        self.unread = set(self)

    def __getitem__(self, name: str) -> Tensor:
        self.unread.discard(name)
        return super().__getitem__(name)


def root_mean_square_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / (x.square().mean(dim=-1, keepdim=True) + eps).sqrt() * weight


def rotated(x: Tensor) -> Tensor:
    """Neighboring numbers (S, N, D) as complex ones, turned by position · 10000^(−2i/D)."""
    length, _, size = x.shape
    angles = torch.arange(length)[:, None] * 10_000.0 ** (-torch.arange(0, size, 2) / size)  # (S, D/2)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)[:, None]).flatten(-2)


def encoded(weights: Weights, ids: Tensor, config: BertConfig) -> Tensor:
    """Final states of one sequence: (S,) → (S, H)."""
    num_heads, eps = config.num_attention_heads, config.layer_norm_eps
    x = weights["model.encoder.weight"][ids]
    for place in range(config.num_hidden_layers):
        layer = f"model.transformer_encoder.{place}."
        normed = root_mean_square_norm(x, weights[f"{layer}attention_norm.weight"], eps)
        heads = (normed @ weights[f"{layer}qkv.weight"].T).unflatten(-1, (num_heads, -1))  # (S, N, 3D)
        q, k, v = heads.chunk(3, dim=-1)
        scores = torch.einsum("qnd,knd->nqk", rotated(q), rotated(k)) / q.shape[-1] ** 0.5
        context = torch.einsum("nqk,knd->qnd", scores.softmax(dim=-1), v).flatten(1)
        x = x + context @ weights[f"{layer}wo.weight"].T
        normed = root_mean_square_norm(x, weights[f"{layer}ffn_norm.weight"], eps)
        gate, value = (normed @ weights[f"{layer}ffn.w12.weight"].T).chunk(2, dim=-1)
        x = x + (F.silu(gate) * value) @ weights[f"{layer}ffn.w3.weight"].T
    return root_mean_square_norm(x, weights["model.layer_norm.weight"], eps)


def random_model(head: type[PretrainedModel], seed: int) -> PretrainedModel:
    shape = {"hidden_size": 24, "num_hidden_layers": 1 + seed, "num_attention_heads": (3, 1, 6)[seed]}
    config = BertConfig.from_size("tiny", "neobert", vocab_size=47, intermediate_size=32, layer_norm_eps=1e-3, **shape)
    return scattered(head.from_config(config.with_dropout(0.0).with_labels(["a", "b", "c"]), seed))


def assert_same_loss_and_gradients(model: PretrainedModel, found: Tensor, expected: Tensor, weights: Weights) -> None:
    assert not weights.unread
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for loss in (found, expected):
        loss.backward()
    ours = model.weight_names.to_file({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    for name, weight in weights.items():
        torch.testing.assert_close(ours[name], weight.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_masked_tokens_agree_with_the_definition(seed: int) -> None:
    model = random_model(BertForPreTraining, seed)
    assert isinstance(model, BertForPreTraining)
    batch, lengths = ragged_batch(model.config, [9, 5, 7], 9, seed), (9, 5, 7)
    labels = batch["input_ids"].where(batch["attention_mask"].bool() & (torch.arange(9) % 3 == 1), -100)
    weights = Weights(model)
    logits = [
        encoded(weights, row[:length], model.config) @ weights["decoder.weight"].T + weights["decoder.bias"]
        for row, length in zip(batch["input_ids"], lengths, strict=True)
    ]
    output = model(**batch, labels=labels, return_logits=True)
    for row, expected in zip(output.prediction_logits, logits, strict=True):
        torch.testing.assert_close(row[: len(expected)], expected, atol=1e-5, rtol=1e-5)
    expected = F.cross_entropy(torch.cat(logits), labels[batch["attention_mask"].bool()])
    assert_same_loss_and_gradients(model, output.loss, expected, weights)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_classes_agree_with_the_definition(seed: int) -> None:
    model = random_model(BertForSequenceClassification, seed)
    batch, labels = ragged_batch(model.config, [9, 5, 7], 9, seed), torch.tensor([2, 0, 1])
    weights = Weights(model)
    first = torch.stack(
        [
            encoded(weights, row[:length], model.config)[0]
            for row, length in zip(batch["input_ids"], (9, 5, 7), strict=True)
        ]
    )
    pooled = (first @ weights["dense.weight"].T + weights["dense.bias"]).tanh()
    logits = pooled @ weights["classifier.weight"].T + weights["classifier.bias"]
    output = model(**batch, labels=labels)
    torch.testing.assert_close(output.logits, logits, atol=1e-5, rtol=1e-5)
    assert_same_loss_and_gradients(model, output.loss, F.cross_entropy(logits, labels), weights)


@pytest.mark.parametrize("head", [BertForPreTraining, BertForSequenceClassification])
def test_a_folder_has_the_authors_names_and_gives_the_same_weights(head: type[PretrainedModel], tmp_path: Path) -> None:
    model = random_model(head, 1)
    model.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    assert (values["model_type"], values["intermediate_size"], values["norm_eps"]) == ("neobert", 48, 1e-3)
    again = head.from_pretrained(tmp_path)
    assert again.config == model.config
    assert again.load_report is not None
    assert again.load_report.dropped == again.load_report.initialized == ()
    assert all(map(torch.equal, again.state_dict().values(), model.state_dict().values()))


def test_the_published_configuration_has_as_many_weights_as_the_published_file() -> None:
    config = BertConfig.from_dict(PUBLISHED)
    assert (config.intermediate_size, config.max_seq_length, config.family.model_type) == (2048, 4096, "neobert")
    assert sum(parameter.numel() for parameter in BertForPreTraining(config, seed=None).parameters()) == 245_136_954
