"""Preflight of storage and cluster: what would keep a spec from running, found before anything is started."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from orchestrator.base.console import size_text
from orchestrator.base.errors import InputError
from orchestrator.base.settings import Settings
from orchestrator.cluster.capacity import Node, check_processes, check_resources, cluster_resources
from orchestrator.cluster.connection import names_no_cluster
from orchestrator.kinds import kind_of
from orchestrator.kinds.base import DiskUse, Resources
from orchestrator.kinds.resolved import Resolved
from orchestrator.specs import Spec
from orchestrator.storage import delete, join, write_bytes
from orchestrator.storage.folders import free_bytes, nearest_existing, used_bytes
from orchestrator.storage.uris import is_local, local_path

_SPARE = 0.1
"""Share of the free bytes that a spec had better leave: its size is an estimate, and others write there as well."""
logger = logging.getLogger(__name__)


def check_storage(spec: Spec, inputs: Resolved, left: Sequence[str] = ()) -> None:
    """Check that results can be written, and fit. Raises: InputError."""
    settings = inputs.settings
    if names_no_cluster(settings) or "registry" not in settings.given:
        check_writable(str(settings.home), f"--home {settings.home}", "give another")
    check_writable(settings.storage, f"--storage {settings.storage}", "give another")
    check_disk(spec, inputs, left)


def check_writable(folder: str, what: str, remedy: str) -> None:
    """Write a file and delete it; of a folder that is not there, in the one above it that is. Raises: InputError."""
    try:
        if is_local(folder):
            folder = str(nearest_existing(local_path(folder).absolute()))
            if not Path(folder).is_dir():
                raise InputError(f"{what} cannot be written: {folder} is no folder; {remedy}")
        probe = join(folder, f".probe-{uuid4().hex[:8]}")
        write_bytes(probe, b"")
        delete(probe)
    except OSError as error:
        raise InputError(f"{what} cannot be written: {error.strerror or error}; {remedy}") from error


def check_disk(spec: Spec, inputs: Resolved, left: Sequence[str] = ()) -> None:
    """Check that what a spec writes fits on the disk; warn where little is left. Raises: InputError.

    Args:
        left: folders of earlier attempts, of a pipeline's stages as well: their files are not written again.
    """
    need = disk_need(spec, inputs, left)
    if need is None:
        return
    writes = f"{size_text(need.num_bytes)}{' more' if need.num_left_bytes else ''}"
    both = f"{need.storage} has {size_text(need.num_free_bytes)} free, and this run writes about {writes}"
    remedy = "make room there, give another --storage, or keep fewer checkpoints or snapshots"
    if need.num_bytes > need.num_free_bytes:
        raise InputError(f"{both} ({uses_text(need.uses)}); {remedy}")
    if need.num_bytes > (1 - _SPARE) * need.num_free_bytes:
        logger.warning(f"{both}, which leaves less than {_SPARE:.0%} of it; {remedy}")


@dataclass(frozen=True)
class DiskNeed:
    """Bytes that a spec writes, and that the file system of its storage has free."""

    storage: str
    uses: tuple[DiskUse, ...]
    num_free_bytes: int
    num_left_bytes: int
    """Bytes that earlier attempts at the run have left."""

    @property
    def num_bytes(self) -> int:
        """Bytes that have yet to be written."""
        return max(0, sum(use.num_bytes for use in self.uses) - self.num_left_bytes)

    def __str__(self) -> str:
        verdict = "" if self.num_bytes <= self.num_free_bytes else ": does not fit"
        free = f"{size_text(self.num_free_bytes)} that are free in {self.storage}"
        return f"{size_text(self.num_bytes)} of the {free}{verdict}"


def disk_need(spec: Spec, inputs: Resolved, left: Sequence[str] = ()) -> DiskNeed | None:
    """Compare what a spec writes with the free disk; None for a storage without a limit.

    Raises: CorpusError, TokenizerError for what the spec reads.
    """
    storage = inputs.settings.storage
    free = free_bytes(storage)
    if free is None:
        return None
    return DiskNeed(storage, tuple(kind_of(spec).disk(spec, inputs)), free, sum(map(used_bytes, left)))


def uses_text(uses: Sequence[DiskUse]) -> str:
    """List what takes disk: `12.0 MB of checkpoints, 4.0 MB of models`."""
    return ", ".join(f"{size_text(use.num_bytes)} of {use.what}" for use in uses)


def needed_resources(spec: Spec, have: Mapping[str, float]) -> Resources:
    """Resources that a spec takes of a cluster with these; of a pipeline the most of any stage, and all processes."""
    needs = [kind_of(stage).resources(stage).on(have) for stage in spec.stage_specs().values()]
    names = {name for need in needs for name in need.total}
    return Resources(
        {name: max(need.total.get(name, 0.0) for need in needs) for name in names},
        [processes for need in needs for processes in need.processes],
    )


def needed_cpus(spec: Spec) -> float:
    return needed_resources(spec, {}).total.get("CPU", 0.0)


def check_capacity(
    spec: Spec, settings: Settings, have: Mapping[str, float] | None = None, nodes: Sequence[Node] | None = None
) -> None:
    """Check that the connected Ray, or a machine of other resources, has what a spec takes.

    Args:
        have: resources by name, of all nodes together; the connected Ray's when left out.
        nodes: its nodes; those of the connected Ray when left out.

    Raises: ClusterError, naming what is missing.
    """
    place = "this machine" if names_no_cluster(settings) else "the cluster"
    have = cluster_resources() if have is None else have
    needs = needed_resources(spec, have)
    check_resources(needs.total, have, place)
    check_processes(needs.processes, nodes, place)


def warn_of_unused_gpus(spec: Spec, have: Mapping[str, float]) -> None:
    """Warn of GPUs that are there, and that a stage does not take as they are too few."""
    for name, stage in spec.stage_specs().items():
        if note := kind_of(stage).resources(stage).unused_gpus(have):
            logger.warning(f"stages.{name}: {note}" if name else note)
