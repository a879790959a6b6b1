"""Constants that several parts agree on."""

from typing import Literal

IGNORE_INDEX = -100
"""Label of a position that no loss counts, as in PyTorch's cross entropy and in Hugging Face models."""

Precision = Literal["fp32", "bf16"]
"""Arithmetic of the forward and backward passes; weights are fp32 always."""

AskedPrecision = Literal["auto", "fp32", "bf16"]
"""Precision as a person asks for it; `auto` is bf16 on a device that has units for it, else fp32."""

OptimizerName = Literal["adamw", "stable_adamw", "lamb", "muon"]
"""Names of the optimizers in `bert_core.optimization`, for those who must not load torch."""
