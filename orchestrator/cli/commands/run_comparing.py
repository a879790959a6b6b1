"""`runs diff`: two runs side by side, with only that in which they differ."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cells import MISSING, cell, printable, setting_cell
from orchestrator.cli.commands.registry_reading import find_run, open_registry
from orchestrator.cli.frame import GlobalOptionsCommand
from orchestrator.cli.output import chosen_form, show_record, show_rows, show_text
from orchestrator.cli.reading import output_options

if TYPE_CHECKING:
    from orchestrator.registry.records import RunRecord
    from orchestrator.reports.run_differences import Difference, RunComparison

WIDTH = 80
_DIGEST_CHARS = 12
TITLES = {
    "run": "Runs",
    "spec": "Spec",
    "data": "Data",
    "code": "Code",
    "environment": "Environment",
    "scores": "Scores",
    "speed": "Speed",
    "stages": "Stages, each of which can be compared",
}
"""Headings of the sections of a comparison, in the order of reading."""


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
    from orchestrator.reports.run_differences import compare_runs

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


def field_text(field: str) -> str:
    """Name of a field that differs; a digest among the data is known by its values."""
    return printable(field.removesuffix(".digest"), keep_lines=False)


def value_texts(each: "Difference") -> tuple[str, str]:
    """Both values of a field, in full where they differ only in what a short text leaves out."""
    one, other = (shown_value(value, each.section) for value in (each.first, each.second))
    if one == other:  # they differ in digits that a table rounds away, or in their types
        one, other = (printable(json.dumps(value, default=str)) for value in (each.first, each.second))
    return one, other


def shown_value(value: Any, section: str) -> str:
    """Text of a value; of a digest its beginning."""
    if value is None or value in ([], {}):
        return "not set"
    text = setting_cell(value) if section == "spec" else cell(value)
    is_digest = isinstance(value, str) and len(value) in (40, 64) and all(c in "0123456789abcdef" for c in value)
    return value[:_DIGEST_CHARS] if is_digest else json.dumps(value) if text == MISSING else text


def change_text(each: "Difference") -> str:
    """Signed change of a score or a speed; empty for anything else."""
    numbers = [value for value in (each.first, each.second) if isinstance(value, int | float)]
    if each.section not in ("scores", "speed") or len(numbers) < 2:
        return ""
    return f"{numbers[1] - numbers[0]:+.4g}"


def refusal_sentences(refusals: Mapping[str, str]) -> list[str]:
    """Sentences on refused test scores, given by the ids of their runs."""
    return [f"The test score of {run_id} is refused: {why}." for run_id, why in refusals.items()]


def same_sentences(comparison: "RunComparison") -> list[str]:
    """Sentences on what is the same in both runs, and on what was not recorded of one."""
    sentences = []
    if comparison.same_files:
        named = " and ".join(comparison.same_files)
        sentences.append(f"Other examples of the same file, or the same file read another way: the {named} data.")
    if comparison.same:
        sentences.append(f"The same in both: {', '.join(_section_words(one, comparison) for one in comparison.same)}.")
    for run_id in dict.fromkeys(run for runs in comparison.unknown.values() for run in runs):
        sections = [_section_words(one, comparison) for one, runs in comparison.unknown.items() if run_id in runs]
        sentences.append(f"Not recorded of {run_id}: {', '.join(sections)}.")
    return sentences


def _section_words(section: str, comparison: "RunComparison") -> str:
    if section == "scores" and "sweep" in (comparison.first.kind, comparison.second.kind):
        return "scores of the best trial"
    return "kind, task and state" if section == "run" else section
