"""The checkpoint that a group of workers goes on from: the first worker reads it and sends it to the others.

So it is downloaded once, and all of them go on from the same step even where the newest one is damaged.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from bert_core.checkpoints.training_state import TrainingState
from orchestrator.errors import OWN_ERRORS
from orchestrator.pretraining.collectives import Worker
from orchestrator.results import CheckpointEvent
from orchestrator.training.checkpoints import Checkpoints, Warn

MESSAGE_BYTES = 64 << 20
"""Size of a message; a larger tensor is a message of its own."""
_WEIGHTS, _MOMENTS = "weights", "optimizer"
_Layout = list[list[Any]]
"""Name, type and shape of tensors."""
Found = tuple[CheckpointEvent, TrainingState] | None


@dataclass(frozen=True)
class _Header:
    """Description of a checkpoint, which comes before its tensors."""

    event: CheckpointEvent
    folder: Path
    extra: dict[str, Any]
    param_groups: Sequence[Mapping[str, Any]]
    layout: _Layout


def read_for_all(checkpoints: Checkpoints, worker: Worker, warn: Warn) -> Found:
    """Read the newest checkpoint, on all workers at once; the first one tidies up what older attempts left.

    Raises: on the first worker what `Checkpoints.read_newest` raises; then on the others the same error where it is one
        of the project, and RuntimeError otherwise, at which Ray starts the workers anew.
    """
    if worker.num_workers == 1:
        return _read_and_tidy(checkpoints, warn)
    return _send(checkpoints, worker, warn) if worker.rank == 0 else _receive(worker)


def _read_and_tidy(checkpoints: Checkpoints, warn: Warn) -> Found:
    found = checkpoints.read_newest(warn)
    checkpoints.tidy(warn)
    return found


def _send(checkpoints: Checkpoints, worker: Worker, warn: Warn) -> Found:
    try:
        found = _read_and_tidy(checkpoints, warn)
    except Exception as error:  # the others wait to be told
        is_own = isinstance(error, OWN_ERRORS)  # these can be pickled; another may not
        _broadcast(
            error if is_own else RuntimeError(f"the first worker could not read a checkpoint: {error!r}"), worker
        )
        raise
    if found is None:
        _broadcast(None, worker)
        return None
    event, state = found
    tensors = _named_tensors(state)
    layout: _Layout = [
        [name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for name, tensor in tensors.items()
    ]
    _broadcast(_Header(event, state.folder, state.extra, state.param_groups, layout), worker)
    for group in _messages(layout):
        message = torch.cat([tensors[name].reshape(-1).view(torch.uint8) for name, _, _ in group])
        torch.distributed.broadcast(message.to(worker.device), src=0)
    return found


def _receive(worker: Worker) -> Found:
    header = _broadcast(None, worker)
    if header is None:
        return None
    if isinstance(header, Exception):
        raise header
    parts: dict[str, dict[str, Tensor]] = {_WEIGHTS: {}, _MOMENTS: {}}
    for group in _messages(header.layout):
        sizes = [_num_bytes(entry) for entry in group]
        message = torch.empty(sum(sizes), dtype=torch.uint8, device=worker.device)
        torch.distributed.broadcast(message, src=0)
        for (full_name, dtype, shape), piece in zip(group, torch.split(message.cpu(), sizes), strict=True):
            part, _, name = full_name.partition("/")
            # A copy, as numbers have to begin at a multiple of their size.
            parts[part][name] = piece.clone().view(getattr(torch, dtype)).reshape(shape)
    state = TrainingState(parts[_WEIGHTS], parts[_MOMENTS], header.param_groups, header.extra, folder=header.folder)
    return header.event, state


def _named_tensors(state: TrainingState) -> dict[str, Tensor]:
    """All tensors of a checkpoint by its part and their names in it."""
    parts = {_WEIGHTS: state.weights, _MOMENTS: state.optimizer_tensors}
    return {f"{part}/{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}


def _broadcast(value: _Header | Exception | None, worker: Worker) -> _Header | Exception | None:
    """Return the first worker's value, on all workers."""
    values = [value]
    torch.distributed.broadcast_object_list(values, src=0, device=worker.device)
    return values[0]


def _messages(layout: _Layout) -> Iterator[_Layout]:
    """Yield the tensors of each message."""
    group: _Layout = []
    num_bytes = 0
    for entry in layout:
        if group and num_bytes + _num_bytes(entry) > MESSAGE_BYTES:
            yield group
            group, num_bytes = [], 0
        group.append(entry)
        num_bytes += _num_bytes(entry)
    if group:
        yield group


def _num_bytes(entry: list[Any]) -> int:
    _, dtype, shape = entry
    return int(torch.Size(shape).numel()) * int(getattr(torch, dtype).itemsize)
