"""Prices of hours and energy, by a small file that a person keeps: `HOME/prices.yaml`. Without it there is no money.

    currency: EUR
    cpu_hour: 0.04
    gpu_hour: {H200: 3.50, L40S: 1.10}     # or one number for every type
    kwh: 0.31

A type is found in the name that its driver gives: `H200` prices a `NVIDIA H200 NVL`. Any part may be left out, and
costs nothing then: of rented machines the hours have a price, of one's own the energy alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.costs.usage import HOUR_S, JOULES_PER_KWH, Usage
from orchestrator.errors import InputError

PRICES_FILE = "prices.yaml"
_FIELDS = ("currency", "cpu_hour", "gpu_hour", "kwh")
_ANY_GPU = ""


@dataclass(frozen=True)
class Money:
    """Price of what was used, as far as there are prices."""

    amount: float
    currency: str
    unpriced: tuple[str, ...] = ()
    """Used hours that have no price, such as `H200 hours`."""

    def __str__(self) -> str:
        """Return text such as `1.25 EUR, without H200 hours, which have no price`."""
        without = f", without {' and '.join(self.unpriced)}, which have no price" if self.unpriced else ""
        return f"{self.amount:.4g} {self.currency}{without}"


@dataclass(frozen=True)
class PriceTable:
    """Prices in one currency."""

    currency: str = ""
    cpu_hour: float | None = None
    gpu_hours: Mapping[str, float] = field(default_factory=dict)
    """Price of an hour of a GPU, by a part of the name of its type; an empty part is any type."""
    kwh: float | None = None

    def money(self, usage: Usage) -> Money | None:
        """Price what was used; None where nothing of it has a price, or nothing is known of it."""
        amounts = {"CPU hours": (usage.cpu_seconds / HOUR_S, self.cpu_hour)}
        for gpu, seconds in sorted(usage.gpu_seconds.items()):
            amounts[f"{gpu} hours"] = seconds / HOUR_S, self._gpu_hour(gpu)
        priced = {what: (amount, price) for what, (amount, price) in amounts.items() if amount}
        if self.kwh is not None and usage.energy_joules is not None:
            priced["energy"] = usage.energy_joules / JOULES_PER_KWH, self.kwh
        known = [amount * price for amount, price in priced.values() if price is not None]
        if not known:
            return None
        by_energy_alone = self.cpu_hour is None and not self.gpu_hours
        unpriced = () if by_energy_alone else tuple(what for what, (_, price) in priced.items() if price is None)
        return Money(sum(known), self.currency, unpriced)

    def _gpu_hour(self, gpu: str) -> float | None:
        """Price of an hour of a type; of several parts that are in its name the longest one's."""
        parts = [part for part in self.gpu_hours if part.lower() in gpu.lower()]
        return self.gpu_hours[max(parts, key=len)] if parts else None


def load_prices(home: Path) -> PriceTable | None:
    """Read the price table of a home folder; None where there is none. Raises: InputError for one that is wrong."""
    from orchestrator.specs.yaml_text import read_document  # pydantic's company, which a look at costs can spare

    path = home / PRICES_FILE
    return _checked(read_document(path).values, path) if path.exists() else None


def _checked(values: Mapping[str, Any], path: Path) -> PriceTable:
    for name in values:
        if name not in _FIELDS:
            raise InputError(f"{path}: {name} is no price; there are {', '.join(_FIELDS)}")
    currency = values.get("currency")
    if not isinstance(currency, str) or not currency.strip():
        raise InputError(f"{path}: currency is {currency!r}; give a word, such as EUR")
    asked = values.get("gpu_hour")
    by_type = asked if isinstance(asked, dict) else {} if asked is None else {_ANY_GPU: asked}
    gpu_hours = {str(name): _price(price, f"{path}: gpu_hour {name}".rstrip()) for name, price in by_type.items()}
    cpu_hour, kwh = (
        None if values.get(name) is None else _price(values[name], f"{path}: {name}") for name in ("cpu_hour", "kwh")
    )
    return PriceTable(currency.strip(), cpu_hour, gpu_hours, kwh)


def _price(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise InputError(f"{where} is {value!r}; give a number, 0 or more")
    return float(value)
