"""Metering of a run at work: its costs are recorded from a thread, and it is stopped when its budget is spent.

A run that has spent its budget ends as `orchestrator stop` ends one: it saves what it can, and may go on with more.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from orchestrator.cluster.addresses import names_no_cluster
from orchestrator.cluster.node_types import cluster_resources, gpu_types
from orchestrator.costs.budget import budget_prices, check_priced, larger, reached_limit, spent_text
from orchestrator.costs.energy import open_energy
from orchestrator.costs.meter import Meter
from orchestrator.costs.processor_time import ProcessorTime
from orchestrator.costs.run_usage import usage_of
from orchestrator.costs.usage import HOUR_S, UNKNOWN_GPU, Usage, total_usage
from orchestrator.errors import BudgetReached, InputError, RegistryError
from orchestrator.execution.stopping import StopWatch
from orchestrator.kinds import kind_of
from orchestrator.kinds.base import Resources
from orchestrator.registry.patience import retry_while_unavailable
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.repeating import repeating
from orchestrator.settings import Settings
from orchestrator.specs import PipelineSpec, Spec
from orchestrator.specs.pipeline import stages_of

LOOK_INTERVAL_S = 5.0
"""Pause between two looks at the counters, and at the budget of a run that has one."""
RECORD_INTERVAL_S = 30.0
logger = logging.getLogger(__name__)


def check_budgets(spec: Spec, settings: Settings) -> None:
    """Check that a spec's budgets can be counted. Raises: InputError for one of money where there are no prices."""
    for part in {id(one): one for one in (spec, *stages_of(spec).values())}.values():
        if part.budget is not None:
            budget_prices(part.budget, settings)


def refuse_if_spent(record: RunRecord, spec: Spec, registry: Registry, settings: Settings) -> None:
    """Refuse to go on with a run whose budget its attempts have spent. Raises: InputError."""
    if spec.budget is None:
        return
    usage = usage_of(record, registry)
    limit = reached_limit(spec.budget, usage, budget_prices(spec.budget, settings))
    if limit is not None:
        raise InputError(
            f"run {record.id} cannot go on: {spent_text(spec.budget, limit, usage)}; give it more: "
            f"orchestrator resume {record.id} {larger(spec.budget, limit)}"
        )


@contextmanager
def metered(
    record: RunRecord,
    spec: Spec,
    registry: Registry,
    stop_watch: StopWatch,
    settings: Settings,
    interval_s: float = LOOK_INTERVAL_S,
) -> Iterator[None]:
    """Record from a thread what an attempt takes, until the end of the block, and stop it when its budget is spent.

    Raises: BudgetReached where earlier attempts have spent it; InputError for one of money where what it takes has
        no price.
    """
    overseer = _Overseer(record, spec, registry, stop_watch, settings)
    reached = retry_while_unavailable(overseer.reached)
    if reached is not None:
        raise reached
    with repeating(overseer.look, interval_s, f"costs-{record.id}"):
        try:
            yield
        finally:
            overseer.record()


class _Overseer:
    """Work of the thread of `metered`: it looks at the counters, records what they say, and compares it."""

    def __init__(
        self, record: RunRecord, spec: Spec, registry: Registry, stop_watch: StopWatch, settings: Settings
    ) -> None:
        self._run, self._spec, self._registry, self._stop_watch = record, spec, registry, stop_watch
        self._prices = None if spec.budget is None else budget_prices(spec.budget, settings)
        if spec.budget is not None and self._prices is not None:
            check_priced(spec.budget, _hour_of(spec, settings), self._prices, settings)
        has_budget = spec.budget is not None
        self._before = retry_while_unavailable(lambda: usage_of(record, registry)) if has_budget else Usage()
        self._meter = None if isinstance(spec, PipelineSpec) else _meter_of(record, spec, registry, settings)
        self._begun_at = self._recorded_at = time.monotonic()

    def look(self) -> bool:
        """Look at the counters, and stop the run when its budget is spent; returns whether to look again."""
        with suppress(RegistryError):  # what is there is looked at again
            if self._meter is not None:
                self._meter.look()
            if time.monotonic() - self._recorded_at >= RECORD_INTERVAL_S:
                self.record()
            reached = self.reached()
            if reached is not None:
                if self._stop_watch.stop(reached):
                    logger.info(f"stopping: {reached.reason}")
                else:
                    logger.warning(f"{reached.reason}; it goes on, as only a run of the main thread can be stopped")
                return False
        return True

    def record(self) -> None:
        """Record what the attempt has taken; a pipeline's stages do so themselves."""
        self._recorded_at = time.monotonic()
        if self._meter is not None:
            try:
                self._registry.costs.record(self._meter.read())
            except RegistryError as error:
                logger.debug(f"costs of run {self._run.id} are not recorded: {error}")

    def reached(self) -> BudgetReached | None:
        """The end of a run whose budget is spent; None while something is left, or where it has none."""
        budget = self._spec.budget
        if budget is None:
            return None
        usage = self._usage()
        limit = reached_limit(budget, usage, self._prices)
        if limit is None:
            return None
        outermost = self._stop_watch.outermost or self._run.id
        section = "" if outermost == self._run.id else f"stages.{self._run.name.rpartition('/')[2]}."
        reason = f"run {self._run.id} stops: {spent_text(budget, limit, usage)}"
        return BudgetReached(outermost, reason, larger(budget, limit, section))

    def _usage(self) -> Usage:
        """Return what all attempts have taken, this one included."""
        if self._meter is not None:
            return self._before + Usage.of_attempt(self._meter.read())
        seconds = (self._run.seconds or 0.0) + time.monotonic() - self._begun_at
        return replace(usage_of(self._run, self._registry), seconds=seconds)


def _meter_of(record: RunRecord, spec: Spec, registry: Registry, settings: Settings) -> Meter:
    """The meter of an attempt that begins. Of work on other hosts this process sees neither time nor energy."""
    held = _held_by(spec)
    has_gpus, is_here = bool(held.total.get("GPU")), names_no_cluster(settings)
    return Meter(
        registry,
        record.id,
        record.attempt,
        held,
        gpu_type=_gpu_type() if has_gpus else None,
        processor_time=ProcessorTime() if is_here else None,
        energy=open_energy(with_gpus=has_gpus) if is_here else None,
    )


def _held_by(spec: Spec) -> Resources:
    """Resources of a spec, no pipeline's, on the connected Ray."""
    resources = kind_of(spec).resources(spec)
    return resources if resources.with_gpus is None else resources.on(cluster_resources())


def _gpu_type() -> str:
    return " or ".join(gpu_types())


def _hour_of(spec: Spec, settings: Settings) -> Usage:
    """Count what an hour of a run takes, an hour of each stage of a pipeline, as `_meter_of` would; energy is 0."""
    return total_usage(_hour_held(_held_by(stage), settings) for stage in stages_of(spec).values())


def _hour_held(held: Resources, settings: Settings) -> Usage:
    num_gpus = held.total.get("GPU", 0.0)
    return Usage(
        HOUR_S,
        derived_cpu_seconds=HOUR_S * held.total.get("CPU", 0.0),
        gpu_seconds={_gpu_type() or UNKNOWN_GPU: HOUR_S * num_gpus} if num_gpus else {},
        energy_joules=open_energy(with_gpus=bool(num_gpus)).joules() if names_no_cluster(settings) else None,
    )
