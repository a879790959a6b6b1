"""Disk that runs take on the storage, estimated before anything is written; what only the run decides is left out."""

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.corpus.input_files import find_files
from orchestrator.corpus.token_store import MANIFEST, store_folder, store_options
from orchestrator.kinds.resolved import Resolved
from orchestrator.specs import CorpusSpec, PretrainSpec
from orchestrator.specs.references import STAGE_MARK
from orchestrator.storage import exists, join

_BYTES_PER_WEIGHT = 4
_BYTES_PER_SAVED_PARAMETER = 12
"""float32 weights and AdamW's two moments."""
_BYTES_PER_FINE_TUNED_PARAMETER = 16
"""The same, and the best weights so far."""
_STORED_PER_TEXT_BYTE = 0.5
"""A token of about four characters is a number of two bytes."""


@dataclass(frozen=True)
class DiskUse:
    """Bytes of one sort of files of a run, at most at one time."""

    what: str
    num_bytes: int
    shared_as: str | None = None
    """Identity of files that several stages read and only the first one writes; None for the run's own."""


def pretraining_disk(spec: PretrainSpec, num_parameters: int | None, inputs: Resolved) -> Iterator[DiskUse]:
    """Yield what a pretraining leaves: its text as tokens; checkpoints, snapshots and model where their size is known.

    Raises: CorpusError, TokenizerError.
    """
    if num_parameters is not None:
        kept = spec.execution.keep_checkpoints + 1  # a new one is whole before the oldest one goes
        yield DiskUse("checkpoints", kept * num_parameters * _BYTES_PER_SAVED_PARAMETER)
        num_models = 1 + len(spec.execution.snapshot_steps)
        yield DiskUse("model and snapshots", num_models * num_parameters * _BYTES_PER_WEIGHT)
    yield from token_store_disk(spec, inputs)


def fine_tuning_disk(num_parameters: int | None, num_trainings: int, num_models: int, keep: int) -> Iterator[DiskUse]:
    """Yield what trainings on a task write: models, and checkpoints of those that run at the same time.

    Args:
        num_parameters: of the largest model; nothing is known without it.
        num_trainings: trainings that run at the same time.
        num_models: models that are there at the same time.
        keep: number of checkpoints that a training keeps.
    """
    if num_parameters is not None:
        kept = num_trainings * (keep + 1)  # a new one is whole before the old one goes
        yield DiskUse("checkpoints", kept * num_parameters * _BYTES_PER_FINE_TUNED_PARAMETER)
        yield DiskUse("models", num_models * num_parameters * _BYTES_PER_WEIGHT)


def token_store_disk(spec: CorpusSpec | PretrainSpec, inputs: Resolved) -> Iterator[DiskUse]:
    """Yield the token store of a spec's text, unless it is there already. Raises: CorpusError, TokenizerError."""
    if spec.corpus.max_documents is not None:
        return
    files = find_files(spec.corpus)
    how = spec.validation_fraction, spec.shard_bytes
    if not spec.tokenizer.startswith(STAGE_MARK):
        options = store_options(spec.corpus, inputs.tokenizer(spec.tokenizer), *how)
        if exists(join(store_folder(inputs.settings.storage, options, files), MANIFEST)):
            return
    num_bytes = round(_STORED_PER_TEXT_BYTE * sum(file.estimated_text_bytes for file in files))
    yield DiskUse("token store", num_bytes, str([spec.corpus.identity_values(), spec.tokenizer, *how]))
