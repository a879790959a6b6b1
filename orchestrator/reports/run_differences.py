"""Differences between two runs, whatever their kinds: settings, data, code, environment and scores, field by field.

A trial is compared by its whole recipe; its code and environment are those of the attempt of its sweep that made it.
Of any other run the newest attempt counts. Below are a comparison's lines for a person, and its records and rows.
"""

import json
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from orchestrator.base.console.log_lines import wrapped
from orchestrator.base.formatting import MISSING, cell, printable, setting_cell
from orchestrator.base.metric_names import is_of_the_machine
from orchestrator.registry.group_comparison import Comparison
from orchestrator.registry.group_records import GroupRecord
from orchestrator.registry.parameters import is_source_digest
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.reports.run_facts import RunFacts
from orchestrator.significance.comparison import DifferenceResult, McNemarResult
from orchestrator.significance.ranking import SeedNoise

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
_WIDTH = 80
_DECIMALS = 12
"""Decimals of a difference of scores; further ones are rounding errors."""
POOLED = "seed noise of the ranking"
"""Name of the test by the noise of seeds in all groups of a ranking."""
_DATA_PARAMETERS = "data."
_DIGEST, _DIGEST_CHARS = ".digest", 12


@dataclass(frozen=True)
class Difference:
    """Field with its two values; None where a run has no such field."""

    section: str
    field: str
    first: Any
    second: Any
    is_alone: bool = False
    """Whether one run lacks the field for being of another kind."""


@dataclass(frozen=True)
class RunComparison:
    """Two runs with their differences."""

    first: RunRecord
    second: RunRecord
    differences: list[Difference]
    same: list[str]
    """Sections without a difference."""
    unknown: dict[str, list[str]]
    """Ids of the runs for which a section was not recorded, by section."""
    refusals: dict[str, str]
    """Reason why the test score is refused, by run id."""


class Pair(NamedTuple):
    """Two runs or groups beside each other."""

    names: tuple[str, str]
    scores: Comparison | None
    """None where they cannot be compared."""
    runs: RunComparison | None
    """None of two groups."""
    differences: Sequence[Difference]


def compare_runs(registry: Registry, first: str, second: str) -> RunComparison:
    """Compare two runs by the beginnings of their ids. Raises: NotFoundError."""
    runs = registry.run(first), registry.run(second)
    both = [run_sections(RunFacts(registry, run)) for run in runs]
    _drop_details(*(sections["data"] or {} for sections in both))
    of_one_kind = runs[0].kind == runs[1].kind
    differences, same, unknown = list[Difference](), list[str](), dict[str, list[str]]()
    for section, one in both[0].items():
        other = both[1][section]
        if one is None or other is None:
            unknown[section] = [run.id for run, fields in zip(runs, (one, other), strict=True) if fields is None]
            continue
        values = {name: (one.get(name), other.get(name)) for name in [*one, *other]}
        alone = set() if of_one_kind else one.keys() ^ other.keys()
        found = [Difference(section, name, *pair, name in alone) for name, pair in values.items() if not is_same(*pair)]
        differences += found
        same += [section] if one and not found else []
    refusals = registry.test_refusals([run.id for run in runs])
    return RunComparison(*runs, differences, same, unknown, refusals)


def compare_pair(
    registry: Registry,
    names: tuple[str, str],
    one: RunRecord | GroupRecord,
    other: RunRecord | GroupRecord,
    scores: Comparison | None,
) -> Pair:
    """Two runs with all that differs, or two groups with the settings that do; a group beside a run is its best run."""
    if isinstance(one, GroupRecord) and isinstance(other, GroupRecord):
        settings = scores.differs_in if scores else {}
        return Pair(names, scores, None, [Difference("spec", path, *both) for path, both in settings.items()])
    ids = [(side.best or side.runs[-1]).id if isinstance(side, GroupRecord) else side.id for side in (one, other)]
    runs = compare_runs(registry, *ids)
    return Pair(names, scores, runs, runs.differences)


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same: 16 is 16.0, NaN is NaN, an empty list is no value, and 1 is not true."""
    if one in (None, []) and other in (None, []):
        return True
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return bool(one == other or (one != one and other != other))


def run_sections(facts: RunFacts) -> dict[str, dict[str, Any] | None]:
    """Fields of a run by section; None for a section that was not recorded of it."""
    run, values = facts.run, facts.values
    return {
        "run": {"kind": run.kind, "task": run.task, "state": str(run.state), "error": run.error},
        "spec": {path: value for path, value in facts.parameters.items() if not path.startswith(_DATA_PARAMETERS)},
        "data": _data(facts),
        "code": _code(facts),
        "environment": _environment(facts),
        "scores": {name: value for name, value in values.items() if not is_of_the_machine(name)} | facts.stage_scores,
        "speed": {"seconds": run.seconds, **{name: v for name, v in values.items() if is_of_the_machine(name)}},
        "stages": {name: stage_id for stage_id, name in facts.stage_names.items()},
    }


def _data(facts: RunFacts) -> dict[str, Any]:
    """Digests and counts of a run's data, and the digests of the models and tokenizers that it began with."""
    found: dict[str, Any] = {}
    for row in facts.data:
        name = f"{row['kind']} {row['name']}"
        found[f"{name}{_DIGEST}"] = row["fingerprint"]
        found |= {f"{name}.{count}": number for count, number in row["counts"].items()}
        found |= {f"{name}.{file['path']}.num_bytes": file["num_bytes"] for file in row["files"]}
    return found | {path: value for path, value in facts.parameters.items() if path.startswith(_DATA_PARAMETERS)}


def value_text(value: Any, section: str) -> str:
    """Text of a field's value; of a digest its beginning."""
    if value is None or value in ([], {}):
        return "not set"
    text = setting_cell(value) if section == "spec" else cell(value)
    is_digest = isinstance(value, str) and len(value) in (40, 64) and all(c in "0123456789abcdef" for c in value)
    return value[:_DIGEST_CHARS] if is_digest else json.dumps(value) if text == MISSING else text


def _drop_details(*both: dict[str, Any]) -> None:
    """Drop digests of source files, which remote files lack, and counts of data that one run alone has."""
    one, other = ({name.removesuffix(_DIGEST) for name in data if name.endswith(_DIGEST)} for data in both)
    alone = tuple(f"{name}." for name in one ^ other)
    for data in both:
        for name in [*data]:
            if is_source_digest(name) or (name.startswith(alone) and not name.endswith(_DIGEST)):
                del data[name]


def _code(facts: RunFacts) -> dict[str, Any] | None:
    """Code of a run's newest attempt; None where it was not recorded."""
    if facts.made_by is None or facts.made_by.code is None:
        return None
    names = {"package": "version", "commit": "commit", "no commit": "reason", "changes": "diff_digest"}
    code = facts.made_by.code
    return {shown: code[name] for shown, name in names.items()} | {"changed files": list(code["changed_files"]) or None}


def _environment(facts: RunFacts) -> dict[str, Any] | None:
    """Command of a run, versions and machine of its newest attempt; None where they were not recorded."""
    attempt = facts.made_by
    if attempt is None or not attempt.environment:
        return None
    values = dict(attempt.environment)
    versions = values.pop("versions", {})
    return {
        "command": facts.command,
        "overrides": list(attempt.overrides or []) or None,
        **{name: list(value) if isinstance(value, tuple) else value for name, value in values.items()},
        **dict(versions),
        "worker hosts": sorted({host for group in attempt.workers or () for host in group["hosts"]}) or None,
    }


def difference_lines(differences: Sequence[Difference], runs: RunComparison | None = None) -> list[str]:
    """Lines of all that differs, for a person: of 80 characters at most where words allow it."""
    lines = list[str]()
    for name, run in (("first", runs.first), ("second", runs.second)) if runs else ():
        told = f"{name:<6}  {run.id}  {run.kind} {run.name}, {run.state}, {run.created_at:%Y-%m-%d %H:%M}"
        lines.append(printable(told, keep_lines=False))
    for section, title in TITLES.items():
        found = [each for each in differences if each.section == section]
        lines += [*([""] if lines else []), title] if found else []
        lines += chain.from_iterable(_lines(each) for each in found if not each.is_alone)
        lines += _lines_alone([each for each in found if each.is_alone])
        for one in found:
            if one.field == "commit" and one.first and one.second:
                commits = (value_text(commit, section) for commit in (one.first, one.second))
                lines.append(f"  see: git diff {' '.join(commits)}")
    return lines if runs is None else [*lines, "", *_sentences(runs)]


def _lines(each: Difference) -> list[str]:
    """Lines of one field: both values in one line where they fit, else one below the other."""
    first, second = each.first, each.second
    one, other = (value_text(value, each.section) for value in (first, second))
    if one == other:  # they differ in digits that a table rounds away, or in their types
        one, other = (printable(json.dumps(value, default=str)) for value in (first, second))
    name, change = printable(each.field.removesuffix(".digest"), keep_lines=False), ""
    if each.section in ("scores", "speed") and first is not None and second is not None:
        change = f" ({second - first:+.4g})"
    line = f"  {name}: {one} → {other}{change}"
    if len(line) <= _WIDTH:
        return [line]
    rows = [f"  {name}:"]
    for label, text in (("first", one), ("second", other)):
        begun, *rest = wrapped(text, _WIDTH - 12) or [""]
        rows += [f"    {label:<8}{begun}", *(f"{'':12}{row}" for row in rest)]
    return rows


def _lines_alone(alone: Sequence[Difference]) -> Iterator[str]:
    """A line for each run with fields that the other, of another kind, lacks: their parts, the largest first."""
    for name, is_first in (("first", True), ("second", False)):
        parts = Counter(each.field.partition(".")[0] for each in alone if (each.second is None) == is_first)
        told = ", ".join(f"{part}.*" if number > 1 else part for part, number in parts.most_common())
        if parts:
            yield textwrap.shorten(
                f"only in the {name}: {printable(told)}", _WIDTH - 2, placeholder=" …", initial_indent="  "
            )


def _sentences(runs: RunComparison) -> list[str]:
    """Sentences on refused test scores, equal sections, and sections that were not recorded."""
    is_of_sweeps = "sweep" in (runs.first.kind, runs.second.kind)
    words = {"run": "kind, task and state" if runs.first.task else "kind and state"}
    words |= {"scores": "scores of the best trial"} if is_of_sweeps else {}
    sentences = [f"The test score of {run_id} is refused: {why}." for run_id, why in runs.refusals.items()]
    if runs.same:
        sentences.append(f"The same in both: {', '.join(words.get(one, one) for one in runs.same)}.")
    for run in (runs.first, runs.second):
        if sections := [words.get(one, one) for one, ids in runs.unknown.items() if run.id in ids]:
            sentences.append(f"Not recorded of {run.id}: {', '.join(sections)}.")
    return sentences


def significance_rows(comparison: Comparison, noise: SeedNoise | None) -> list[dict[str, Any]]:
    """Row for each significance test; the first one decides."""
    examples, metric = comparison.examples, comparison.first.metric
    rows = [_test_row("Welch, all seeds", metric, comparison.welch)]
    if comparison.paired is not None:
        paired = _test_row(f"paired permutation, {len(comparison.differences)} common seeds", metric, comparison.paired)
        rows.insert(0 if comparison.of_seeds is comparison.paired else 1, paired)
    if noise is not None and comparison.first.summary and comparison.second.summary:
        pooled = noise.compare(comparison.first.summary, comparison.second.summary)
        rows.append(_test_row(POOLED, metric, pooled))
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


def _scores_record(comparison: Comparison, noise: SeedNoise | None) -> dict[str, Any]:
    first, second = comparison.first, comparison.second
    low, high = comparison.result.interval or (None, None)
    return {
        "answer": comparison.words,
        "first": first.key,
        "second": second.key,
        "distinguishable": comparison.is_distinguishable,
        "test": comparison.test,
        "difference": comparison.result.difference,
        "low": low,
        "high": high,
        **{name: getattr(comparison, name) for name in ("p_value", "corrected_p_value", "num_comparisons")},
        "num_first": len(first.seeds),
        "num_second": len(second.seeds),
        "num_common": len(comparison.differences),
        "num_seeds_needed": comparison.num_seeds_needed,
        "tests": significance_rows(comparison, noise),
        "differs_in": {path: list(values) for path, values in comparison.differs_in.items()},
    }


def pair_record(pair: Pair, noise: SeedNoise | None, why_not: str) -> dict[str, Any]:
    """The comparison of a pair for a program.

    Args:
        noise: noise of seeds in the ranking of both.
        why_not: reason why scores cannot be compared; empty where they can.
    """
    differences: dict[str, dict[str, Any]] = {}
    for each in pair.differences:
        differences.setdefault(each.section, {})[each.field] = {"first": each.first, "second": each.second}
    record: dict[str, Any] = {
        **dict(zip("ab", pair.names, strict=True)),
        "scores": None if pair.scores is None else _scores_record(pair.scores, noise),
        "scores_not_compared": why_not or None,
        "differences": differences,
    }
    if (runs := pair.runs) is not None:
        for name, run in (("first", runs.first), ("second", runs.second)):
            record[name] = {key: getattr(run, key) for key in ("id", "name", "kind", "state", "created_at")}
        record |= {"same": runs.same, "not_recorded": runs.unknown, "refused": runs.refusals}
    return record


def pair_rows(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of a `pair_record` for CSV: fields of the scores, then of the differences."""
    names, nested = {"a": record["a"], "b": record["b"]}, ("first", "second", "tests", "differs_in")
    told = [(field, value) for field, value in (record["scores"] or {}).items() if field not in nested]
    rows = [names | {"section": "comparison", "field": field, "first": value} for field, value in told]
    for section, fields in record["differences"].items():
        rows += [names | {"section": section, "field": field, **both} for field, both in fields.items()]
    return rows
