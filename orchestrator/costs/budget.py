"""Budgets: whether what a run has taken reaches a limit of its spec."""

from orchestrator.costs.prices import PRICES_FILE, PriceTable, load_prices
from orchestrator.costs.usage import HOUR_S, Usage
from orchestrator.errors import InputError
from orchestrator.settings import Settings
from orchestrator.specs.fields import BudgetSpec


def reached_limit(budget: BudgetSpec, usage: Usage, prices: PriceTable | None) -> str | None:
    """Name the first field of a budget that is spent; None where there is something left of each."""
    money = prices.money(usage) if prices is not None else None
    spent = {
        "hours": usage.seconds / HOUR_S,
        "cpu_hours": usage.cpu_seconds / HOUR_S,
        "gpu_hours": usage.all_gpu_seconds / HOUR_S,
        "money": 0.0 if money is None else money.amount,
    }
    return next((name for name, limit in budget.limits.items() if spent[name] >= limit), None)


def spent_text(budget: BudgetSpec, limit: str, usage: Usage) -> str:
    """Text on a budget that is spent: `its budget of 2 hours is spent: 2:00 h; 3.9 CPU h (measured)`."""
    return f"its budget of {budget.limits[limit]:g} {limit.replace('_', ' ')} is spent: {usage}"


def larger(budget: BudgetSpec, limit: str, section: str = "") -> str:
    """Override that gives twice as much, as in `budget.hours=4`.

    Args:
        section: part of a pipeline's spec that has the budget, as `stages.NAME.`.
    """
    return f"{section}budget.{limit}={2 * budget.limits[limit]:g}"


def budget_prices(budget: BudgetSpec, settings: Settings) -> PriceTable | None:
    """Prices that a budget is counted in. Raises: InputError where it is of money and there are none."""
    if budget.money is None:
        return None
    prices = load_prices(settings.home)
    if prices is None:
        raise InputError(
            f"budget.money is {budget.money:g}, and there are no prices: write {settings.home / PRICES_FILE} "
            "(`orchestrator help cost` says how), or limit hours"
        )
    return prices


def check_priced(budget: BudgetSpec, hour: Usage, prices: PriceTable, settings: Settings) -> None:
    """Check that a run costs money by its prices, or a budget of money would never end it.

    CPU hours may be left out of prices where other things have one: they cost nothing then.

    Args:
        hour: what an hour of the run takes.

    Raises: InputError where nothing of it has a price, or a type of GPU has none.
    """
    money = prices.money(hour)
    lacking = [f"{gpu} hours" for gpu in hour.gpu_seconds if money is None or f"{gpu} hours" in money.unpriced]
    if money is None and not lacking:
        lacking = ["CPU hours"]
    if lacking:
        unread = ", and no counter of energy can be read here" if prices.kwh and hour.energy_joules is None else ""
        raise InputError(
            f"budget.money is {budget.money:g}, and {' and '.join(lacking)} have no price in "
            f"{settings.home / PRICES_FILE}{unread}: write one there, 0 for what costs nothing, or limit hours"
        )
