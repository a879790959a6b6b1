"""`runs diff`: two runs side by side, with only that in which they differ."""

from typing import TYPE_CHECKING, Any

import click

from orchestrator.cells import printable
from orchestrator.cli.commands.registry_reading import find_run, open_registry
from orchestrator.cli.frame import GlobalOptionsCommand
from orchestrator.cli.output import chosen_form, show_record, show_rows, show_text
from orchestrator.cli.reading import output_options
from orchestrator.reports.difference_texts import (
    TITLES,
    change_text,
    field_text,
    refusal_sentences,
    same_sentences,
    shown_value,
    value_texts,
)

if TYPE_CHECKING:
    from orchestrator.registry.records import RunRecord
    from orchestrator.registry.run_differences import Difference, RunComparison

WIDTH = 80


@click.command(
    "diff",
    cls=GlobalOptionsCommand,
    example="orchestrator runs diff 7f3a 9c21\norchestrator runs diff 7f3a 9c21 -f json",
)
@click.argument("first", metavar="RUN")
@click.argument("second", metavar="RUN")
@output_options
def diff(first: str, second: str, form: str | None, output: str | None) -> None:
    """Compare two runs: what differs, and nothing else.

    Spec, data, code, environment and scores of runs, trials or stages of pipelines. Code and environment are those of
    the newest attempt; a trial's are its sweep's.
    """
    from orchestrator.registry.run_differences import compare_runs

    with open_registry() as registry:
        comparison = compare_runs(registry, find_run(registry, first).id, find_run(registry, second).id)
    form = chosen_form(form, output)
    if form == "json":
        show_record(_as_record(comparison), form, output)
    elif form == "csv":
        rows = [
            {"section": each.section, "field": each.field, "first": each.first, "second": each.second}
            for each in comparison.differences
        ]
        show_rows(rows, ["section", "field", "first", "second"], form, output)
    else:
        show_text("".join(f"{line}\n" for line in comparison_lines(comparison)), output)


def _as_record(comparison: "RunComparison") -> dict[str, Any]:
    return {
        "first": _run_record(comparison.first),
        "second": _run_record(comparison.second),
        "differences": {
            section: {each.field: {"first": each.first, "second": each.second} for each in comparison.of(section)}
            for section in TITLES
            if comparison.of(section)
        },
        "same": comparison.same,
        "same_files": comparison.same_files,
        "not_recorded": comparison.unknown,
        "refused": comparison.refusals,
    }


def _run_record(run: "RunRecord") -> dict[str, Any]:
    return {"id": run.id, "name": run.name, "kind": run.kind, "state": run.state, "created_at": run.created_at}


def comparison_lines(comparison: "RunComparison") -> list[str]:
    """Lines of a comparison for a person, of 80 characters at most where words allow it."""
    first, second = comparison.first, comparison.second
    lines = [f"first   {_told(first)}", f"second  {_told(second)}"]
    for section, title in TITLES.items():
        found = comparison.of(section)
        if found:
            lines += ["", title, *(line for each in found for line in _difference_lines(each))]
        if section == "code" and (between := _commits_between(found)):
            lines.append(f"  see: {between}")
    return [*lines, "", *refusal_sentences(comparison.refusals), *same_sentences(comparison)]


def _told(run: "RunRecord") -> str:
    return printable(f"{run.id}  {run.kind} {run.name}, {run.state}, {run.created_at:%Y-%m-%d %H:%M}", keep_lines=False)


def _difference_lines(each: "Difference") -> list[str]:
    """Lines of one field: both values in one line where they fit, else one below the other."""
    from orchestrator.progress.log_lines import wrapped

    name, change = field_text(each.field), change_text(each)
    one, other = value_texts(each)
    line = f"  {name}: {one} → {other}" + (f" ({change})" if change else "")
    if len(line) <= WIDTH:
        return [line]
    rows = [f"  {name}:"]
    for label, text in (("first", one), ("second", other)):
        begun, *rest = wrapped(text, WIDTH - 12) or [""]
        rows += [f"    {label:<8}{begun}", *(f"{'':12}{row}" for row in rest)]
    return rows


def _commits_between(found: "list[Difference]") -> str | None:
    """The command that shows the code between two commits."""
    commits = [(each.first, each.second) for each in found if each.field == "commit"]
    if not commits or None in commits[0]:
        return None
    return "git diff " + " ".join(shown_value(commit, "code") for commit in commits[0])
