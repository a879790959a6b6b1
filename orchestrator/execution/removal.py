"""Removal of runs that a person names.

A removed run goes into the trash: a mark in the registry hides its record, and its files stay until the next
collection (`garbage`), until which it can be restored. Removed at once, it is claimed and its files go: where that is
interrupted, the next collection removes the rest. What is kept here is refused: runs at work, pinned ones, and what
registered models, groups of trials and other runs rest on. A pipeline goes with its stages, the newest first and
itself last. A stage stays where another pipeline uses it too, or another run names its model or files.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.execution.garbage import best_of_groups, labels_of, pipelines_of, rename_for_deletion, users_of
from orchestrator.registry.records import MAX_CANDIDATES, RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.specs.references import NAME_FIELDS
from orchestrator.storage import delete, exists
from orchestrator.storage.folders import used_bytes


@dataclass(frozen=True)
class Removal:
    """A run that is to be removed."""

    run: RunRecord
    num_trials: int
    num_bytes: int
    refusal: str
    """Reason why it must stay, with what can be done; empty where it can be removed."""
    force: bool = False
    """Whether it may go although its model is registered, or a trial the best of its group."""
    is_stage: bool = False
    """Whether it goes because its pipeline does, and was not named itself."""
    needed: str = ""
    """Reason why a stage is left where it is while its pipeline goes; empty for all else."""


def find_removals(prefixes: Sequence[str], settings: Settings, *, force: bool = False) -> list[Removal]:
    """The runs whose ids begin so, the stages of pipelines before them, and whether each can be removed.

    Args:
        force: whether runs may go whose models are registered, or whose trials are the best of their groups.

    Raises: NotFoundError.
    """
    with Registry(settings.registry, read_only=True) as registry:
        runs = {run.id: run for run in map(registry.run, prefixes)}
        stages = list(_stage_removals(registry, runs, force=force))
        removals = []
        for run in runs.values():
            trials = _trials_of(registry, run)
            refusal = _refusal(registry, run, trials, force=force)
            removals.append(Removal(run, len(trials), _num_bytes(run), refusal, force))
        return [*stages, *removals]


def remove_runs(removals: Sequence[Removal], settings: Settings, *, at_once: bool = False) -> Iterator[Removal]:
    """Remove runs, and yield what is gone; a run that has come to be needed meanwhile stays, with its pipeline.

    Args:
        at_once: whether files and record are deleted now, rather than put into the trash.
    """
    pipelines = {removal.run.id for removal in removals if removal.run.kind == "pipeline"}
    held: set[str] = set()
    with Registry(settings.registry) as registry:
        for removal in removals:
            run = registry.run(removal.run.id)
            trials = _trials_of(registry, run)
            if removal.needed:
                continue
            if run.id in held or _refusal(registry, run, trials, force=removal.force, going=pipelines):
                if removal.is_stage:
                    held |= {pipeline.id for pipeline in pipelines_of(registry, run)}
                continue
            if not registry.trash.put(run.id, removal.num_bytes):
                continue
            if at_once:
                with registry.trash.claiming() as claim:
                    claim(run.id)
                if run.storage_path is not None and exists(run.storage_path):
                    delete(rename_for_deletion(run.storage_path))
                registry.lifecycle.remove(run.id)
            yield removal


def _stage_removals(registry: Registry, runs: Mapping[str, RunRecord], *, force: bool) -> Iterator[Removal]:
    """Yield the stages that go with pipelines, the newest first, since stages start from older ones.

    Args:
        runs: all runs that are to go, by their ids.
    """
    pipelines = [run for run in runs.values() if run.kind == "pipeline"]
    found = {stage.id: stage for run in pipelines for stage in registry.stages(run.id) if stage.id not in runs}
    stages = sorted(found.values(), key=lambda stage: (stage.created_at, stage.id), reverse=True)
    trials = {stage.id: _trials_of(registry, stage) for stage in stages}
    going = {*(run.id for run in pipelines), *found, *(trial for some in trials.values() for trial in some)}
    for stage in stages:
        own = trials[stage.id]
        users = [run.id for run in pipelines_of(registry, stage) if run.id not in runs]
        needed = f"pipeline {users[0]} uses it too" if users else _need(registry, stage, own, going=going)
        if needed:
            going -= {stage.id, *own}
        refusal = "" if needed else _refusal(registry, stage, own, force=force, going=going)
        yield Removal(stage, len(own), _num_bytes(stage), refusal, force, is_stage=True, needed=needed)


def _num_bytes(run: RunRecord) -> int:
    folder = run.storage_path
    return used_bytes(folder) if folder is not None and exists(folder) else 0


def _trials_of(registry: Registry, run: RunRecord) -> set[str]:
    return set(registry.run_ids(f"parent = '{run.id}'"))


def _need(registry: Registry, run: RunRecord, trials: set[str], *, going: Set[str] = frozenset()) -> str:
    """Reason why other runs need this one, but for those that go with it; empty where none does."""
    named = registry.named_in_specs(NAME_FIELDS, except_of={run.id, *trials, *going})
    users = registry.run_records(users_of(registry, run, trials, named))
    listed = ", ".join(f"{user.id} ({user.name})" for user in users[:MAX_CANDIDATES])
    more = ", …" if len(users) > MAX_CANDIDATES else ""
    return f"other runs started from its model, or read its files: {listed}{more}" if users else ""


def _refusal(
    registry: Registry, run: RunRecord, trials: set[str], *, force: bool, going: Set[str] = frozenset()
) -> str:
    """Reason why a run must stay; of other runs what they name is read alone, and the groups that they share.

    Args:
        going: runs that go with it, which hold it no more than it holds them.
    """
    if run.parent_id is not None:
        return f"it is a trial of {run.parent_id}; remove that sweep"
    if not run.state.is_final:
        return f"it is {run.state}; end it first: orchestrator stop {run.id}"
    if run.storage_path is not None and run.storage_path.rstrip("/").rpartition("/")[2] != run.id:
        return f"its folder, {run.storage_path}, has not its id and may hold more; remove it by hand"
    pinned = sorted({run.id, *trials} & registry.annotations.flagged("pinned"))
    if pinned:
        bearers = " ".join(registry.annotations.bearers(pinned[0], "pinned") or pinned[:1])
        return f"{pinned[0]} is pinned; orchestrator runs edit {bearers} --unpin"
    for pipeline in pipelines_of(registry, run):
        if pipeline.state != RunState.COMPLETED and pipeline.id not in going:
            return f"it is a stage of {pipeline.id}, which is {pipeline.state} and may go on; remove that first"
    if needed := _need(registry, run, trials, going=going):
        return needed
    models = labels_of(registry, run, trials)
    if models and not force:
        return f"its model is registered: {', '.join(models)}; --force takes it out of the registry too"
    groups = *registry.groups_of(trials), *registry.groups_of(trials, archived=False)
    leading = sorted(trials & best_of_groups(groups))
    if leading and not force:
        return f"its trial {leading[0]} is the best of its group on the leaderboard; --force removes it all the same"
    return ""
