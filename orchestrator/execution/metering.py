"""Metering of a run at work: a thread records what the attempt holds, and stops it at the limit of its hours.

A run at its limit ends as `orchestrator stop` ends one: it saves what it can, and may go on with more hours.
"""

import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from orchestrator.cluster.capacity import cluster_resources, gpu_types
from orchestrator.errors import HoursReached, InputError, RegistryError
from orchestrator.execution.stopping import StopWatch
from orchestrator.kinds import kind_of
from orchestrator.periodic import repeating
from orchestrator.registry.records import AttemptCostRecord, RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.specs import PipelineSpec, Spec
from orchestrator.specs.fields import hour_limit_of

INTERVAL_S = 5.0
_HOUR_S = 3600.0
logger = logging.getLogger(__name__)


def refuse_if_spent(record: RunRecord, spec: Spec) -> None:
    """Refuse to go on with a run whose attempts have worked as long as its spec allows. Raises: InputError."""
    reached = hours_reached(record, spec, record.seconds or 0.0)
    if reached is not None:
        raise InputError(f"run {record.id} cannot go on: {reached}")


def hours_reached(record: RunRecord, spec: Spec, seconds: float, pipeline: str | None = None) -> HoursReached | None:
    """The end of a run that has worked for so many seconds; None before its limit, or without one.

    Args:
        pipeline: id of the run's pipeline, with which a person goes on.
    """
    limit, whole = hour_limit_of(spec), pipeline or record.id
    if limit is None or seconds < limit[1] * _HOUR_S:
        return None
    field, hours = limit
    stage = "" if whole == record.id else f"stages.{record.name.rpartition('/')[2]}."
    return HoursReached(whole, f"run {record.id} has reached {field}, {hours:g} h", f"{stage}{field}={2 * hours:g}")


@contextmanager
def metered(
    record: RunRecord,
    spec: Spec,
    registry: Registry,
    stop_watch: StopWatch,
    interval_s: float = INTERVAL_S,
    most_cpus: float = math.inf,
) -> Iterator[None]:
    """Record from a thread what an attempt takes, until the end of the block, and stop it at the limit of its hours.

    A pipeline has no costs beside its stages'.

    Args:
        most_cpus: CPUs that there are, where Ray may count more.

    Raises: HoursReached where earlier attempts took all hours.
    """
    pipeline = stop_watch.outermost
    before_s, begun_at = record.seconds or 0.0, time.monotonic()
    if (reached := hours_reached(record, spec, before_s, pipeline)) is not None:
        raise reached
    meter = None if isinstance(spec, PipelineSpec) else _Meter(record, spec, registry, most_cpus)

    def look() -> bool:
        if meter is not None:
            meter.record()
        reached = hours_reached(record, spec, before_s + time.monotonic() - begun_at, pipeline)
        if reached is not None and not stop_watch.stop(reached):
            logger.warning(f"{reached.reason}; it goes on, as only a run of the main thread can be stopped")
        return reached is None

    with repeating(look, interval_s, f"costs-{record.id}"):
        try:
            yield
        finally:
            if meter is not None:
                meter.record()


class _Meter:
    """Meter of what an attempt holds of the connected Ray: a sweep what its trials hold, others their processes."""

    def __init__(self, record: RunRecord, spec: Spec, registry: Registry, most_cpus: float) -> None:
        self._run, self._registry, self._most_cpus = record, registry, most_cpus
        held = kind_of(spec).resources(spec)
        self._held = held if held.with_gpus is None else held.on(cluster_resources())
        self._gpu_type = " or ".join(gpu_types()) if self._held.total.get("GPU") else None
        self._begun_at = self._looked_at = time.monotonic()
        self._held_s = 0.0

    def record(self) -> None:
        """Record what the attempt has taken so far; a registry that does not answer is asked again."""
        now = time.monotonic()
        run_id, number = self._run.id, self._run.attempt
        with suppress(RegistryError):
            self._held_s += self._num_held() * (now - self._looked_at)
            self._looked_at = now
            trial_s = self._registry.costs.trial_seconds(run_id, number)
            held_s = self._held_s if trial_s is None else trial_s
            cpu_s, gpu_s = (held_s * self._held.total.get(name, 0.0) for name in ("CPU", "GPU"))
            seconds = now - self._begun_at
            cpu_s = min(cpu_s, self._most_cpus * seconds)
            cost = AttemptCostRecord(run_id, number, seconds, cpu_s, gpu_s, self._gpu_type)
            self._registry.costs.record(cost)

    def _num_held(self) -> float:
        """Number of times that the resources are held now: several where a range of workers has found room."""
        if self._held.up_to == 1.0:
            return 1.0
        attempts = [one for one in self._registry.attempts(self._run.id) if one.number == self._run.attempt]
        groups = [group for one in attempts for group in one.workers or ()]
        return len(groups[-1]["hosts"]) / self._held.processes[0].count if groups else 1.0
