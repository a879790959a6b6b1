"""Checkpoints of a run: folders on the storage, and one pointer file that names the complete ones.

The pointer file is replaced after a checkpoint is complete, so that it never names half of one; no checkpoint is found
by listing folders. A checkpoint that does not match its digests is skipped with a warning, and the previous one used.

Each carries digests of all that decides the next steps (its identity), by part: spec, data, tokenizer, teacher,
versions. Going on where one differs would mix two runs. That is refused, unless the attempt allows it; then the run is
marked. Details beside the digests tell which field or file has changed.
"""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

import bert_core
from bert_core.checkpoints import training_state
from bert_core.checkpoints.manifest import MANIFEST_FILE
from bert_core.device_copies import HostCopies
from bert_core.errors import CheckpointError, NewerFormatError
from orchestrator.base.results import CheckpointEvent, DriftEvent
from orchestrator.specs.fields import differences
from orchestrator.storage import delete, digest_file, exists, join, local_copy, names_in, read_json, write_folder
from orchestrator.storage.attempts import Entries, FencedList
from orchestrator.training.snapshots import STATE_FOLDER, snapshot_folders

POINTER = "checkpoints.json"
FOLDER = "checkpoints"
_FIELDS = tuple(field.name for field in fields(CheckpointEvent))
_MAX_NAMED = 8
"""Fields and files that a message names at most."""
Warn = Callable[[str], None]
"""A function that is told, in one line, of a problem that stops nothing."""
logger = logging.getLogger(__name__)


def delete_checkpoints(run_folder: str) -> None:
    """Delete all checkpoints of a run that has ended, the pointer file first; warns of what cannot be deleted."""
    for name in (POINTER, FOLDER):
        _delete_or_warn(join(run_folder, name), logger.warning)


def saved_states(run_folder: str) -> dict[int, str]:
    """Folders of the training states that a run has left, by step: its checkpoints, and states beside snapshots.

    Raises: CheckpointError where a list of them is damaged.
    """
    names = {event.step: event.path.rstrip("/").rpartition("/")[2] for event in Checkpoints(run_folder).newest_first()}
    states = {step: join(run_folder, FOLDER, name) for step, name in names.items()}  # wherever the storage was then
    beside = {step: join(folder, STATE_FOLDER) for step, folder in snapshot_folders(run_folder).items()}
    states |= {step: folder for step, folder in beside.items() if exists(join(folder, MANIFEST_FILE))}
    return dict(sorted(states.items()))


@dataclass(frozen=True)
class Checkpoints:
    """Checkpoints of one run, saved and read by one attempt, which a newer attempt's checkpoints stop."""

    run_folder: str
    attempt: int = 1
    keep: int = 2
    """Number of checkpoints to keep."""

    def newest_first(self) -> list[CheckpointEvent]:
        """Complete checkpoints of the run, newest first."""
        return [CheckpointEvent(**entry) for entry in self._pointer.read()]

    def newest_step(self) -> int | None:
        """Step of the newest complete checkpoint; None where the run has none yet."""
        return next((event.step for event in self.newest_first()), None)

    def newest_extra(self) -> tuple[int, Mapping[str, Any]] | None:
        """Step of the newest checkpoint, and the JSON values that were saved with it; its tensors are not read.

        None where there is none, or where it is damaged: `read_newest` says so, and takes an older one.
        """
        for event in self.newest_first()[:1]:
            with suppress(OSError, ValueError, KeyError):
                return event.step, read_json(join(event.path, training_state.STATE_FILE))["extra"]
        return None

    def save(self, step: int, model: nn.Module, optimizer: Optimizer, extra: Mapping[str, Any]) -> CheckpointEvent:
        """Write a checkpoint of a model and its optimizer, as `write` does."""
        return self.write(step, training_state.contents_of(model, optimizer, extra))

    def write(self, step: int, contents: training_state.StateContents, warn: Warn = logger.warning) -> CheckpointEvent:
        """Write a checkpoint, then the pointer file, then delete old ones; `warn` is told where that fails.

        Raises: RunStoppedError where a newer attempt of the run has superseded this one.
        """
        self._pointer.read_own()
        path = join(self.run_folder, FOLDER, f"step-{step:08d}-attempt-{self.attempt}")
        with write_folder(path) as folder:
            digest = contents.write(folder)
            num_bytes = sum(file.stat().st_size for file in folder.iterdir())
        event = CheckpointEvent(step, path, digest, num_bytes)

        def with_newest(known: Entries) -> Entries:
            return [asdict(event), *(entry for entry in known if entry["step"] < step)][: self.keep]

        known, kept = self._pointer.replace(with_newest)
        kept_paths = {entry["path"] for entry in kept}
        for entry in known:
            if entry["path"] not in kept_paths:
                _delete_or_warn(entry["path"], warn)
        return event

    def read_newest(self, warn: Warn = logger.warning) -> tuple[CheckpointEvent, training_state.TrainingState] | None:
        """Read the newest complete checkpoint; None where the run has none yet.

        What the checkpoint says of itself can be looked at before its tensors are put into a model.

        Raises: NewerFormatError for one of a newer version; CheckpointError where there are some and none can be used;
            OSError instead where the storage failed at one of them, which may be whole and readable later.
        """
        problems: list[Exception] = []
        for event in self.newest_first():
            try:
                return event, self._read(event)
            except NewerFormatError:
                raise
            except (CheckpointError, OSError) as error:
                problems.append(error)
                warn(f"checkpoint of step {event.step} is passed over: {_without_remedy(error)}")
        for problem in problems:
            if isinstance(problem, OSError):
                raise problem
        if problems:
            raise CheckpointError(
                f"no checkpoint of {self.run_folder} can be used ({_without_remedy(problems[0])}); "
                "nothing is left to resume from: start a new run"
            )
        return None

    def tidy(self, warn: Warn = logger.warning) -> None:
        """Delete folders that the pointer file does not name: a killed process, or a failed deletion, left them."""
        known = {entry["path"].rstrip("/").rpartition("/")[2] for entry in self._pointer.read_own()}
        for name in names_in(join(self.run_folder, FOLDER)):
            if name not in known:
                _delete_or_warn(join(self.run_folder, FOLDER, name), warn)

    @staticmethod
    def _read(event: CheckpointEvent) -> training_state.TrainingState:
        folder = local_copy(event.path)
        manifest = folder / MANIFEST_FILE
        if manifest.is_file() and digest_file(str(manifest)) != event.digest:
            raise CheckpointError(f"{event.path} is not what {POINTER} says: its manifest has another digest")
        return training_state.read_training_state(folder)

    @property
    def _pointer(self) -> FencedList:
        remedy = "delete it to begin this run anew"
        return FencedList(join(self.run_folder, POINTER), "checkpoints", _FIELDS, self.attempt, remedy)


def _without_remedy(error: Exception) -> str:
    """Drop the advice to take another checkpoint: the next one is tried anyway."""
    return str(error).removesuffix(f"; {training_state.REMEDY}")


def _delete_or_warn(path: str, warn: Warn) -> None:
    try:
        delete(path)
    except OSError as error:
        warn(f"{path} cannot be deleted ({error.strerror or error}); it is not used any more: delete it by hand")


class CheckpointSaver:
    """Saves checkpoints of one run, in a thread or at once.

    Args:
        in_background: whether `save` returns when the state has been copied, in place of when it has been written.
        on_saved: told of each checkpoint once it is complete, in the thread that wrote it.
        warn: told of an old checkpoint that cannot be deleted, in that thread too.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        in_background: bool,
        on_saved: Callable[[CheckpointEvent], None],
        warn: Warn = logger.warning,
    ) -> None:
        self._checkpoints, self._on_saved, self._warn = checkpoints, on_saved, warn
        self._copies = HostCopies() if in_background else None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint") if in_background else None
        self._writing: Future[None] | None = None

    def save(self, step: int, model: nn.Module, optimizer: Optimizer, extra: Mapping[str, Any]) -> None:
        """Save a checkpoint. Raises: without a thread what `Checkpoints.write` raises."""
        if self._thread is None or self._copies is None:
            self._write(step, training_state.contents_of(model, optimizer, extra))
        else:
            assert self._writing is None, "the copy of a checkpoint must not change while it is written"
            contents = training_state.contents_of(model, optimizer, extra, self._copies.of)
            self._writing = self._thread.submit(self._write, step, contents)

    def wait(self) -> None:
        """Wait until the checkpoint that is being written is complete. Raises: what `Checkpoints.write` raised."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def raise_failure(self) -> None:
        """Raise what `Checkpoints.write` raised, where it has; without waiting."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def settle(self) -> None:
        """Wait for a checkpoint that is being written, where another error is on its way: a failure is only logged."""
        try:
            self.wait()
        except Exception as error:
            logger.warning("the checkpoint that was being written failed: %s", error)

    def _write(self, step: int, contents: training_state.StateContents) -> None:
        self._on_saved(self._checkpoints.write(step, contents, self._warn))


def versions() -> dict[str, str]:
    """Versions of the libraries that decide a training's numbers, as parts of an identity."""
    return {"torch": str(torch.__version__), "code": str(bert_core.__version__)}


def check_drift(saved: Mapping[str, Any], identity: Mapping[str, Any], details: Mapping[str, Any]) -> list[str]:
    """List what has changed since a checkpoint was saved, a line for each field or file; empty where nothing has.

    Args:
        saved: the checkpoint's JSON, with its `identity` and `details`. A part that it lacks is not compared.
        identity: digests of the attempt, by part.
        details: plain values of some of these parts.
    """
    known = saved["identity"]
    was_details: Mapping[str, Any] = saved.get("details", {})
    lines: list[str] = []
    for part, digest in identity.items():
        if part in known:
            (*found,) = differences({part: known[part]}, {part: digest})
            if found:
                named = list(differences({part: was_details.get(part, {})}, {part: details.get(part, {})}))
                lines += _lines(named if part in was_details and named else found)
    return lines


def accept_drift(lines: list[str], step: int, *, allowed: bool) -> list[DriftEvent]:
    """The event that marks a run, where something has changed and that is allowed; nothing where nothing has.

    Raises: CheckpointError, naming what has changed, where it is not allowed.
    """
    if not lines:
        return []
    if not allowed:
        raise CheckpointError(
            f"cannot resume from step {step}, since what the run reads has changed: {'; '.join(lines)}. "
            "Put the old state back, or start a new run; `resume --allow-drift` goes on all the same and marks the run"
        )
    return [DriftEvent(step, tuple(lines))]


def refuse_other_sizes(details: Mapping[str, Any], sizes: Mapping[str, str], step: int) -> None:
    """Check that text files are as large as when a checkpoint was saved, before anything reads them.

    Args:
        details: those of the checkpoint; one without sizes is not compared.
        sizes: sizes of the files now, by path.

    Raises: CheckpointError, naming what has changed.
    """
    if "corpus" in details:
        accept_drift(_lines(list(differences({"corpus": details["corpus"]}, {"corpus": sizes}))), step, allowed=False)


def _lines(found: list[tuple[tuple[str, ...], str]]) -> list[str]:
    # Parts of fine-tunings are called `the spec`, a field of it `spec.steps`.
    lines = [f"{'.'.join(path).removeprefix('the ')}: {change}" for path, change in found[:_MAX_NAMED]]
    return lines + ([f"and {len(found) - _MAX_NAMED} more"] if len(found) > _MAX_NAMED else [])
