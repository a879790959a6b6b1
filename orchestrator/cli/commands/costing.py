"""Command `cost`: what runs have taken of processors, GPUs, energy and money."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.ages import time_of
from orchestrator.cli.commands.registry_reading import find_anything, no_runs, open_registry
from orchestrator.cli.frame import GlobalOptionsCommand, current_settings
from orchestrator.cli.messages import notify
from orchestrator.cli.output import show_rows, shows_briefly
from orchestrator.cli.reading import reading_options

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.costs.prices import PriceTable
    from orchestrator.costs.usage import Usage
    from orchestrator.registry import Registry, RunRecord

_PAGE = 30
_BRIEF = ("run", "name", "kind", "state", "took", "cpu_hours", "cpu_time", "gpu_hours", "kwh", "price")
_WHOLE = (
    *("run", "name", "kind", "state", "task", "seconds", "cpu_seconds", "measured_cpu_seconds", "gpu_seconds"),
    *("energy_joules", "price", "currency", "is_known"),
)


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator cost reviews/tune@2\norchestrator cost --since 7d",
)
@click.argument("what", metavar="[RUN|MODEL|TASK]", required=False)
@click.option("--since", metavar="AGE|DATE", help="Only runs made since: 7d, 12h, or 2026-11-01 (UTC).")
@click.option("--trials", is_flag=True, help="Of a sweep each trial, by what it held.")
@reading_options
def cost(what: str | None, since: str | None, trials: bool, form: str | None, output: str | None) -> None:
    """Show what runs have cost.

    Time, CPU hours, GPU hours, energy and money: of a pipeline by stage, of a model by the runs that it is made of,
    of a task by run. CPU time is `measured` below the driver, or `derived` as CPUs × seconds that a run held, as GPU
    hours are. Energy is its host's, where its counters can be read. A price needs prices.yaml in the home folder;
    see `orchestrator help cost`.
    """
    from orchestrator.costs.prices import load_prices
    from orchestrator.costs.usage import total_usage

    if (what is None) == (since is None):
        raise click.UsageError("name a run, a model or a task, or give --since", click.get_current_context())
    with open_registry() as registry:
        runs = _runs_since(registry, str(since), None) if what is None else _runs_of(registry, what, trials=trials)
        usages = _usages(runs, registry)
        empty = "no run since then" if registry.run_table(limit=1).records else no_runs(registry)
    prices = load_prices(current_settings().home)
    rows = [_row(run, usages[run.id], prices) for run in runs]
    columns = [*_BRIEF] if shows_briefly(form, output) else [*_WHOLE]
    if shows_briefly(form, output):
        for name in ("gpu_hours", "kwh", "price"):
            if not any(row[name] for row in rows):
                columns.remove(name)
    show_rows(rows, columns, form, output, empty=empty, spare=["kind", "state", "name", "kwh"], page=_PAGE)
    if rows and shows_briefly(form, output):
        notify(f"in all: {cost_line(total_usage(usages.values()), prices)}")


def cost_line(usage: "Usage", prices: "PriceTable | None") -> str:
    """One line on what was taken, with its price where there are prices."""
    return _with_price(str(usage), usage, prices)


def _with_price(text: str, usage: "Usage", prices: "PriceTable | None") -> str:
    money = None if prices is None else prices.money(usage)
    return text if money is None else f"{text}; {money}"


def recorded_cost(registry: "Registry", run: "RunRecord", home: "Path") -> str | None:
    """One line on what a run has taken, with prices of the home folder; None where nothing is recorded of it.

    It stands beside the time that the run took. The time at work, which is without what comes before and after, is
    told where it is another one.
    """
    from orchestrator.costs.prices import load_prices
    from orchestrator.costs.run_usage import usage_of
    from orchestrator.progress import duration

    usage = usage_of(run, registry, derive=False)
    if not usage.cpu_source:
        return None
    held = _with_price(usage.held_text(), usage, load_prices(home))
    at_work = duration(usage.seconds)
    took = None if run.seconds is None else duration(run.seconds)
    return held if at_work == took else f"{at_work} at work; {held}"


def _usages(runs: Sequence["RunRecord"], registry: "Registry") -> Mapping[str, "Usage"]:
    from orchestrator.costs.run_usage import usages_of

    return usages_of(runs, registry)


def _runs_of(registry: "Registry", what: str, *, trials: bool) -> list["RunRecord"]:
    """Runs that a name stands for: those of a task, or of a model with its ancestors, or a run or its parts.

    Raises: NotFoundError.
    """
    from orchestrator.costs.run_usage import PIPELINE, own_stages
    from orchestrator.errors import InputError, NotFoundError
    from orchestrator.registry.queries.query_tree import quoted

    if registry.num_runs(f"task = {quoted(what)}", trials=False):
        runs = _runs_since(registry, None, what)
        return [trial for run in runs for trial in _trials_of(registry, run) or [run]] if trials else runs
    try:
        run = find_anything(registry, what)
    except NotFoundError as no_run:
        try:
            model = registry.models.get(what)
        except NotFoundError:
            raise no_run from None
        if model.run_id is None:
            raise InputError(f"the run that made {model.label} is not in this registry; name a run or a task") from None
        # Specs and what they need come with it, which a run's own cost can spare.
        from orchestrator.costs.ancestors import ancestors_of

        made_by = registry.run(model.run_id)
        return [*ancestors_of(made_by, registry), made_by]
    if run.kind == PIPELINE:
        return own_stages(run, registry)
    return _trials_of(registry, run) if trials else [run]


def _trials_of(registry: "Registry", run: "RunRecord") -> list["RunRecord"]:
    """Trials of a sweep in the order of their numbers; none of a run that is no sweep."""
    members = registry.run_records([row["id"] for row in registry.trials.table(run.id).records])
    return sorted(members, key=lambda trial: trial.number or 0)


def _runs_since(registry: "Registry", since: str | None, task: str | None) -> list["RunRecord"]:
    """Runs of a task, or since a time, the newest first; stages count, and pipelines have nothing beside them."""
    from orchestrator.registry.queries.query_tree import quoted

    conditions = ["kind != 'pipeline'"]
    time = time_of(since, "--since")
    if time is not None:
        conditions.append(f"created_at >= {quoted(time.isoformat())}")
    if task is not None:
        conditions.append(f"task = {quoted(task)}")
    return registry.selected(" and ".join(conditions), trials=False)


def _row(run: "RunRecord", usage: "Usage", prices: "PriceTable | None") -> dict[str, Any]:
    from orchestrator.costs.usage import HOUR_S, JOULES_PER_KWH
    from orchestrator.progress import duration

    money = None if prices is None else prices.money(usage)
    joules = usage.energy_joules
    return {
        "run": run.id,
        "name": run.name,
        "kind": run.kind,
        "state": run.state,
        "task": run.task,
        "took": "not recorded" if usage.num_unknown and not usage.seconds else duration(usage.seconds),
        "cpu_hours": usage.cpu_seconds / HOUR_S if usage.cpu_source else None,
        "cpu_time": usage.cpu_source,
        "gpu_hours": usage.all_gpu_seconds / HOUR_S or None,
        "kwh": None if joules is None else joules / JOULES_PER_KWH,
        "price": None if money is None else money.amount,
        "currency": None if money is None else money.currency,
        "seconds": usage.seconds,
        "cpu_seconds": usage.cpu_seconds,
        "measured_cpu_seconds": usage.measured_cpu_seconds,
        "gpu_seconds": dict(usage.gpu_seconds),
        "energy_joules": joules,
        "is_known": not usage.num_unknown,
    }
