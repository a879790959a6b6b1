"""`compare`: whether the scores of runs, groups or models differ, and what else differs."""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from dataclasses import replace
from io import StringIO
from itertools import combinations, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from orchestrator.cli.frame import command
from orchestrator.cli.messages import notify
from orchestrator.cli.output import show_rows, show_table, show_text
from orchestrator.cli.ranking import group_record
from orchestrator.cli.reading import current_reading, output_options
from orchestrator.cli.registry_reading import find_run, open_registry
from orchestrator.errors import InputError, NotFoundError, SeveralRunsError
from orchestrator.progress import terminal_width
from orchestrator.progress.log_lines import folded
from orchestrator.significance.summary import LEVEL

if TYPE_CHECKING:
    from orchestrator.registry import Registry
    from orchestrator.registry.group_comparison import Comparison
    from orchestrator.registry.group_records import GroupRecord
    from orchestrator.registry.records import RunRecord
    from orchestrator.reports.run_differences import Difference, RunComparison
    from orchestrator.significance.comparison import DifferenceResult, McNemarResult
    from orchestrator.significance.ranking import SeedNoise

_DECIMALS = 12
"""Decimals of a difference of scores; what comes after them is noise of the processor's arithmetic."""
_POOLED = "seed noise of the ranking"


class _Pair(NamedTuple):
    names: tuple[str, str]
    scores: "Comparison | None"
    """None where they cannot be compared."""
    runs: "RunComparison | None"
    """None of two groups."""
    differences: "Sequence[Difference]"


@command(example="compare 7f3a 9c21\ncompare 3f2a77c0.1a2b3c4d 77c0b1d2.1a2b3c4d -f json")
@click.argument("names", metavar="A B [C …]", nargs=-1, required=True)
@output_options
def compare(names: tuple[str, ...]) -> None:
    """Compare runs, groups or models: scores, and what differs.

    First the scores: is the difference significant? With six or more common seeds (seven for several comparisons) a
    paired permutation test, otherwise Welch's test; for predictions on the same examples McNemar's test and a
    bootstrap. Several comparisons are Holm-corrected. Then everything else that differs: spec, data, code, environment.
    A, B: a run or trial by id or name, a group as `leaderboard` shows it, or a model.
    """
    if len(names) < 2:
        raise InputError("name at least two runs, groups or models to compare")
    scores, why_not = list["Comparison"](), ""
    with open_registry() as registry:
        found = [_find(registry, name) for name in names]
        if len({getattr(one, "id", name) for name, one in zip(names, found, strict=True)}) < len(names):
            raise InputError("the same is named twice; name different ones")
        scored = [_scored(registry, one) for one in found]
        if any(one is stage for one, stage in zip(found, scored, strict=True)):
            found = scored  # whose settings can be held against those of what is no pipeline
        references = [getattr(one, "id", name) for name, one in zip(names, scored, strict=True)]
        try:
            scores = registry.compare(*references)
        except InputError as error:
            why_not = str(error)
        noise = registry.seed_noise(scores[0].first) if scores else None  # of the ranking that all of them are in
        both = zip(combinations(names, 2), combinations(found, 2), scores or repeat(None), strict=False)
        pairs = [_pair(registry, named, *sides, compared) for named, sides, compared in both]
    form, output = current_reading().form, current_reading().output
    if form == "json":
        records = [_record(pair, noise, why_not) for pair in pairs]
        show_text(json.dumps(records, indent=2, ensure_ascii=False, default=str), output)
    elif form == "csv":
        rows = [row for pair in pairs for row in _rows(_record(pair, noise, why_not))]
        show_rows(rows, ["a", "b", "section", "field", "first", "second"])
    else:
        from orchestrator.reports.run_differences import difference_lines

        with nullcontext(StringIO()) if output is None else redirect_stdout(StringIO()) as shown:
            for number, pair in enumerate(pairs):
                show_text("\n" if number else "")
                if pair.scores is not None:
                    _show_scores(pair.scores, noise)
                lines = difference_lines(pair.differences, pair.runs)
                show_text(("\n" if pair.scores and lines else "") + "\n".join(lines))
        if output is not None:
            show_text(shown.getvalue(), output)
    if why_not:
        notify(f"scores not compared: {why_not}")


def _find(registry: "Registry", name: str) -> "RunRecord | GroupRecord":
    """The run or the group that a name means, of a model the run that registered it. Raises: NotFoundError."""
    try:
        return find_run(registry, name, or_model=True)
    except NotFoundError as no_run:
        if not isinstance(no_run, SeveralRunsError):
            with suppress(NotFoundError):
                return registry.group(name)
        raise


def _scored(registry: "Registry", one: "RunRecord | GroupRecord") -> "RunRecord | GroupRecord":
    """The last stage of a pipeline on a task, which has the scores; anything else itself."""
    from orchestrator.registry.records import RunRecord

    if isinstance(one, RunRecord) and one.kind == "pipeline":
        for stage in registry.stages(one.id):
            if stage.task is not None:
                notify(f"of pipeline {one.id} the scores of its last stage: {stage.id} ({stage.name})")
                return stage
    return one


def _pair(
    registry: "Registry",
    names: tuple[str, str],
    one: "RunRecord | GroupRecord",
    other: "RunRecord | GroupRecord",
    scores: "Comparison | None",
) -> _Pair:
    """Two runs with all that differs, or two groups with the settings that do; a group beside a run is its best run."""
    from orchestrator.registry.group_records import GroupRecord
    from orchestrator.reports.run_differences import Difference, compare_runs

    if isinstance(one, GroupRecord) and isinstance(other, GroupRecord):
        settings = scores.differs_in if scores else {}
        return _Pair(names, scores, None, [Difference("spec", path, *both) for path, both in settings.items()])
    ids = [(side.best or side.runs[-1]).id if isinstance(side, GroupRecord) else side.id for side in (one, other)]
    runs = compare_runs(registry, *ids)
    return _Pair(names, scores, runs, runs.differences)


def _show_scores(comparison: "Comparison", noise: "SeedNoise | None") -> None:
    from orchestrator.registry.parameters import group_label

    both = (comparison.first, comparison.second)
    told = f"{both[0].label} beside {both[1].label}: {comparison.words}"
    show_text(folded(told, terminal_width(sys.stdout)) + "\n\n")
    sides = [group_record(group, noise) | {"group": group_label(group.key)} for group in both]
    show_table(sides, ["group", "mean", "sd", "low", "high", "n", "best"])
    show_text("\n")
    tests = _test_rows(comparison, noise)
    show_table(tests, ["test", "of", "difference", "low", "high", "p"])
    for side in sides:
        if side["notes"]:
            notify(f"{side['group']}: {side['notes']}")
    pooled = next((row["p"] for row in tests if row["test"] == _POOLED), None)
    if pooled is not None and (pooled * comparison.num_comparisons < 1 - LEVEL) != comparison.is_distinguishable:
        notify(
            "the noise of seeds pooled over the whole ranking, by which a sweep ends and `leaderboard` ranks, says "
            "otherwise: it assumes that a seed matters about as much in every group, the answer above does not"
        )


def _test_rows(comparison: "Comparison", noise: "SeedNoise | None") -> list[dict[str, Any]]:
    """Every test that could be made, a row each, with what it is of; the first one speaks."""
    examples, metric, of_seeds = comparison.examples, comparison.first.metric, comparison.of_seeds
    rows = [_test_row("Welch, all seeds", metric, comparison.welch)]
    if comparison.paired is not None:
        paired = _test_row(f"paired permutation, {len(comparison.differences)} common seeds", metric, comparison.paired)
        rows.insert(0 if of_seeds is comparison.paired else 1, paired)
    if (bootstrap := comparison.bootstrap) is not None:
        rows.append(_test_row("bootstrap over seeds", metric, replace(of_seeds, interval=bootstrap)) | {"p": None})
    if noise is not None and comparison.first.summary and comparison.second.summary:
        pooled = noise.compare(comparison.first.summary, comparison.second.summary)
        rows.append(_test_row(_POOLED, metric, pooled))
    if examples is not None and examples.score is not None:
        rows.append(_test_row(f"paired bootstrap, {examples.num_examples:,} examples", metric, examples.score))
    for answers in examples.answers if examples else ():
        result, about = answers.result, examples.answers_about if examples else ""
        name = f"McNemar, {answers.first_run[:6]} {result.only_first} : {result.only_second} {answers.second_run[:6]}"
        rows.append(_test_row(name, about, result) | {"p": answers.corrected_p_value})
    return rows


def _test_row(test: str, about: str, result: "DifferenceResult | McNemarResult") -> dict[str, Any]:
    """The result of a test, without the noise of floating-point sums: the difference of two equal means is 0."""
    numbers = (result.difference, *(result.interval or (None, None)))
    difference, low, high = (None if number is None else round(number, _DECIMALS) + 0.0 for number in numbers)
    return {"test": test, "of": about, "difference": difference, "low": low, "high": high, "p": result.p_value}


def _comparison_row(comparison: "Comparison", noise: "SeedNoise | None") -> dict[str, Any]:
    result = comparison.result
    low, high = result.interval or (None, None)
    return {
        "answer": comparison.words,
        "first": comparison.first.key,
        "second": comparison.second.key,
        "distinguishable": comparison.is_distinguishable,
        "test": comparison.test,
        "difference": result.difference,
        "low": low,
        "high": high,
        "p_value": comparison.p_value,
        "corrected_p_value": comparison.corrected_p_value,
        "num_comparisons": comparison.num_comparisons,
        "num_first": len(comparison.first.seeds),
        "num_second": len(comparison.second.seeds),
        "num_common": len(comparison.differences),
        "num_seeds_needed": comparison.num_seeds_needed,
        "tests": _test_rows(comparison, noise),
        "differs_in": {path: list(values) for path, values in comparison.differs_in.items()},
    }


def _record(pair: _Pair, noise: "SeedNoise | None", why_not: str) -> dict[str, Any]:
    differences: dict[str, dict[str, Any]] = {}
    for each in pair.differences:
        differences.setdefault(each.section, {})[each.field] = {"first": each.first, "second": each.second}
    record: dict[str, Any] = {
        "a": pair.names[0],
        "b": pair.names[1],
        "scores": None if pair.scores is None else _comparison_row(pair.scores, noise),
        "scores_not_compared": why_not or None,
    }
    if pair.runs is not None:
        for name, run in (("first", pair.runs.first), ("second", pair.runs.second)):
            record[name] = {key: getattr(run, key) for key in ("id", "name", "kind", "state", "created_at")}
    record["differences"] = differences
    if (runs := pair.runs) is not None:
        record |= {"same": runs.same, "same_files": runs.same_files}
        record |= {"not_recorded": runs.unknown, "refused": runs.refusals}
    return record


def _rows(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    names, nested = {"a": record["a"], "b": record["b"]}, ("first", "second", "tests", "differs_in")
    told = [(field, value) for field, value in (record["scores"] or {}).items() if field not in nested]
    rows = [names | {"section": "comparison", "field": field, "first": value} for field, value in told]
    for section, fields in record["differences"].items():
        rows += [names | {"section": section, "field": field, **both} for field, both in fields.items()]
    return rows
