"""Training states: all that a run needs to go on as if it had never stopped. Safetensors and JSON, no pickle.

A state is a folder of three files and a manifest of their digests. It is written under a temporary name and renamed
when it is whole; loading checks the digests before anything is read into the model.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.optim import Optimizer

from bert_core.checkpoints.manifest import atomic_folder, check_format, check_manifest, write_json, write_manifest
from bert_core.checkpoints.tensor_files import save_tensors
from bert_core.errors import CheckpointError, NewerFormatError

_MODEL = "model.safetensors"
_OPTIMIZER = "optimizer.safetensors"
STATE_FILE = "state.json"
REMEDY = "use an older one"
"""Last words of the error for a state that cannot be read."""
_FORMAT = 1
"""Number of the layout of the files; a state without one has the first."""


def save_training_state(folder: Path, model: nn.Module, optimizer: Optimizer, extra: Mapping[str, Any]) -> str:
    """Write weights, optimizer and `extra` (values that JSON can hold), whole or not at all.

    Returns the SHA-256 of the manifest, which names this state for good. A state of that name is replaced.
    """
    with atomic_folder(folder) as new:
        return contents_of(model, optimizer, extra).write(new)


@dataclass(frozen=True)
class StateContents:
    """Weights, optimizer and the values beside them, in memory."""

    weights: Mapping[str, Tensor]
    optimizer_tensors: Mapping[str, Tensor]
    param_groups: Sequence[Mapping[str, Any]]
    """Groups and settings of the optimizer, with the parameters' names in place of the parameters."""
    extra: dict[str, Any]
    """Values of the caller, which JSON can hold."""

    def write(self, folder: Path) -> str:
        """Write the contents into an existing folder, the manifest last; returns the manifest's SHA-256.

        A crash leaves part of the files: `save_training_state` does not.
        """
        save_tensors(self.weights, folder / _MODEL)
        save_tensors(self.optimizer_tensors, folder / _OPTIMIZER)
        state = {"format": _FORMAT, "param_groups": self.param_groups, "extra": self.extra}
        write_json(folder / STATE_FILE, state)
        return write_manifest(folder, (_MODEL, _OPTIMIZER, STATE_FILE))


def contents_of(
    model: nn.Module,
    optimizer: Optimizer,
    extra: Mapping[str, Any],
    copies: Callable[[Mapping[str, Tensor]], dict[str, Tensor]] | None = None,
) -> StateContents:
    """Weights and moments of a model and its optimizer, on the host.

    Args:
        copies: copies tensors to the host, as `HostCopies.of` does, so that training may go on; without it the contents
            may be the tensors themselves, and are those of this moment only until the next step.
    """
    weights, moments = model.state_dict(), _optimizer_tensors(model, optimizer)
    named = {f"{_MODEL}/{name}": tensor for name, tensor in weights.items()}
    stored = (copies or _stored)(named | moments)
    own, own_moments = {name: stored[f"{_MODEL}/{name}"] for name in weights}, {name: stored[name] for name in moments}
    return StateContents(own, own_moments, _named_groups(model, optimizer), dict(extra))


@dataclass(frozen=True, kw_only=True)
class TrainingState(StateContents):
    """A saved state as it was read: whole, and in no model yet."""

    folder: Path

    def load_into(self, model: nn.Module, optimizer: Optimizer, *, keeps_settings: bool = False) -> None:
        """Put the state into a model and an optimizer of the same shape.

        Args:
            keeps_settings: whether the optimizer keeps its own learning rates, weight decay and the like.

        Raises: CheckpointError for another shape.
        """
        own_groups = _named_groups(model, optimizer)
        own, saved = ([group["names"] for group in groups] for groups in (own_groups, self.param_groups))
        if keeps_settings:  # which may be other groups of the same parameters
            own, saved = ([sorted(chain.from_iterable(names))] for names in (own, saved))
        if saved != own:
            raise CheckpointError(
                f"{self.folder / STATE_FILE} belongs to another model or optimizer; use the run's own settings"
            )
        for name, own in model.state_dict().items():
            if name not in self.weights or self.weights[name].shape != own.shape:
                found = tuple(self.weights[name].shape) if name in self.weights else "nothing"
                raise CheckpointError(
                    f"{self.folder / _MODEL} holds {found} for {name} where the model has {tuple(own.shape)}; "
                    f"use the run's own settings"
                )
        model.load_state_dict(self.weights)
        _load_optimizer(optimizer, own_groups if keeps_settings else self.param_groups, self.optimizer_tensors)


def read_training_state(folder: Path) -> TrainingState:
    """Read a saved state, whose `extra` can be looked at before anything of it is put into a model.

    Raises: CheckpointError, naming the file that is missing, cut short or altered; NewerFormatError for a state of a
        newer version of this package.
    """
    check_manifest(folder, REMEDY)
    try:
        state = json.loads((folder / STATE_FILE).read_bytes())
        check_format(folder / STATE_FILE, state, _FORMAT)
        weights, tensors = (load_file(folder / name) for name in (_MODEL, _OPTIMIZER))
        return TrainingState(weights, tensors, state["param_groups"], state["extra"], folder=folder)
    except NewerFormatError:
        raise
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{folder} cannot be read ({error}); {REMEDY}") from None


def load_training_state(folder: Path, model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """Put a saved state into a model and an optimizer of the same shape; returns `extra`.

    Raises: CheckpointError, naming the file that is missing, cut short, altered or does not fit.
    """
    state = read_training_state(folder)
    state.load_into(model, optimizer)
    return state.extra


def _stored(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}


def _named_groups(model: nn.Module, optimizer: Optimizer) -> list[dict[str, Any]]:
    """List the optimizer's groups, with the parameters' names in place of the parameters."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [
        {"names": [names[id(parameter)] for parameter in group["params"]]}
        | {key: value for key, value in group.items() if key != "params"}
        for group in optimizer.param_groups
    ]


def _optimizer_tensors(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {
        f"{names[id(parameter)]}/{key}": torch.as_tensor(value)
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
    }


def _load_optimizer(optimizer: Optimizer, groups: Sequence[Mapping[str, Any]], tensors: Mapping[str, Tensor]) -> None:
    index = {name: number for number, name in enumerate(name for group in groups for name in group["names"])}
    state: dict[int, dict[str, Tensor]] = {}
    for full_name, tensor in tensors.items():
        name, _, key = full_name.rpartition("/")
        # A copy: the optimizer keeps what it is given, and this is a view of the mapped file.
        state.setdefault(index[name], {})[key] = tensor.clone()
    numbered = [
        {key: tuple(value) if isinstance(value, list) else value for key, value in group.items() if key != "names"}
        | {"params": [index[name] for name in group["names"]]}
        for group in groups
    ]
    optimizer.load_state_dict({"state": state, "param_groups": numbered})
