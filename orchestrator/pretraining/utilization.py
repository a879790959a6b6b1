"""Utilization of GPUs: the share of their peak speed that goes into the model's own arithmetic.

MFU, model FLOPs utilization (Chowdhery et al. 2022, appendix B): FLOPs that the model asks for in a second, divided by
those that the GPUs could do. What is computed twice to save memory does not count. Here the few that
`bert_core.model_flops` leaves out do not count either, so the true share is a little higher.
"""

import math
from dataclasses import dataclass
from typing import Self

import torch

from bert_core.config import BertConfig
from bert_core.model_flops import count_flops_per_prediction, count_flops_per_read_token, count_flops_per_token
from orchestrator.pretraining.collectives import Worker, all_reduce_sum

PEAK_FLOPS = {
    "NVIDIA A10": 125e12,
    "NVIDIA A30": 165e12,
    "NVIDIA A40": 149.7e12,
    "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA A100-PCIE-40GB": 312e12,
    "NVIDIA A100 80GB PCIe": 312e12,
    "NVIDIA H100 80GB HBM3": 989.4e12,
    "NVIDIA H100 PCIe": 756e12,
    "NVIDIA H200": 989.4e12,
    "NVIDIA L4": 121e12,
    "NVIDIA L40": 181e12,
    "NVIDIA L40S": 362e12,
}
"""FLOP/s in bf16 on dense matrices, from NVIDIA's data sheets, by the names that its driver gives to whole GPUs.

Other devices, and parts of a GPU (MIG), have no entry: no share is better than one of a guessed peak.
"""


@dataclass(frozen=True)
class Utilization:
    """Factors that turn a speed into a share of the peak."""

    flops_per_token: int
    """FLOPs for each token, read by a head or not."""
    flops_per_prediction: int
    """FLOPs for each prediction of a token, those of the last layer among them."""
    peak: float
    """FLOP/s of all workers' devices."""

    @classmethod
    def of(cls, config: BertConfig, precision: str, worker: Worker) -> Self | None:
        """Utilization of a run; None where the peak of some worker's device is not known. All workers ask."""
        if worker.device.type != "cuda" or precision != "bf16":
            return None
        own = PEAK_FLOPS.get(torch.cuda.get_device_name(worker.device), math.nan)
        peak = torch.tensor(own, dtype=torch.float64, device=worker.device)
        all_reduce_sum(peak, worker)
        if math.isnan(float(peak)):
            return None
        read = count_flops_per_read_token(config)
        return cls(count_flops_per_token(config) - read, count_flops_per_prediction(config) + read, float(peak))

    def share(self, num_tokens: float, num_predictions: float, seconds: float) -> float:
        """Share of the peak, from 0 to 1, at which tokens were trained on and predicted in a time."""
        flops = self.flops_per_token * num_tokens + self.flops_per_prediction * num_predictions
        return flops / seconds / self.peak
