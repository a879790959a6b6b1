"""Cost that a run will have: what an earlier run of the same spec took, else what it will hold for its time."""

import os
from dataclasses import replace

from orchestrator.costs.prices import load_prices
from orchestrator.costs.run_usage import usage_of
from orchestrator.costs.usage import UNKNOWN_GPU, Usage
from orchestrator.errors import RegistryError
from orchestrator.kinds.base import AnyKind, Fact
from orchestrator.kinds.resolved import Resolved
from orchestrator.planning.run_time import ExpectedTime
from orchestrator.registry import Registry
from orchestrator.specs import Spec


def cost_fact(kind: AnyKind, spec: Spec, inputs: Resolved, expected: ExpectedTime) -> Fact:
    """The line of a plan about the cost of a run. Raises: InputError for prices that are wrong."""
    usage = _recorded(expected, inputs) or _held(kind, spec, expected.seconds)
    prices = load_prices(inputs.settings.home)
    money = None if prices is None else prices.money(usage)
    return "cost", f"about {usage}" + ("" if money is None else f"; {money}")


def _recorded(expected: ExpectedTime, inputs: Resolved) -> Usage | None:
    """Usage of the earlier run that the time is of; None where it is of none, or its registry does not answer."""
    if expected.earlier is None:
        return None
    try:
        with Registry(inputs.settings.registry, read_only=True) as registry:
            return usage_of(expected.earlier, registry)
    except RegistryError:
        return None


def _held(kind: AnyKind, spec: Spec, seconds: float) -> Usage:
    """Resources that a run holds for a time: as much at once as it may, and no more CPUs than this machine has."""
    held = kind.resources(spec)
    cpus = min(held.total.get("CPU", 0.0) * held.up_to, max(float(os.cpu_count() or 1), held.total.get("CPU", 0.0)))
    gpus = held.total.get("GPU", 0.0) * held.up_to
    usage = Usage(seconds, derived_cpu_seconds=seconds * cpus)
    return replace(usage, gpu_seconds={UNKNOWN_GPU: seconds * gpus}) if gpus else usage
