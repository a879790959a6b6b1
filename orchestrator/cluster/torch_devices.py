"""GPUs and CPU of a machine: whether torch can use them, in which precision, and notes on what limits them."""

import logging
import os
import platform
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from bert_core.constants import AskedPrecision
from orchestrator.base.errors import ClusterError, SpecError

logger = logging.getLogger(__name__)
OLDEST_CAPABILITY = (8, 0)
"""Compute capability of the first cards with units for bf16, and on which flash attention 2 runs: Ampere (A100)."""
_TOLD: set[str] = set()
"""Names of the old cards that this process has warned of."""
SLOW_BF16 = "bf16, for which this CPU has no units: it takes longer than fp32 here; set precision to fp32"
"""Text for a person whose spec asks for bf16 on such a CPU."""
_WITHOUT_CARD = (
    "compute on the CPU: --device cpu (evaluate, search, serve), --gpus-per-worker 0 (predict, embed), in a spec "
    "execution.device cpu (pretrain), execution.gpus 0 (distill), execution.gpus_per_trial 0 (sweep)"
)


@dataclass(frozen=True)
class Card:
    """A card that torch can compute on."""

    name: str
    """Name by its driver: `NVIDIA H200`."""
    capability: tuple[int, int]
    """Compute capability, as NVIDIA counts its generations: (8, 0) is an A100."""
    free_bytes: int
    total_bytes: int

    @property
    def capability_text(self) -> str:
        return "{}.{}".format(*self.capability)

    @property
    def has_bf16(self) -> bool:
        """Whether it has units for bf16; torch computes without them too, several times slower than in fp32."""
        return self.capability >= OLDEST_CAPABILITY

    @property
    def limits(self) -> str:
        """Limits of an old card, for its user; empty for others."""
        if self.has_bf16:
            return ""
        return (
            f"{self.name} (compute capability {self.capability_text}) is too old for flash attention and TF32: "
            "attention is computed on padded rows, and products in full fp32"
        )


def find_card() -> Card:
    """Find this process's first card, and launch a kernel there.

    Raises: ClusterError, with the reason why it cannot compute, and what to do.
    """
    if not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        raise ClusterError(
            f"a GPU is asked for, and this torch ({torch.__version__}) is built without CUDA; install the torch of "
            "constraints.txt for CUDA on the machines with GPUs"
        )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        is_available = torch.cuda.is_available()
    if not is_available:
        raise ClusterError(_no_card_text([str(warning.message) for warning in caught]))
    try:
        card = Card(torch.cuda.get_device_name(), torch.cuda.get_device_capability(), *torch.cuda.mem_get_info())
        launch_kernel()
        return card
    except RuntimeError as error:  # the driver is there, and the card does not answer
        if "no kernel image" in str(error):
            built_for, needed = ", ".join(torch.cuda.get_arch_list()), "sm_{}{}".format(*card.capability)
            raise ClusterError(
                f"the GPU cannot be used: {card.name} has compute capability {card.capability_text}, and this torch "
                f"({torch.__version__}) is built for {built_for}; install a torch that is built for {needed} there"
            ) from None
        raise ClusterError(f"the GPU cannot be used ({_first_sentence(str(error))}); look at `nvidia-smi`") from None


def launch_kernel() -> None:
    """Launch a small kernel on this process's card, and wait for its result. Raises: RuntimeError, torch's own."""
    torch.ones(1, device="cuda").add_(1).item()


def _no_card_text(warned: list[str]) -> str:
    """Reason why torch finds no card, from its warnings."""
    told = next((text for text in warned if "driver" in text.lower()), None)
    if told is None:
        reason = f" ({_first_sentence(warned[0])})" if warned else ""
        return (
            f"a GPU is asked for, and torch finds none{reason}; see `nvidia-smi` and CUDA_VISIBLE_DEVICES on that "
            "machine"
        )
    return (
        f"the GPU cannot be used: {_first_sentence(told)}; torch {torch.__version__} is built for CUDA "
        f"{torch.version.cuda}: update the driver, or install a torch for an older CUDA"
    )


def _first_sentence(text: str) -> str:
    """First sentence of torch's words, which go on with links and traces."""
    line = " ".join(text.split()) or "no reason given"
    return line.partition(". ")[0].rstrip(".")


def has_bf16_cpu() -> bool:
    """Whether this machine's CPU has units for bf16: AVX-512 BF16 or AMX on x86, whatever oneDNN takes elsewhere."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def choose_device(
    name: str,
    allow_tf32: bool = True,
    precision: AskedPrecision = "fp32",
    warn: Callable[[str], None] = logger.warning,
) -> torch.device:
    """Return the device of a name, after a look at its card and saying how this process multiplies fp32 matrices there.

    With TF32 both factors are rounded to 10 bits behind the point, as in fp16, and sums stay fp32: several times faster
    since the A100 (NVIDIA, "A100 Tensor Core GPU Architecture", 2020), and more exact than bf16, which has 7 bits. It
    is one setting of the whole process. CPUs multiply in fp32 always.

    Args:
        name: `cpu`, `cuda`, or `auto`: cuda where torch finds a card.
        warn: told, once in a process, of a card's age.

    Raises: ClusterError where there is no card that torch can use; SpecError where it has no units for the precision.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name != "cpu":
        try:
            card = find_card()
        except ClusterError as error:
            raise ClusterError(f"{error}, or {_WITHOUT_CARD}") from None
        if precision == "bf16" and not card.has_bf16:
            raise SpecError(
                f"precision bf16: {card.name} has no units for it (compute capability {card.capability_text}, "
                "8.0 is the first that has); set precision to fp32"
            )
        if card.limits and card.name not in _TOLD:
            _TOLD.add(card.name)
            warn(card.limits)
        torch.set_float32_matmul_precision("high" if allow_tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = allow_tf32  # the products of LSTMs and convolutions
    return torch.device(name)


def keep_one_order() -> None:
    """Let this process's CUDA kernels add up in one order alone, so that the same work gives the same bits again.

    It is to be called before the first matrix product: cuBLAS reads its variable once, and refuses without it. With
    `warn_only` attention would keep its backward pass whose order differs at each repetition (`bert_core.attention`).
    New memory is left as it is: torch would fill it with NaN, a kernel for each tensor, and all of it is written before
    it is read.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def autocast(device: torch.device, precision: AskedPrecision) -> AbstractContextManager[Any]:
    """bf16 arithmetic around a forward pass, or none."""
    return torch.autocast(device.type, torch.bfloat16) if computes_in_bf16(device, precision) else nullcontext()


def computes_in_bf16(device: torch.device, precision: AskedPrecision) -> bool:
    """Whether a device computes in bf16; with `auto` where it has units for it."""
    if precision == "auto":
        return (
            torch.cuda.get_device_capability(device) >= OLDEST_CAPABILITY if device.type == "cuda" else has_bf16_cpu()
        )
    return precision == "bf16"
