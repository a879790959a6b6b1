"""Disk that a spec takes, compared with what is free where its storage lies: a full disk is foreseen, not met."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from orchestrator.errors import InputError
from orchestrator.kinds import kind_of
from orchestrator.kinds.disk import DiskUse
from orchestrator.kinds.resolved import Resolved
from orchestrator.planning.checks import each_stage, naming_stage
from orchestrator.progress import size_text
from orchestrator.specs import Spec
from orchestrator.storage.folders import free_bytes, used_bytes

_SPARE = 0.1
"""Share of the free bytes that a spec had better leave: its size is an estimate, and others write there as well."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DiskRoom:
    """Bytes that a spec writes, and that the file system of its storage has free."""

    storage: str
    uses: tuple[DiskUse, ...]
    free: int
    written: int = 0
    """Bytes that earlier attempts at the run have left."""

    @property
    def needed(self) -> int:
        """Bytes that the spec writes, in all, less those that are there."""
        return max(0, sum(use.num_bytes for use in self.uses) - self.written)

    def text(self) -> str:
        """Both numbers as the line of a plan."""
        verdict = "" if self.needed <= self.free else ": does not fit"
        return f"{size_text(self.needed)} of the {size_text(self.free)} that are free in {self.storage}{verdict}"

    def check(self) -> None:
        """Warn where little is left. Raises: InputError where the disk is too small."""
        writes = f"{size_text(self.needed)}{' more' if self.written else ''}"
        both = f"{self.storage} has {size_text(self.free)} free, and this run writes about {writes}"
        remedy = "make room there, give another --storage, or keep fewer checkpoints or snapshots"
        if self.needed > self.free:
            raise InputError(f"{both} ({uses_text(self.uses)}); {remedy}")
        if self.needed > (1 - _SPARE) * self.free:
            logger.warning(f"{both}, which leaves less than {_SPARE:.0%} of it; {remedy}")


def check_disk(spec: Spec, inputs: Resolved, left: Sequence[str] = ()) -> None:
    """Check that what a spec writes fits where its storage lies; warn where it barely does.

    Args:
        left: folders of earlier attempts, and of a pipeline's stages: what is there is not written again.

    Raises: InputError; CorpusError, TokenizerError for what the spec reads.
    """
    room = disk_room(spec, inputs)
    if room is not None:
        replace(room, written=sum(map(used_bytes, left))).check()


def disk_room(spec: Spec, inputs: Resolved) -> DiskRoom | None:
    """Return the disk that a spec takes, beside what is free; None for a storage whose room is not limited.

    Raises: CorpusError, TokenizerError for what the spec reads.
    """
    free = free_bytes(inputs.settings.storage)
    return None if free is None else DiskRoom(inputs.settings.storage, tuple(_uses(spec, inputs)), free)


def uses_text(uses: Sequence[DiskUse]) -> str:
    """List what takes disk: `12.0 MB of checkpoints, 4.0 MB of models`."""
    return ", ".join(f"{size_text(use.num_bytes)} of {use.what}" for use in uses)


def _uses(spec: Spec, inputs: Resolved) -> Iterator[DiskUse]:
    """Yield what all stages take; what several of them read and one writes comes once."""
    shared = set()
    for name, stage in each_stage(spec, inputs):
        with naming_stage(spec, name):
            for use in kind_of(stage).disk(stage, inputs):
                if use.shared_as not in shared:
                    yield use
                if use.shared_as is not None:
                    shared.add(use.shared_as)
