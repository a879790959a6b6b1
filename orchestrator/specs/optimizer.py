"""Fields of the optimizer, which pretraining and fine-tuning have alike."""

from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator

from bert_core.learning_rates import SCHEDULES
from orchestrator.specs.fields import identity

if TYPE_CHECKING:
    ScheduleName = str
else:  # the list decides which names there are
    ScheduleName = Literal[tuple(SCHEDULES)]


def _decays(betas: tuple[float, float]) -> tuple[float, float]:
    if not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"has {betas[0]:g} and {betas[1]:g}; both must be at least 0 and below 1")
    return betas


AdamBetas = Annotated[tuple[float, float], AfterValidator(_decays)]

warmup_ratio = partial(identity, doc="Share of the steps that warm up linearly.", unit="share", ge=0.0, lt=1.0)
learning_rate_schedule = partial(
    identity,
    "linear",
    "Learning rate after the warm-up: a line or half a cosine down to 0, or the peak to the end.",
    is_new=True,
)
weight_decay = partial(identity, 0.01, "AdamW's decay; none on biases and LayerNorm.", ge=0.0)
adam_betas = partial(identity, (0.9, 0.999), "AdamW's moment decays.")
adam_epsilon = partial(identity, 1e-6, "AdamW's epsilon.", gt=0.0)
max_grad_norm = partial(identity, 1.0, "Gradients are clipped to this norm.", gt=0.0)
