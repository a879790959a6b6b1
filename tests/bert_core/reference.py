"""Small models, ragged batches, rotary positions by their definition, and the same model in transformers."""

import math
from typing import Any

import torch
from torch import Tensor

from bert_core.checkpoints.pretrained import PretrainedModel
from bert_core.config import BertConfig

torch.set_num_threads(1)  # a second thread brings nothing to models this small, and much waiting on a busy machine


def small_config(**changes: Any) -> BertConfig:
    """A model that runs in milliseconds, without dropout."""
    shape: dict[str, Any] = {
        "vocab_size": 53,
        "hidden_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "max_position_embeddings": 32,
    }
    return BertConfig(**(shape | changes)).with_dropout(0.0)


def scattered(model: PretrainedModel) -> PretrainedModel:
    """The model with larger weights and no zero biases, so that a mistake in any of them shows."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.15 * torch.randn(parameter.shape, generator=generator))
    return model


def ragged_batch(config: BertConfig, lengths: list[int], width: int, seed: int = 0) -> dict[str, Tensor]:
    """Padded rows with random tokens, `lengths` of them real."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(lengths), width)
    mask = (torch.arange(width) < torch.tensor(lengths)[:, None]).long()
    input_ids = torch.randint(1, config.vocab_size, shape, generator=generator)
    padding = 0 if config.pad_token_id is None else config.pad_token_id
    batch = {"input_ids": torch.where(mask.bool(), input_ids, padding), "attention_mask": mask}
    if config.type_vocab_size:
        batch["token_type_ids"] = torch.randint(0, config.type_vocab_size, shape, generator=generator) * mask
    return batch


def learned_losses(model: PretrainedModel, batch: dict[str, Tensor], num_steps: int, rate: float) -> list[float]:
    """Losses of a model that is trained on one batch, under autocast; they have all digits."""
    optimizer, losses = torch.optim.Adam(model.train().parameters(), lr=rate), []
    for step in range(num_steps):
        torch.manual_seed(step)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(**batch).loss
        assert loss.dtype == torch.float32
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses


def rotated_by_definition(x: list[float], position: int, base: float) -> list[float]:
    """A head's vector as complex numbers x_i + i·x_(i + D/2), each rotated by position · base^(−2i/D)."""
    half = len(x) // 2
    angles = [position * base ** (-2 * i / len(x)) for i in range(half)]
    numbers = [complex(x[i], x[i + half]) * complex(math.cos(a), math.sin(a)) for i, a in enumerate(angles)]
    return [number.real for number in numbers] + [number.imag for number in numbers]


def reference_of(model: PretrainedModel) -> Any:
    """The same model in transformers with the same weights."""
    import transformers  # seconds long, and not every test beside this file needs it

    family = model.config.family
    config = transformers.AutoConfig.for_model(**model.config.to_dict())
    architecture = getattr(transformers, family.architecture(type(model).__name__))
    weights, reference = model.weight_names.to_file(model.state_dict()), architecture(config)
    missing, unexpected = reference.load_state_dict(weights, strict=False)
    if unexpected:  # names in memory are not those in files
        reference, info = architecture.from_pretrained(
            None, config=config, state_dict=weights, output_loading_info=True
        )
        missing, unexpected = info["missing_keys"], info["unexpected_keys"]
    assert not unexpected
    assert all(name in family.tied_weights or name.endswith("position_ids") for name in missing), missing
    return reference.train(model.training)


def assert_equal_gradients(model: PretrainedModel, reference: Any, tolerance: float = 1e-4) -> None:
    """Every parameter's gradient differs from the reference's by a small share of its norm.

    A hundredth of the whole norm is added, since some gradients are zero but for rounding (the key's bias, for one).
    """
    from transformers.core_model_loading import revert_weight_conversion  # to the names in files

    ours = {n: p.grad if p.grad is not None else torch.zeros_like(p) for n, p in model.named_parameters()}
    theirs = {n: p.grad if p.grad is not None else torch.zeros_like(p) for n, p in reference.named_parameters()}
    theirs = revert_weight_conversion(reference, theirs)
    names = model.weight_names
    mine, other = (names.normalized(side, ours) for side in (names.to_file(ours), theirs))
    assert mine.keys() == other.keys()
    total = float(torch.stack([gradient.norm() for gradient in other.values()]).norm())
    for name, gradient in mine.items():
        scale = float(other[name].norm()) + 0.01 * total
        assert float((gradient - other[name]).norm()) <= tolerance * scale, name
