"""Several runs side by side: their scores, the settings that differ, and their curves over one another."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.cells import short_value
from orchestrator.measurements import is_of_the_machine
from orchestrator.progress import duration
from orchestrator.registry.groups.varying_paths import varying_paths
from orchestrator.reports.blocks import Block, Page, Section, Table, Words, run_cell
from orchestrator.reports.run_page import curve_charts

if TYPE_CHECKING:
    from orchestrator.registry.records import RunRecord
    from orchestrator.registry.registry import Registry

MAX_RUNS = 20
"""Runs side by side at most: more lines cannot be told apart."""
_METRICS = "metrics."
_OF_EXECUTION = ("execution.", "name", "tags")


def comparing_page(registry: "Registry", runs: Sequence["RunRecord"]) -> Page:
    """Make the page of some runs; names that are not unique get their ids."""
    names = [run.name for run in runs]
    labels = [run.name if names.count(run.name) == 1 else f"{run.name} ({run.id[:6]})" for run in runs]
    refusals = registry.test_refusals([run.id for run in runs])
    refused = [Words(f"The test score of {run_id} is refused: {why}.") for run_id, why in refusals.items()]
    differing: list[Block] = [_settings(registry, runs, labels)]
    if len(runs) == 2:
        first, second = (run.id for run in runs)
        differing.append(Words(f"Data, code and environment: `orchestrator runs diff {first} {second}`."))
    return Page(
        f"{len(runs)} runs side by side",
        ", ".join(run.id for run in runs),
        [
            Section("Scores", [_scores(registry, runs, labels), *refused]),
            Section("What differs", differing),
            Section("Curves", curve_charts(registry, dict(zip(labels, runs, strict=True)))),
        ],
    )


def _scores(registry: "Registry", runs: Sequence["RunRecord"], labels: Sequence[str]) -> Table:
    rows: list[dict[str, Any]] = []
    for run, label in zip(runs, labels, strict=True):
        values = {f"{_METRICS}{name}": value for name, value in registry.metrics.latest(run.id).items()}
        took = None if run.seconds is None else duration(run.seconds)
        own = {"name": run_cell(run.id, label), "state": str(run.state), "task": run.task, "took": took}
        rows.append({**own, **values})
    measured = {key for row in rows for key in row if key.startswith(_METRICS)}
    ordered = sorted(measured, key=lambda key: (is_of_the_machine(key.removeprefix(_METRICS)), key))
    return Table(("name", "state", "task", *ordered, "took"), rows)


def _settings(registry: "Registry", runs: Sequence["RunRecord"], labels: Sequence[str]) -> Table:
    """Settings that are not the same in all runs, a row each."""
    settings = [registry.parameters(run.id) for run in runs]
    headings = {f"run {number}": label for number, label in enumerate(labels)}
    rows = []
    for path in sorted(varying_paths(settings)):
        if not path.startswith(_OF_EXECUTION):
            texts = [short_value(values[path]) if path in values else None for values in settings]
            rows.append({"setting": path, **dict(zip(headings, texts, strict=True))})
    return Table(("setting", *headings), rows, headings)
