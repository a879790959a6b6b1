"""Layer normalization (Ba et al. 2016) that says in which type the residual stream goes on under autocast.

PyTorch's autocast computes a LayerNorm in fp32 and leaves its output so. Each addition to it is fp32 as well, and with
it all that a layer moves between its matrix products: on a GPU, twice the memory traffic of 16 bits. With the residual
stream in bf16 the norms give bf16, with fp32 inside for mean, variance and the scaled result before it is rounded, as
in MosaicBERT's low-precision LayerNorm (Portes et al. 2023, section 2). Parameters stay fp32.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class LayerNorm(nn.LayerNorm):
    """LayerNorm with the parameters of `nn.LayerNorm`, and its results unless `residual_dtype` is set."""

    residual_dtype: torch.dtype | None = None
    """Type of the output under autocast; None leaves it to autocast. Without autocast it has no effect."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalize the last dimension: (…, H) → (…, H)."""
        device, dtype = x.device.type, self.residual_dtype
        if dtype is None or not torch.is_autocast_enabled(device):
            return super().forward(x)
        weight, bias = self.weight.to(x.dtype), None if self.bias is None else self.bias.to(x.dtype)
        with torch.autocast(device, enabled=False):
            return F.layer_norm(x, self.normalized_shape, weight, bias, self.eps).to(dtype)


def set_residual_dtype(model: nn.Module, dtype: torch.dtype | None) -> None:
    """Choose the type of the residual stream under autocast, for all of a model's encoders.

    It is a property of the training and not of the model: it is not saved with it.
    """
    for module in model.modules():
        if isinstance(module, LayerNorm):
            module.residual_dtype = dtype
