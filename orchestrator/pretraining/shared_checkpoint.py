"""The checkpoint that a group of workers goes on from: the first worker reads it and sends it to the others.

So it is downloaded once, and all of them go on from the same step even where the newest one is damaged.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from bert_core.checkpoints.training_state import TrainingState
from bert_core.errors import CheckpointError
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


def read_for_all(checkpoints: Checkpoints, worker: Worker, warn: Warn) -> Found:
    """Read the newest checkpoint, on all workers at once; the first one tidies up what older attempts left.

    Raises: on the first worker what `Checkpoints.read_newest` raises; then on the others CheckpointError where a person
        has to do something, and RuntimeError otherwise, at which Ray starts the workers anew.
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
        _broadcast_json({"failure": str(error) or repr(error), "is_own": isinstance(error, OWN_ERRORS)}, worker)
        raise
    if found is None:
        _broadcast_json({}, worker)
        return None
    event, state = found
    tensors = _named_tensors(state)
    layout: _Layout = [
        [name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape)] for name, tensor in tensors.items()
    ]
    header = {
        "event": asdict(event),
        "folder": str(state.folder),
        "extra": state.extra,
        "param_groups": list(state.param_groups),
        "tensors": layout,
    }
    _broadcast_json(header, worker)
    for group in _messages(layout):
        message = torch.cat([tensors[name].reshape(-1).view(torch.uint8) for name, _, _ in group])
        torch.distributed.broadcast(message.to(worker.device), src=0)
    return found


def _receive(worker: Worker) -> Found:
    header = _broadcast_json(None, worker)
    if not header:
        return None
    if "failure" in header:
        if header["is_own"]:
            raise CheckpointError(header["failure"])
        raise RuntimeError(f"the first worker could not read a checkpoint: {header['failure']}")
    parts: dict[str, dict[str, Tensor]] = {_WEIGHTS: {}, _MOMENTS: {}}
    for group in _messages(header["tensors"]):
        sizes = [_num_bytes(entry) for entry in group]
        message = torch.empty(sum(sizes), dtype=torch.uint8, device=worker.device)
        torch.distributed.broadcast(message, src=0)
        for (full_name, dtype, shape), piece in zip(group, torch.split(message.cpu(), sizes), strict=True):
            part, _, name = full_name.partition("/")
            # A copy, as numbers have to begin at a multiple of their size.
            parts[part][name] = piece.clone().view(getattr(torch, dtype)).reshape(shape)
    state = TrainingState(
        parts[_WEIGHTS], parts[_MOMENTS], header["param_groups"], header["extra"], folder=Path(header["folder"])
    )
    return CheckpointEvent(**header["event"]), state


def _named_tensors(state: TrainingState) -> dict[str, Tensor]:
    """All tensors of a checkpoint by its part and their names in it."""
    parts = {_WEIGHTS: state.weights, _MOMENTS: state.optimizer_tensors}
    return {f"{part}/{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}


def _broadcast_json(value: Any, worker: Worker) -> Any:
    """Return the first worker's value, on all workers."""
    data = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8).to(worker.device)
    num_bytes = torch.tensor(len(data), device=worker.device)
    torch.distributed.broadcast(num_bytes, src=0)
    if worker.rank != 0:
        data = torch.empty(int(num_bytes), dtype=torch.uint8, device=worker.device)
    torch.distributed.broadcast(data, src=0)
    return json.loads(data.cpu().numpy().tobytes())


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
