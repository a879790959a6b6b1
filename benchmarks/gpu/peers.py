"""The same training step in transformers, as its users run it: bf16 autocast, fused AdamW, eager or compiled."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from benchmarks._pretraining_batches import padded_loss
from benchmarks.gpu.own_step import Learner
from bert_core.heads.pretraining import BertForPreTraining

IS_INSTALLED = find_spec("transformers") is not None


def build_peer(own: BertForPreTraining, device: torch.device, compile_backend: str | None = None) -> Learner:
    """Build the model in transformers with the same weights; compiled where a backend is named."""
    import transformers  # seconds long, and missing on some machines

    config = transformers.BertConfig(**own.config.to_dict())
    model: Any = transformers.BertForPreTraining(config)
    loaded = model.load_state_dict(own.weight_names.to_file(own.state_dict()), strict=False)
    missing = set(loaded.missing_keys) - set(model._tied_weights_keys)
    assert not missing, f"transformers' model has weights that the one here lacks: {', '.join(sorted(missing))}"
    model = model.to(device).train()
    if compile_backend is not None:
        model = torch.compile(model, backend=compile_backend, dynamic=False)  # all its batches have one shape
    return Learner(model, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True), device)


def peer_loss(learner: Learner, batch: dict[str, Tensor]) -> Callable[[], Tensor]:
    """Make the function that computes the loss of padded rows."""
    return lambda: padded_loss(learner.model, batch)
