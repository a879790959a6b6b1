"""Usage of recorded runs: what was recorded of their attempts, else derived from their times and their specs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.costs.usage import UNKNOWN_GPU, Usage, total_usage
from orchestrator.registry.records import AttemptCostRecord, RunRecord
from orchestrator.registry.registry import Registry

PIPELINE = "pipeline"
_UNKNOWN = Usage(num_unknown=1)


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
    known = {run.id: total_usage(map(Usage.of_attempt, recorded[run.id])) for run in runs}
    incomplete = [run for run in runs if _lacks_attempts(run, recorded[run.id])]
    missing = _derived(incomplete, known, registry) if derive else {run.id: _UNKNOWN for run in incomplete}
    return known | {run_id: known[run_id] + usage for run_id, usage in missing.items()}


def _lacks_attempts(run: RunRecord, recorded: Sequence[AttemptCostRecord]) -> bool:
    """Whether nothing is recorded of an attempt that has ended; nothing is of the attempts of trials."""
    if run.parent_id is not None:
        return True
    at_work = run.state.has_driver and all(cost.number != run.attempt for cost in recorded)
    return run.attempt - at_work - len(recorded) > 0


def _derived(runs: Sequence[RunRecord], known: Mapping[str, Usage], registry: Registry) -> dict[str, Usage]:
    """Derive what attempts took of which nothing is recorded: what they held, times the rest of their runs' seconds.

    Args:
        known: what is recorded of each run.
    """
    seconds = {run.id: max(0.0, run.seconds - known[run.id].seconds) for run in runs if run.seconds is not None}
    derived = {run.id: Usage(seconds.get(run.id, 0.0), num_unknown=1) for run in runs}
    if not seconds:
        return derived
    from orchestrator.costs.held import held_by_each, times_held  # specs and what they need, which records can spare

    held = held_by_each([run for run in runs if run.id in seconds], registry)
    of_trials = registry.costs.trial_seconds_of([run_id for run_id in held if not known[run_id].seconds])
    groups = registry.costs.worker_groups(held)
    last_steps = registry.metrics.last_steps(groups)
    for run_id, resources in held.items():
        times = times_held(resources, groups.get(run_id, ()), last_steps.get(run_id))
        held_seconds = of_trials.get(run_id, seconds[run_id] * times)
        gpu_seconds = held_seconds * resources.total.get("GPU", 0.0)
        derived[run_id] = Usage(
            seconds[run_id],
            derived_cpu_seconds=held_seconds * resources.total.get("CPU", 0.0),
            gpu_seconds={UNKNOWN_GPU: gpu_seconds} if gpu_seconds else {},
        )
    return derived
