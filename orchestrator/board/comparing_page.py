"""Several runs side by side: their scores, what differs, and their curves over one another.

Of two runs everything that `runs diff` tells; of more the settings that are not the same in all of them.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.cells import short_value
from orchestrator.measurements import is_of_the_machine
from orchestrator.progress import duration
from orchestrator.registry.groups.varying_paths import varying_paths
from orchestrator.registry.run_differences import compare_runs
from orchestrator.reports.blocks import Block, Page, Section, Table, Words
from orchestrator.reports.charts import learning_curves
from orchestrator.reports.difference_texts import (
    TITLES,
    change_text,
    field_text,
    refusal_sentences,
    same_sentences,
    value_texts,
)

if TYPE_CHECKING:
    from orchestrator.registry.records import RunRecord
    from orchestrator.registry.registry import Registry

MAX_RUNS = 20
"""Runs side by side at most: more lines cannot be told apart."""
_METRICS = "metrics."
"""Beginning of the columns of measurements, which may have the names of other columns."""
_OF_EXECUTION = ("execution.", "name", "tags")


def comparing_page(registry: "Registry", runs: Sequence["RunRecord"]) -> Page:
    """Make the page of some runs; names that are not unique get their ids."""
    names = [run.name for run in runs]
    labels = [run.name if names.count(run.name) == 1 else f"{run.name} ({run.id[:6]})" for run in runs]
    refusals = registry.test_refusals([run.id for run in runs])
    return Page(
        f"{len(runs)} runs side by side",
        ", ".join(run.id for run in runs),
        [
            Section("Scores", [_scores(registry, runs, labels), *map(Words, refusal_sentences(refusals))]),
            *(_pair_sections(registry, runs, labels) if len(runs) == 2 else _setting_sections(registry, runs, labels)),
            Section("Curves", _curves(registry, runs, labels)),
        ],
    )


def _scores(registry: "Registry", runs: Sequence["RunRecord"], labels: Sequence[str]) -> Table:
    rows = []
    for run, label in zip(runs, labels, strict=True):
        values = {f"{_METRICS}{name}": value for name, value in registry.metrics.latest(run.id).items()}
        took = None if run.seconds is None else duration(run.seconds)
        rows.append({"name": label, "run": run.id, "state": str(run.state), "task": run.task, "took": took, **values})
    measured = sorted({key for row in rows for key in row if key.startswith(_METRICS)}, key=_machine_last)
    return Table(("name", "state", "task", *measured, "took", "run"), rows)


def _machine_last(name: str) -> tuple[bool, str]:
    return is_of_the_machine(name.removeprefix(_METRICS)), name


def _pair_sections(registry: "Registry", runs: Sequence["RunRecord"], labels: Sequence[str]) -> list[Section]:
    """Each section in which two runs differ, a row for each field; and what is the same in both."""
    comparison = compare_runs(registry, *(run.id for run in runs))
    columns = ("field", *_column_names(labels))
    sections = []
    for section, title in TITLES.items():
        found = comparison.of(section)
        has_changes = any(map(change_text, found))
        rows = [
            dict(zip(columns, (field_text(each.field), *value_texts(each)), strict=True))
            | {"change": change_text(each)}
            for each in found
        ]
        heading = "Kind and state" if section == "run" else title
        sections.append(Section(heading, [Table((*columns, "change") if has_changes else columns, rows)]))
    return [*sections, Section("The same", [Words(sentence) for sentence in same_sentences(comparison)])]


def _column_names(labels: Sequence[str]) -> tuple[str, ...]:
    """Headings of the columns of two runs, told apart even where a run is compared with itself."""
    return tuple(f"{place}: {label}" for place, label in zip(("first", "second"), labels, strict=True))


def _setting_sections(registry: "Registry", runs: Sequence["RunRecord"], labels: Sequence[str]) -> list[Section]:
    """Settings that are not the same in all runs, a row each."""
    settings = [registry.parameters(run.id) for run in runs]
    paths = sorted(path for path in varying_paths(settings) if not path.startswith(_OF_EXECUTION))

    def text(values: dict[str, Any], path: str) -> str | None:
        return short_value(values[path]) if path in values else None

    headings = {f"run {number}": label for number, label in enumerate(labels)}
    rows = [
        {"setting": path, **{key: text(values, path) for key, values in zip(headings, settings, strict=True)}}
        for path in paths
    ]
    return [Section("What differs", [Table(("setting", *headings), rows, headings)])]


def _curves(registry: "Registry", runs: Sequence["RunRecord"], labels: Sequence[str]) -> list[Block]:
    """Each measurement that several of the runs have over their steps, a line for each run and split."""
    lines: dict[str, dict[str, list[tuple[int, float | None]]]] = defaultdict(lambda: defaultdict(list))
    for run, label in zip(runs, labels, strict=True):
        for row in registry.metrics.history_table(run.id).records:
            lines[row["name"]][f"{label}, {row['split']}"].append((row["step"], row["value"]))
    return [
        learning_curves(name, lines[name])
        for name in sorted(lines, key=_machine_last)
        if any(len(points) > 1 for points in lines[name].values())
    ]
