"""Checkpoints that are written while training goes on: copied at once, written, digested and named by a thread.

What a checkpoint carries is that of its step, whatever is trained meanwhile, and no checkpoint is named before it is
complete. One is written at a time. A write that fails is raised by the next `take`, as if it had failed then.
"""

import logging
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from bert_core.checkpoints.host_copies import HostCopies
from bert_core.checkpoints.training_state import StateContents, contents_of
from orchestrator.results import CheckpointEvent
from orchestrator.training.checkpoints import Checkpoints

logger = logging.getLogger(__name__)


def saves_in_background(device: torch.device) -> bool:
    """Whether a run on a device writes its checkpoints while it trains.

    On a GPU: the host's processors are idle there. On CPUs the writer takes from training what training would otherwise
    wait for, and the copy takes memory.
    """
    return device.type == "cuda"


@dataclass(frozen=True)
class SavedCheckpoint:
    """A complete checkpoint, and what a person should know of it."""

    event: CheckpointEvent
    warnings: list[str]


class CheckpointSaver:
    """Saves checkpoints of one run, in a thread or at once.

    Args:
        in_background: whether `save` returns when the state has been copied, in place of when it has been written.
    """

    def __init__(self, checkpoints: Checkpoints, in_background: bool) -> None:
        self._checkpoints = checkpoints
        self._copies = HostCopies() if in_background else None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint") if in_background else None
        self._under_way: Future[SavedCheckpoint] | None = None

    def save(self, step: int, model: nn.Module, optimizer: Optimizer, extra: Mapping[str, Any]) -> None:
        """Save a checkpoint, which `take` returns when it is complete; the one before it has been taken.

        Raises: without a thread what `Checkpoints.write` raises.
        """
        assert self._under_way is None, "the copy of a checkpoint that is being written must stay as it is"
        if self._thread is None or self._copies is None:
            self._under_way = Future()
            self._under_way.set_result(self._write(step, contents_of(model, optimizer, extra)))
        else:
            contents = contents_of(model, optimizer, extra, self._copies.of)
            self._under_way = self._thread.submit(self._write, step, contents)

    def take(self, wait: bool = False) -> SavedCheckpoint | None:
        """Return a checkpoint that is complete, once; None where there is none, or while it is written.

        Args:
            wait: wait for the one that is being written.

        Raises: what `Checkpoints.write` raised.
        """
        if self._under_way is None or not (wait or self._under_way.done()):
            return None
        done, self._under_way = self._under_way, None
        return done.result()

    def settle(self) -> None:
        """Wait for a checkpoint that is being written, where another error is on its way: a failure is only logged."""
        try:
            self.take(wait=True)
        except Exception as error:
            logger.warning("the checkpoint that was being written failed: %s", error)

    def _write(self, step: int, contents: StateContents) -> SavedCheckpoint:
        warnings: list[str] = []
        return SavedCheckpoint(self._checkpoints.write(step, contents, warnings.append), warnings)
