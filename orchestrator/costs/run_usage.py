"""Usage of recorded runs: what was recorded of their attempts, else derived from their times and their specs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.costs.usage import UNKNOWN_GPU, Usage, total_usage
from orchestrator.registry.records import AttemptCostRecord, RunRecord
from orchestrator.registry.registry import Registry

PIPELINE = "pipeline"


def usage_of(run: RunRecord, registry: Registry, *, derive: bool = True) -> Usage:
    """Return what a run has taken over all its attempts, a pipeline over its own stages.

    The seconds of a pipeline are its driver's, which count once.

    Args:
        derive: whether to derive what is not recorded, which takes seconds for the libraries that the specs need.
    """
    if run.kind == PIPELINE:
        stages = total_usage(usages_of(own_stages(run, registry), registry, derive=derive).values())
        return stages if run.seconds is None else replace(stages, seconds=run.seconds)
    return usages_of([run], registry, derive=derive)[run.id]


def own_stages(pipeline: RunRecord, registry: Registry) -> list[RunRecord]:
    """Stages that a pipeline has carried out itself, in order; what others had done before has cost it nothing."""
    stages = registry.stages(pipeline.id)
    return [stage for stage in reversed(stages) if stage.created_at >= pipeline.created_at]


def usages_of(runs: Sequence[RunRecord], registry: Registry, *, derive: bool = True) -> Mapping[str, Usage]:
    """Return what each of some runs has taken, by its id; none of them is a pipeline."""
    recorded: dict[str, list[AttemptCostRecord]] = defaultdict(list)
    for cost in registry.costs.of_runs([run.id for run in runs]):
        recorded[cost.run_id].append(cost)
    return {run.id: _usage(run, recorded[run.id], registry, derive=derive) for run in runs}


def _usage(run: RunRecord, recorded: Sequence[AttemptCostRecord], registry: Registry, *, derive: bool) -> Usage:
    """Sum of what is recorded, and of what can be derived for attempts of which nothing is."""
    known = total_usage(map(Usage.of_attempt, recorded))
    at_work = run.state.has_driver and all(cost.number != run.attempt for cost in recorded)
    missing = run.attempt - at_work - len(recorded) if run.parent_id is None else 1
    if missing <= 0:
        return known
    return known + (_derived(run, known.seconds, registry) if derive else Usage(num_unknown=1))


def _derived(run: RunRecord, known_seconds: float, registry: Registry) -> Usage:
    """Derive what attempts took of which nothing is recorded: what they held, times the rest of the run's seconds."""
    from orchestrator.costs.held import held_by, times_held  # specs and what they need, which records can spare

    if run.seconds is None:
        return Usage(num_unknown=1)
    seconds = max(0.0, run.seconds - known_seconds)
    held = held_by(run, registry)
    if held is None:
        return Usage(seconds, num_unknown=1)
    trial_seconds = registry.costs.trial_seconds(run.id) if not known_seconds else None
    groups = [group for attempt in registry.attempts(run.id) for group in attempt.workers or ()]
    times = times_held(held, groups, registry.metrics.last_step(run.id))
    held_seconds = seconds * times if trial_seconds is None else trial_seconds
    gpu_seconds = held_seconds * held.total.get("GPU", 0.0)
    return Usage(
        seconds,
        derived_cpu_seconds=held_seconds * held.total.get("CPU", 0.0),
        gpu_seconds={UNKNOWN_GPU: gpu_seconds} if gpu_seconds else {},
    )
