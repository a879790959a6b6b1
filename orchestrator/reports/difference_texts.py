"""Differences between two runs as short texts: for `runs diff` in a terminal, and for a page of the board."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.cells import MISSING, cell, printable, setting_cell

if TYPE_CHECKING:
    from orchestrator.registry.run_differences import Difference, RunComparison

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
_DIGEST_CHARS = 12


def field_text(field: str) -> str:
    """Name of a field; the digests among the data's names are told by their values."""
    return printable(field.removesuffix(".digest"), keep_lines=False)


def value_texts(each: "Difference") -> tuple[str, str]:
    """Both values of a field, in full where they differ only in what a short text leaves out."""
    one, other = (shown_value(value, each.section) for value in (each.first, each.second))
    if one == other:  # which differ in what a table rounds away, or in their kinds
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
    """The change of a score or a speed, with its sign; empty for anything else."""
    numbers = [value for value in (each.first, each.second) if isinstance(value, int | float)]
    if each.section not in ("scores", "speed") or len(numbers) < 2:
        return ""
    return f"{numbers[1] - numbers[0]:+.4g}"


def refusal_sentences(refusals: Mapping[str, str]) -> list[str]:
    """Sentences on refused test scores, given by the ids of their runs."""
    return [f"The test score of {run_id} is refused: {why}." for run_id, why in refusals.items()]


def same_sentences(comparison: "RunComparison") -> list[str]:
    """Sentences on what is left out, on what is the same in both runs, and on what was not recorded of one."""
    sentences = []
    if comparison.has_left_out_counts:
        sentences.append("The data differ; counts of data that one run alone has are left out.")
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
    """Name of a section in a sentence: what it holds where its own name would say more."""
    if section == "scores" and "sweep" in (comparison.first.kind, comparison.second.kind):
        return "scores of the best trial"
    return "kind, task and state" if section == "run" else section
