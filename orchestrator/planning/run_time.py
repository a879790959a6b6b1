"""Time that a run will take, and its cost: those of an earlier run of the same spec, else the time by steps of recorded
runs like it, or by a few of its steps on this machine, and what it will hold meanwhile."""

import os
import socket
from contextlib import suppress
from dataclasses import dataclass

from orchestrator.costs import UNKNOWN_GPU, Usage, load_prices, usage_of, with_price
from orchestrator.errors import RegistryError
from orchestrator.kinds.base import AnyKind, Fact, MeasuredTime
from orchestrator.kinds.resolved import Resolved
from orchestrator.progress import duration
from orchestrator.registry import Registry, RunRecord
from orchestrator.specs import Spec


@dataclass(frozen=True)
class ExpectedTime:
    """Time that a run will take, and how it is known."""

    seconds: float
    text: str
    earlier: RunRecord | None = None
    """Run of the same spec that took so long; None where the time is of a part of a run."""


def expected_time(kind: AnyKind, spec: Spec, inputs: Resolved) -> ExpectedTime | None:
    """Return the time of a run; None where nothing is known of it.

    That of an earlier run counts most, then the recorded steps or trials of runs like it. Without either it takes
    seconds, since a part of the run has to be done to find out.
    """
    earlier, similar = _recorded(kind, spec, inputs)
    if earlier is not None and earlier.seconds:
        host = f" on {earlier.host}" if earlier.host else ""
        text = f"{duration(earlier.seconds)}, as run {earlier.id} took{host}"
        return ExpectedTime(earlier.seconds, text, earlier)
    found = similar or kind.measure_time(spec, inputs)
    if found is None:
        return None
    how = f"by {found.by}" if similar else f"from {found.by} on the CPU of {socket.gethostname()}, beside starting"
    length = f"about {duration(found.seconds)}" if found.seconds >= 1 else "less than a second"
    return ExpectedTime(found.seconds, f"{length} for {found.of_what}, {how}")


def cost_fact(kind: AnyKind, spec: Spec, inputs: Resolved, expected: ExpectedTime) -> Fact:
    """The line of a plan about the cost of a run. Raises: InputError for prices that are wrong."""
    usage = None
    if expected.earlier is not None:
        with suppress(RegistryError), Registry(inputs.settings.registry, read_only=True) as registry:
            usage = usage_of(expected.earlier, registry)
    if usage is None:
        held = kind.resources(spec)  # as much at once as it may, and no more CPUs than this machine has
        cpus, gpus = (held.total.get(name, 0.0) for name in ("CPU", "GPU"))
        cpu_s = expected.seconds * min(cpus * held.up_to, max(float(os.cpu_count() or 1), cpus))
        gpu_s = expected.seconds * gpus * held.up_to
        usage = Usage(expected.seconds, cpu_s, {UNKNOWN_GPU: gpu_s} if gpu_s else {})
    return "cost", f"about {with_price(usage, load_prices(inputs.settings.home))}"


def _recorded(kind: AnyKind, spec: Spec, inputs: Resolved) -> tuple[RunRecord | None, MeasuredTime | None]:
    """The newest completed run of the same spec, and the time by runs like it; none where no registry answers."""
    try:
        with Registry(inputs.settings.registry, read_only=True) as registry:
            earlier = registry.newest_completed(inputs.pin(spec).fingerprint())
            return earlier, None if earlier else kind.recorded_time(spec, registry)
    except RegistryError:
        return None, None
