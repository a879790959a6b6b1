"""Garbage: files that nothing needs any more, found and deleted.

    leftovers    scratch folders and half-written folders of runs that have ended; checkpoints of completed ones, unless
                 a run that goes on from them by `init_step`, or their pipeline, has not completed
    weights      of trials that are neither registered, nor the best of their group, nor the start of another run
    data         token stores and tokenized tasks that no run of late has used; they would be made again
    downloads    copies of remote files that were not used of late; they would be downloaded again
    trash        files of runs that were removed (`removal`), and what restores these runs

Runs that are at work or may be (PENDING, RUNNING, LOST) keep everything, and while there is one the shared data
stays. Pinned runs keep everything too, with the data that they have used.
A folder is renamed before it is deleted: an interrupted collection leaves no half folder under a name that means
something, and the next one finds the rest. Doing so again changes nothing.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from orchestrator.base.errors import NotFoundError
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings, cache_folder
from orchestrator.registry.group_records import GroupRecord
from orchestrator.registry.parameters import trial_id
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.registry.tables import PIPELINE
from orchestrator.specs.references import NAME_FIELDS
from orchestrator.storage import delete, exists, join, names_in
from orchestrator.storage.download_cache import downloads, remove_unless_held
from orchestrator.storage.folders import file_stats, used_bytes
from orchestrator.storage.uris import absolute, is_local, local_path

SHARED_FOLDERS = {"corpora": "token store", "tasks": "tokenized task"}
"""Folders of the storage with data that runs share, and what each entry of them is."""
TRASH = "trash"
"""Name of the files of removed runs in a list of garbage."""
DOWNLOAD = "download"
_KEEP_THEIR_NAMES = (TRASH, DOWNLOAD)
"""Garbage that is claimed or held in another way until it is deleted."""
_CHECKPOINT_NAMES = ("checkpoints.json", "checkpoints")
"""A run's checkpoints, the file that names them first."""


@dataclass(frozen=True)
class Garbage:
    """Something that nothing needs."""

    what: str
    path: str
    why: str
    num_bytes: int = 0
    run_id: str | None = None
    """Run that it belongs to; None for what runs share."""


def find_garbage(settings: Settings, older_than_s: float) -> list[Garbage]:
    """Everything that nothing needs, with its bytes; shared data counts as unused from an age in seconds on."""
    found = _find(settings, older_than_s)
    return [one if one.num_bytes else replace(one, num_bytes=used_bytes(one.path)) for one in found]


def _find(settings: Settings, older_than_s: float) -> list[Garbage]:
    with Registry(settings.registry, read_only=True) as registry:
        every = registry.run_records(registry.run_ids())
        runs = [run for run in every if run.parent_id is None]
        pinned = registry.annotations.flagged("pinned")
        starts = _starts_under_way(registry)
        found = [item for run in runs if run.id not in pinned for item in _of_run(registry, run, starts)]
        found += _weights(registry, every, pinned)
        found += _trash(registry, every)
        if not all(run.state.is_final for run in runs):  # one at work may use what runs share
            return found
        used = _data_used_of_late(registry, runs, older_than_s, pinned)
    return [*found, *_shared_data(settings.storage, used, older_than_s), *_downloads(older_than_s)]


def delete_garbage(
    items: Iterable[Garbage], settings: Settings, older_than_s: float = 30 * 86_400.0
) -> Iterator[Garbage]:
    """Delete what was found, except what something has come to need in the meantime; yields what is gone.

    What nothing needs is looked for again while no run can begin or change, and only what is found then too loses its
    name, or is claimed: a run that begins afterwards does not see it any more.

    Args:
        older_than_s: age in seconds at which shared data counts as unused when it is looked for again.
    """
    with Registry(settings.registry) as registry:
        going: list[tuple[Garbage, str]] = []
        with registry.trash.claiming() as claim:
            now = {(item.what, item.path) for item in _find(settings, older_than_s)}
            for item in items:
                if (item.what, item.path) in now and (item.what != TRASH or claim(str(item.run_id))):
                    path = item.path if item.what in _KEEP_THEIR_NAMES else rename_for_deletion(item.path)
                    going.append((item, path))
        for item, path in going:
            if item.what == TRASH:  # its files, then what would restore it
                for removed in registry.trash.records():
                    if removed.run_id == item.run_id and removed.storage_path and exists(removed.storage_path):
                        delete(rename_for_deletion(removed.storage_path))
                registry.lifecycle.remove(str(item.run_id))
            elif item.what != DOWNLOAD:
                delete(path)
            elif not remove_unless_held(local_path(path)):
                continue
            yield item


def _of_run(registry: Registry, record: RunRecord, starts: Mapping[str, set[str]]) -> Iterator[Garbage]:
    """Leftovers of a run that has ended, beside its result; `starts` are those of `_starts_under_way`."""
    folder, run_id = record.storage_path, record.id
    if folder is None or not record.state.is_final:
        return
    names = names_in(folder)
    if "ray" in names:
        yield Garbage("scratch", join(folder, "ray"), f"the run is {record.state}", run_id=run_id)
    checkpoints = [name for name in _CHECKPOINT_NAMES if name in names and record.state == RunState.COMPLETED]
    if checkpoints and not _may_be_prolonged(registry, record, starts):
        for name in checkpoints:
            why = "the run has completed, and no run that goes on from it is under way"
            yield Garbage("checkpoints", join(folder, name), why, run_id=run_id)
    if is_local(folder):
        root = local_path(folder)
        for half in sorted(root.rglob(".*.tmp")):
            above = half.relative_to(root).parts[:-1]
            if not any(name == "ray" or name.endswith(".tmp") for name in above):
                yield Garbage("half-written", str(half), f"the run is {record.state}", run_id=run_id)


def _starts_under_way(registry: Registry) -> dict[str, set[str]]:
    """Names in `init_from`, each with the ids of the runs by `init_step` that have not completed."""
    named = registry.named_in_specs(["init_from"])
    users = registry.run_records({user for some in named.values() for user in some})
    going = {user.id for user in users if user.state != RunState.COMPLETED and _goes_on_from_a_step(user.spec)}
    return {name: some & going for name, some in named.items()}


def _goes_on_from_a_step(spec: Mapping[str, Any]) -> bool:
    wholes = (spec, *spec.get("stages", {}).values())
    return any(
        part.get("init_step") is not None for whole in wholes for part in (whole, whole.get("pretraining") or {})
    )


def _may_be_prolonged(registry: Registry, record: RunRecord, starts: Mapping[str, set[str]]) -> bool:
    """Whether a run by `init_step`, or a pipeline with stages to come, may want the last checkpoint of a run."""
    if any(pipeline.state != RunState.COMPLETED for pipeline in pipelines_of(registry, record)):
        return True
    return bool(users_of(registry, record, set(), starts) - {record.id})


def _weights(registry: Registry, every: Sequence[RunRecord], pinned: set[str]) -> Iterator[Garbage]:
    """Weights of trials of completed sweeps that nothing needs."""
    models = registry.models.table()
    named = registry.named_in_specs(NAME_FIELDS)
    places = places_of([*models.values("folder"), *named])
    parents = {run.parent_id for run in every}
    sweeps = [run for run in every if run.state == RunState.COMPLETED and run.id in parents]
    # The best of what is here stays, also where a run that was merged from elsewhere is better: its weights are there.
    elsewhere = {sweep.id for sweep in sweeps if sweep.storage_path is None or not exists(sweep.storage_path)}
    own = {run.id for run in every if run.parent_id not in elsewhere}
    everywhere = [*registry.groups_of(own), *registry.groups_of(own, archived=False)]
    groups = [replace(group, runs=[run for run in group.runs if run.id in own]) for group in everywhere]
    kept = {*models.values("run_id"), *named, *best_of_groups(groups), *pinned}
    for sweep in sweeps:
        trials = join(sweep.storage_path or "", "trials")
        for key in names_in(trials) if sweep.storage_path else ():
            folder, trial = join(trials, key, "model"), trial_id(sweep.id, key)
            if folder == sweep.model_folder or absolute(folder) in places or trial in kept or not exists(folder):
                continue
            with suppress(NotFoundError):
                registry.run(trial)
                why = "neither registered, nor best of its group, nor the start of a run"
                yield Garbage("trial weights", folder, why, run_id=sweep.id)


def _trash(registry: Registry, every: Sequence[RunRecord]) -> Iterator[Garbage]:
    """Files of removed runs, unless another run has come to read them, or the run is back."""
    named = registry.named_in_specs(NAME_FIELDS)
    places, present = places_of(named), {*(run.id for run in every), *named}
    for one in registry.trash.records():
        if one.run_id in present:
            continue
        if one.storage_path is None or absolute(one.storage_path) not in places:
            why = f"run {one.name} was removed {one.removed_at:%Y-%m-%d}; "
            why += f"orchestrator runs restore {one.run_id}" if one.claimed_at is None else "its deletion has begun"
            yield Garbage(TRASH, one.storage_path or f"record of {one.run_id}", why, one.num_bytes, one.run_id)


def places_of(names: Iterable[str]) -> set[str]:
    """Absolute paths of names and of all folders above them: what must stay where something that is named is needed."""
    places: set[str] = set()
    for name in names:
        path = absolute(name).rstrip("/")
        while path and path not in places:
            places.add(path)
            path = path.rpartition("/")[0]
    return places


def best_of_groups(groups: Iterable[GroupRecord]) -> set[str]:
    """Ids of the runs whose scores stand for a group on the leaderboard: the best, and that with the test score."""
    return {run.id for group in groups for run in (group.best, group.tested) if run is not None}


def _data_used_of_late(
    registry: Registry, runs: Sequence[RunRecord], older_than_s: float, pinned: set[str]
) -> set[str]:
    """Folders of data of the runs that began, or ended, within an age, and of pinned ones."""
    since = datetime.now(UTC) - timedelta(seconds=older_than_s)
    recent = (run.id for run in runs if (run.finished_at or run.created_at) >= since or run.id in pinned)
    return {str(path) for run_id in recent for path in registry.datasets.table(run_id).values("path")}


def _shared_data(storage: str, used: set[str], older_than_s: float) -> Iterator[Garbage]:
    """Token stores and tokenized tasks that nobody has read of late; only files of this machine tell.

    Args:
        used: folders that runs of late have used, even where a file system does not note who reads.
    """
    if not is_local(storage):
        return
    for folder, what in SHARED_FOLDERS.items():
        for name in names_in(join(storage, folder)):
            path = join(absolute(storage), folder, name)
            age_s = _age_s(local_path(path))
            if path not in used and age_s > older_than_s:
                yield Garbage(what, path, f"not used for {age_s / 86_400:.0f} days")


def _downloads(older_than_s: float) -> Iterator[Garbage]:
    """Copies of remote files that no process has asked for of late: asking for one sets its time."""
    root = cache_folder()
    for entry in sorted(downloads(root)) if root.is_dir() else ():
        age_s = time.time() - entry.stat().st_mtime
        if age_s > older_than_s:
            yield Garbage(DOWNLOAD, str(entry), f"not used for {age_s / 86_400:.0f} days")


def _age_s(path: Path) -> float:
    """Seconds since a file was written or read, or any file of a folder; looking at a folder changes its own times."""
    times = [max(stats.st_mtime, stats.st_atime) for stats in file_stats(path)] or [path.stat().st_mtime]
    return time.time() - max(times)


def rename_for_deletion(path: str) -> str:
    """Rename a file or folder of this machine that is about to be deleted; returns where it lies now.

    Elsewhere nothing can be renamed: it keeps its name until it is gone.
    """
    if not is_local(path) or path.endswith(".tmp"):
        return path
    target = local_path(path)
    nameless = target.with_name(f".{target.name}.{uuid4().hex[:8]}.tmp")
    with suppress(FileNotFoundError):  # another collection was faster
        target.rename(nameless)
    return str(nameless)


def pipelines_of(registry: Registry, run: RunRecord) -> Iterator[RunRecord]:
    """Yield the pipelines that a run is a stage of and that are there."""
    for tag in registry.annotations.tags(run.id):
        if tag.startswith(PIPELINE):
            with suppress(NotFoundError):
                yield registry.run(tag.removeprefix(PIPELINE))


def users_of(registry: Registry, run: RunRecord, trials: set[str], named: Mapping[str, set[str]]) -> set[str]:
    """Ids of the runs that name a run, one of its trials or models, or its files.

    Args:
        named: names, each with the ids of the runs that name it.
    """
    models = labels_of(registry, run, trials)
    aliases = {
        f"{name}@{alias}"
        for (name, version), those in registry.models.aliases().items()
        if f"{name}@{version}" in models
        for alias in those
    }
    own, folder = (
        {run.id, *trials, *models, *aliases},
        run.storage_path and f"{absolute(run.storage_path).rstrip('/')}/",
    )
    reached = (name for name in named if name in own or (folder and f"{absolute(name)}/".startswith(folder)))
    return {user for name in reached for user in named[name]}


def labels_of(registry: Registry, run: RunRecord, trials: set[str]) -> list[str]:
    """Models whose files a run and its trials hold."""
    return [model.label for model in (*registry.models.left_by(run), *registry.models.of_run(*trials))]
