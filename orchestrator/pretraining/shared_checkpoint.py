"""The checkpoint that a group of workers goes on from: the first worker reads it and sends it to the others.

So it is downloaded once, and all of them go on from the same step even where the newest one is damaged.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from bert_core.checkpoints.training_state import TrainingState
from orchestrator.errors import OWN_ERRORS
from orchestrator.pretraining.collectives import Worker
from orchestrator.results import CheckpointEvent
from orchestrator.training.checkpoints import Checkpoints, Warn

Found = tuple[CheckpointEvent, TrainingState] | None


def read_for_all(checkpoints: Checkpoints, worker: Worker, warn: Warn) -> Found:
    """Read the newest checkpoint, on all workers at once; the first one tidies up what older attempts left.

    Raises: on the first worker what `Checkpoints.read_newest` raises; then on the others the same error where it is one
        of the project, and RuntimeError otherwise, at which Ray starts the workers anew.
    """
    if worker.num_workers == 1:
        return _read_and_tidy(checkpoints, warn)
    found = _broadcast_header(checkpoints, warn, worker) if worker.rank == 0 else _broadcast_object(None, worker)
    if isinstance(found, Exception):
        raise found
    if found is None:
        return None
    event, state = found
    weights, optimizer_tensors = (
        {name: _broadcast(tensor, worker) for name, tensor in tensors.items()}
        for tensors in (state.weights, state.optimizer_tensors)
    )
    return event, replace(state, weights=weights, optimizer_tensors=optimizer_tensors)


def _read_and_tidy(checkpoints: Checkpoints, warn: Warn) -> Found:
    found = checkpoints.read_newest(warn)
    checkpoints.tidy(warn)
    return found


def _broadcast_header(checkpoints: Checkpoints, warn: Warn, worker: Worker) -> Found:
    """Read the checkpoint, and send all but the contents of its tensors, or why it could not be read."""
    try:
        found = _read_and_tidy(checkpoints, warn)
    except Exception as error:  # the others wait to be told
        is_own = isinstance(error, OWN_ERRORS)  # these can be pickled; another may not
        _broadcast_object(
            error if is_own else RuntimeError(f"the first worker could not read a checkpoint: {error!r}"), worker
        )
        raise
    if found is None:
        return _broadcast_object(None, worker)  # type: ignore[no-any-return]
    event, state = found
    header = replace(state, weights=_on_meta(state.weights), optimizer_tensors=_on_meta(state.optimizer_tensors))
    _broadcast_object((event, header), worker)
    return found


def _on_meta(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors' names, types and shapes alone."""
    return {name: tensor.to("meta") for name, tensor in tensors.items()}


def _broadcast_object(value: object, worker: Worker) -> Any:
    """Return the first worker's value, on all workers."""
    values = [value]
    torch.distributed.broadcast_object_list(values, src=0, device=worker.device)
    return values[0]


def _broadcast(tensor: Tensor, worker: Worker) -> Tensor:
    """Return the first worker's tensor on the host, on all workers; the others give one without content."""
    values = torch.empty_like(tensor, device=worker.device) if tensor.is_meta else tensor.to(worker.device)
    torch.distributed.broadcast(values, src=0)
    return values.cpu()
