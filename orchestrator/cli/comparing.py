"""`compare`: whether the scores of runs, groups or models differ, and what else differs."""

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from itertools import combinations
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cells import MISSING, cell, printable, setting_cell
from orchestrator.cli.frame import GlobalOptionsCommand
from orchestrator.cli.messages import notify
from orchestrator.cli.output import chosen_form, show_paragraph, show_rows, show_table, show_text
from orchestrator.cli.ranking import group_record
from orchestrator.cli.reading import output_options
from orchestrator.cli.registry_reading import find_run, open_registry
from orchestrator.errors import InputError, NotFoundError, SeveralRunsError

if TYPE_CHECKING:
    from orchestrator.registry import Registry
    from orchestrator.registry.group_comparison import Comparison
    from orchestrator.registry.records import RunRecord
    from orchestrator.reports.run_differences import Difference, RunComparison
    from orchestrator.significance.ranking import SeedNoise

_WIDTH = 80
_DIGEST_CHARS = 12
_DECIMALS = 12
"""Decimals of a difference of scores; what comes after them is noise of the processor's arithmetic."""
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


@dataclass(frozen=True)
class _Pair:
    """Two things side by side."""

    names: tuple[str, str]
    scores: "Comparison | None"
    """Comparison of their scores; None where these cannot be compared."""
    why_not: str
    """Reason why scores are not compared; empty where they are."""
    runs: "RunComparison | None"
    """Comparison of two runs; None where one is a group."""


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator compare 7f3a 9c21\norchestrator compare 3f2a77c0.1a2b3c4d 77c0b1d2.1a2b3c4d -f json",
)
@click.argument("names", metavar="A B [C …]", nargs=-1, required=True)
@output_options
def compare(names: tuple[str, ...], form: str | None, output: str | None) -> None:
    """Compare runs, groups or models: scores, and what differs.

    First the scores: is the difference significant? With six or more common seeds (seven for several comparisons) a
    paired permutation test, otherwise Welch's test; for predictions on the same examples McNemar's test and a
    bootstrap. Several comparisons are Holm-corrected. Then everything else that differs: spec, data, code, environment.
    A, B: a run or trial by id or name, a group as `leaderboard` shows it, or a model.
    """
    from orchestrator.reports.run_differences import compare_runs

    if len(names) < 2:
        raise InputError("name at least two runs, groups or models to compare")
    with open_registry() as registry:
        found = [_find(registry, name) for name in names]
        references = [name if run is None else run.id for name, run in zip(names, found, strict=True)]
        if len(set(references)) < len(references):
            raise InputError("the same is named twice; name different ones")
        scores, why_not = _compare_scores(registry, references)
        noise = registry.seed_noise(scores[0].first) if scores else None
        pairs = []
        for number, (first, second) in enumerate(combinations(range(len(names)), 2)):
            one, other = found[first], found[second]
            # A group beside a run is told by its best run; two groups by what their runs have in common.
            runs = None
            if one is not None or other is not None:
                one, other = (run or _best_of(registry, names[at]) for run, at in ((one, first), (other, second)))
                runs = compare_runs(registry, one.id, other.id)
            named = names[first], names[second]
            pairs.append(_Pair(named, scores[number] if scores else None, why_not, runs))
    form = chosen_form(form, output)
    if form == "json":
        show_text(json.dumps([_pair_record(pair) for pair in pairs], indent=2, ensure_ascii=False, default=str), output)
    elif form == "csv":
        rows = [row for pair in pairs for row in _difference_rows(pair)]
        show_rows(rows, ["a", "b", "section", "field", "first", "second"], form, output)
    else:
        with nullcontext() if output is None else redirect_stdout(StringIO()) as shown:
            for number, pair in enumerate(pairs):
                show_text("\n" if number else "")
                _show_pair(pair, noise)
        if output is not None and shown is not None:
            show_text(shown.getvalue(), output)
    if why_not:
        notify(f"scores not compared: {why_not}")


def _find(registry: "Registry", name: str) -> "RunRecord | None":
    """The run that a name means, of a model the one that registered it; None of a group. Raises: NotFoundError."""
    try:
        return find_run(registry, name)
    except SeveralRunsError:
        raise
    except NotFoundError as no_run:
        for look_up in (registry.group, registry.models.get):
            try:
                found = look_up(name)
            except NotFoundError:
                continue
            run_id = getattr(found, "run_id", None)
            return None if run_id is None else registry.run(run_id)
        raise no_run


def _best_of(registry: "Registry", name: str) -> "RunRecord":
    """The best run of a group, or its newest one."""
    group = registry.group(name)
    return registry.run((group.best or group.runs[-1]).id)


def _compare_scores(registry: "Registry", references: Sequence[str]) -> "tuple[list[Comparison], str]":
    """Comparisons of each two; none, and the reason, where scores cannot be compared."""
    try:
        return registry.compare(*references), ""
    except InputError as error:
        return [], str(error)


def _show_pair(pair: _Pair, noise: "SeedNoise | None") -> None:
    """Show a comparison for a person: the scores, then everything else that differs."""
    if pair.scores is not None:
        _show_scores(pair.scores, noise, with_settings=pair.runs is None)
    if pair.runs is not None:
        show_text(("\n" if pair.scores is not None else "") + "\n".join(comparison_lines(pair.runs)))


def _show_scores(comparison: "Comparison", noise: "SeedNoise | None", *, with_settings: bool) -> None:
    from orchestrator.registry.group_records import group_label

    first, second = comparison.first, comparison.second
    show_paragraph(f"{first.label} beside {second.label}: {comparison.words}")
    sides = [group_record(group, noise) for group in (first, second)]
    for side in sides:
        side["group"] = group_label(side["group"])
    show_table(sides, ["group", "mean", "sd", "low", "high", "n", "best"])
    show_text("\n")
    show_table(_test_rows(comparison), ["test", "of", "difference", "low", "high", "p"])
    if comparison.differs_in and with_settings:
        show_text("\n")
        rows = [{"differs in": path, "first": one, "second": other} for path, (one, other) in _told(comparison)]
        show_table(rows, ["differs in", "first", "second"])
    for group, side in zip((first, second), sides, strict=True):
        if side["notes"]:
            notify(f"{group.label}: {side['notes']}")


def _told(comparison: "Comparison") -> list[tuple[str, tuple[str, str]]]:
    """Paths and both values as texts: a column of several settings has no number of decimals that suits them all."""
    return [
        (path.removeprefix("recipe."), (setting_cell(one), setting_cell(other)))
        for path, (one, other) in comparison.differs_in.items()
    ]


def _test_rows(comparison: "Comparison") -> list[dict[str, Any]]:
    """Every test that could be made, a row each, with what it is of; the first one speaks."""
    examples, metric, of_seeds = comparison.examples, comparison.first.metric, comparison.of_seeds
    rows = [_test_row("Welch, all seeds", metric, comparison.welch, comparison.welch.p_value)]
    if comparison.paired is not None:
        name = f"paired permutation, {len(comparison.differences)} common seeds"
        paired = _test_row(name, metric, comparison.paired, comparison.paired.p_value)
        rows.insert(0 if of_seeds is comparison.paired else 1, paired)
    if (bootstrap := comparison.bootstrap) is not None:
        rows.append(_test_row("bootstrap over seeds", metric, replace(of_seeds, interval=bootstrap), None))
    if examples is not None and examples.score is not None:
        name = f"paired bootstrap, {examples.num_examples:,} examples"
        rows.append(_test_row(name, metric, examples.score, examples.score.p_value))
    for answers in examples.answers if examples else ():
        result, about = answers.result, examples.answers_about if examples else ""
        name = f"McNemar, {answers.first_run[:6]} {result.only_first} : {result.only_second} {answers.second_run[:6]}"
        rows.append(_test_row(name, about, result, answers.corrected_p_value))
    return rows


def _test_row(test: str, about: str, result: Any, p_value: float | None) -> dict[str, Any]:
    interval = result.interval
    low, high = (None, None) if interval is None else (_rounded(interval.low), _rounded(interval.high))
    difference = _rounded(result.difference)
    return {"test": test, "of": about, "difference": difference, "low": low, "high": high, "p": p_value}


def _rounded(difference: float) -> float:
    """The difference without the noise of floating-point sums, which would make 0 of two equal means a tiny number."""
    return round(difference, _DECIMALS) + 0.0


def _comparison_row(comparison: "Comparison") -> dict[str, Any]:
    result = comparison.result
    return {
        "answer": comparison.words,
        "first": comparison.first.key,
        "second": comparison.second.key,
        "distinguishable": comparison.is_distinguishable,
        "test": comparison.test,
        "difference": result.difference,
        "low": result.interval.low if result.interval else None,
        "high": result.interval.high if result.interval else None,
        "p_value": comparison.p_value,
        "corrected_p_value": comparison.corrected_p_value,
        "num_comparisons": comparison.num_comparisons,
        "num_first": len(comparison.first.seeds),
        "num_second": len(comparison.second.seeds),
        "num_common": len(comparison.differences),
        "num_seeds_needed": comparison.num_seeds_needed,
        "tests": _test_rows(comparison),
        "differs_in": {path: list(values) for path, values in comparison.differs_in.items()},
    }


def _pair_record(pair: _Pair) -> dict[str, Any]:
    """A comparison as plain values."""
    record: dict[str, Any] = {
        "a": pair.names[0],
        "b": pair.names[1],
        "scores": None if pair.scores is None else _comparison_row(pair.scores),
        "scores_not_compared": pair.why_not or None,
    }
    if pair.runs is None:
        return record
    return record | {
        "first": _run_record(pair.runs.first),
        "second": _run_record(pair.runs.second),
        "differences": {
            section: {each.field: {"first": each.first, "second": each.second} for each in pair.runs.of(section)}
            for section in TITLES
            if pair.runs.of(section)
        },
        "same": pair.runs.same,
        "same_files": pair.runs.same_files,
        "not_recorded": pair.runs.unknown,
        "refused": pair.runs.refusals,
    }


def _difference_rows(pair: _Pair) -> list[dict[str, Any]]:
    """A row for each field that differs."""
    names = {"a": pair.names[0], "b": pair.names[1]}
    scores = {} if pair.scores is None else _comparison_row(pair.scores)
    told = {field: value for field, value in scores.items() if field not in ("first", "second", "tests", "differs_in")}
    rows = [names | {"section": "comparison", "field": field, "first": value} for field, value in told.items()]
    if pair.runs is not None:
        return rows + [names | vars(each) for each in pair.runs.differences]
    settings = pair.scores.differs_in if pair.scores else {}
    return rows + [
        names | {"section": "spec", "field": path, "first": a, "second": b} for path, (a, b) in settings.items()
    ]


def _run_record(run: "RunRecord") -> dict[str, Any]:
    return {"id": run.id, "name": run.name, "kind": run.kind, "state": run.state, "created_at": run.created_at}


def comparison_lines(comparison: "RunComparison") -> list[str]:
    """Lines of a comparison for a person, of 80 characters at most where words allow it."""
    first, second = comparison.first, comparison.second
    lines = [f"first   {_run_text(first)}", f"second  {_run_text(second)}"]
    for section, title in TITLES.items():
        found = comparison.of(section)
        if found:
            lines += ["", title, *(line for each in found for line in _difference_lines(each))]
        if section == "code" and (between := _commits_between(found)):
            lines.append(f"  see: {between}")
    return [*lines, "", *refusal_sentences(comparison.refusals), *same_sentences(comparison)]


def _run_text(run: "RunRecord") -> str:
    return printable(f"{run.id}  {run.kind} {run.name}, {run.state}, {run.created_at:%Y-%m-%d %H:%M}", keep_lines=False)


def _difference_lines(each: "Difference") -> list[str]:
    """Lines of one field: both values in one line where they fit, else one below the other."""
    from orchestrator.progress.log_lines import wrapped

    name, change = field_text(each.field), change_text(each)
    one, other = value_texts(each)
    line = f"  {name}: {one} → {other}" + (f" ({change})" if change else "")
    if len(line) <= _WIDTH:
        return [line]
    rows = [f"  {name}:"]
    for label, text in (("first", one), ("second", other)):
        begun, *rest = wrapped(text, _WIDTH - 12) or [""]
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
