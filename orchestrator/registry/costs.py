"""Costs of runs: CPU and GPU hours that attempts held, and their price by a table that a person keeps.

    currency: EUR                          # HOME/prices.yaml
    cpu_hour: 0.04
    gpu_hour: {H200: 3.50, L40S: 1.10}     # or one number for every type

A type is a part of whole words in the name that its driver gives: `H200` prices a `NVIDIA H200 NVL`, no `GH200`.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator.base.errors import InputError
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry

HOUR_S = 3600.0
PRICES_FILE = "prices.yaml"
UNKNOWN_GPU = "GPU"
"""Type of GPUs of which no type is recorded."""
_FIELDS = ("currency", "cpu_hour", "gpu_hour")


@dataclass(frozen=True)
class Usage:
    """Time that one run, or several, have worked, and what they held meanwhile."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    gpu_seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds by the type of the GPU."""

    def __add__(self, other: "Usage") -> "Usage":
        gpu_seconds = dict(Counter(self.gpu_seconds) + Counter(other.gpu_seconds))
        return Usage(self.seconds + other.seconds, self.cpu_seconds + other.cpu_seconds, gpu_seconds)

    def __str__(self) -> str:
        """Text of what was held: `5.9 CPU h; 2 H200 h`."""
        held = [("CPU", self.cpu_seconds), *sorted(self.gpu_seconds.items())]
        return "; ".join(f"{seconds / HOUR_S:.3g} {device} h" for device, seconds in held)


def usages_of(runs: Sequence[RunRecord], registry: Registry) -> dict[str, Usage]:
    """Usage of each of some runs over its attempts, by its id; none of a run of which nothing is recorded."""
    usages: dict[str, Usage] = {}
    for cost in registry.costs.of_runs([run.id for run in runs]):
        gpu_seconds = {cost.gpu_type or UNKNOWN_GPU: cost.gpu_seconds} if cost.gpu_seconds else {}
        usages[cost.run_id] = usages.get(cost.run_id, Usage()) + Usage(cost.seconds, cost.cpu_seconds, gpu_seconds)
    return usages


def usage_of(run: RunRecord, registry: Registry) -> Usage | None:
    """Usage of a run, a pipeline's with its own stages; None where nothing is recorded."""
    if run.kind != "pipeline":
        return usages_of([run], registry).get(run.id)
    usages = usages_of(own_stages(run, registry), registry)
    return replace(sum(usages.values(), Usage()), seconds=run.seconds or 0.0) if usages else None


def own_stages(pipeline: RunRecord, registry: Registry) -> list[RunRecord]:
    """Stages that a pipeline has carried out itself, in order; those of earlier runs have cost it nothing."""
    stages = reversed(registry.stages(pipeline.id))
    return [one for one in stages if one.created_at >= pipeline.created_at and one.stage_in(pipeline) is not None]


@dataclass(frozen=True)
class PriceTable:
    """Prices of an hour in one currency."""

    currency: str
    cpu_hour: float = 0.0
    gpu_hours: Mapping[str, float] = field(default_factory=dict)
    """Prices by whole words of the name of a GPU's type; no words are any type."""

    def price(self, usage: Usage) -> float | None:
        """Price of what was held; None where a type of GPU has none."""
        price = usage.cpu_seconds / HOUR_S * self.cpu_hour
        for gpu, seconds in usage.gpu_seconds.items():
            parts = [part for part in self.gpu_hours if not part or re.search(rf"\b{re.escape(part)}\b", gpu, re.I)]
            if not parts:
                return None
            price += seconds / HOUR_S * self.gpu_hours[max(parts, key=len)]
        return price


def with_price(usage: Usage, prices: PriceTable | None) -> str:
    """Text of what was held, with its price if it has one: `5.9 CPU h; 0.24 EUR`."""
    price = None if prices is None else prices.price(usage)
    return str(usage) if prices is None or price is None else f"{usage}; {price:.4g} {prices.currency}"


def load_prices(home: Path) -> PriceTable | None:
    """The price table of a home folder; None where there is none. Raises: InputError for one that is wrong."""
    path = home / PRICES_FILE
    if not path.exists():
        return None
    from orchestrator.specs.yaml_text import read_document

    values = read_document(path).values
    if unknown := [name for name in values if name not in _FIELDS]:
        raise InputError(f"{path}: {unknown[0]} is no price; there are {', '.join(_FIELDS)}")
    currency, cpu_hour, gpu_hour = (values.get(name) for name in _FIELDS)
    if not isinstance(currency, str) or not currency.strip():
        raise InputError(f"{path}: currency is {currency!r}; give a word, such as EUR")
    by_type = gpu_hour if isinstance(gpu_hour, dict) else {} if gpu_hour is None else {"": gpu_hour}
    gpu_hours = {str(gpu): _price(price, f"{path}: gpu_hour {gpu}") for gpu, price in by_type.items()}
    return PriceTable(currency, _price(cpu_hour or 0.0, f"{path}: cpu_hour"), gpu_hours)


def _price(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise InputError(f"{where} is {value!r}; give a number, 0 or more")
    return float(value)
