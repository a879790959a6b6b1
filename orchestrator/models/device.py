"""The device that a process computes on, how exact fp32 products are there, and whether their bits repeat."""

import logging
import os
from collections.abc import Callable

import torch

from orchestrator.specs.network import Precision
from orchestrator.training.cards import check_card, find_card, new_card_notes

logger = logging.getLogger(__name__)
COMMANDS_WITHOUT_CARD = (
    "do without it: --device cpu (serve, search), --gpus-per-worker 0 (predict, embed), gpus=0 (evaluate)"
)
"""Options of commands, by which they compute on the CPU."""


def choose_device(
    name: str,
    allow_tf32: bool = True,
    precision: Precision = "fp32",
    warn: Callable[[str], None] = logger.warning,
    *,
    is_shared: bool = False,
    trains: bool = False,
    or_else: str = COMMANDS_WITHOUT_CARD,
) -> torch.device:
    """Return the device of a name, after a look at its card and saying how this process multiplies fp32 matrices there.

    With TF32 both factors are rounded to 10 bits behind the point, as in fp16, and sums stay fp32: several times faster
    since the A100 (NVIDIA, "A100 Tensor Core GPU Architecture", 2020), and more exact than bf16, which has 7 bits. It
    is one setting of the whole process. CPUs multiply in fp32 always.

    Args:
        warn: told, once in a process, what limits work on its card: others on it, or its age.
        is_shared: whether others on the card are of the same work, so that nobody need be told of them.
        trains: whether it is for a training, where fp32 on a card with units for bf16 is a limit, too.
        or_else: what whoever asked can set to do without a card that cannot be used: a field of a spec with its value.

    Raises: ClusterError where there is no card that torch can use; SpecError where it has no units for the precision.
    """
    if name != "cpu":
        check_card(find_card(or_else), precision)
        for note in new_card_notes(name, is_shared=is_shared, trains_in=precision if trains else None):
            warn(note)
        torch.set_float32_matmul_precision("high" if allow_tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = allow_tf32  # an LSTM's own products
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
