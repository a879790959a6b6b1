"""Conflicts over a run: two registries have its id, and not the same of it. Told in words, so that a person can judge:

    both are sweep sst2 of 2026-11-01 12:00; they differ in runs: state (COMPLETED here, FAILED there), error,
    finished_at and 2 more; metrics: validation f1 (0.91 here, 0.87 there), validation loss

Digests find the tables that differ, and only these are read row by row: a merge compares 100,000 runs. No table is
held in memory: a pretraining may have millions of points.
"""

from collections.abc import Iterable, Iterator, Mapping
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import Table
from sqlalchemy.orm import Session

from orchestrator.cells import setting_cell, short_value
from orchestrator.registry.keeping.run_families import family_digests, family_of, rows_of_run, run_values
from orchestrator.registry.tables import BaseRow

_TOLD_FIRST = ("runs", "parameters", "metrics")
_NAMED_BY = {"parameters": ("path",), "metrics": ("split", "name"), "metric_points": ("split", "name")}
"""Columns whose values name a row that differs; in other tables the columns that differ are named."""
_VALUE = {"parameters": "text", "metrics": "value"}
"""Column that is told of both sides beside the name of a row."""
_NUM_NAMES, _LONGEST_NAME, _LONGEST_VALUE = 3, 40, 12

Row = Mapping[Any, Any]
Difference = tuple[str, str]
"""Name of what differs, and both sides of it in words; no words where they are long or would not tell them apart."""


def run_conflict(there: Session, here: Session, run_id: str) -> str:
    """Tell what differs in a run that both registries have; empty where both have the same of it."""
    ours, theirs = family_digests(here, run_id), family_digests(there, run_id)
    differing = [name for name in ours if ours[name] != theirs[name]]
    if not differing:
        return ""
    one, other = (_identity(run_values(session, run_id)) for session in (here, there))
    identity = f"both are {one}" if one == other else f"here it is {one}, there {other}"
    parts = []
    for name in sorted(differing, key=lambda name: (*(name != first for first in _TOLD_FIRST), name)):
        found = _of_runs(there, here, run_id) if name == "runs" else _of_table(there, here, name, run_id)
        if names := _listed(found):
            parts.append(f"{name.replace('_', ' ')}: {names}")
    return f"{identity}; they differ in {'; '.join(parts)}" if parts else identity


def _identity(run: Row) -> str:
    return f"{run['kind']} {run['name']} of {run['created_at']:%Y-%m-%d %H:%M}"


def _listed(differences: Iterable[Difference]) -> str:
    """The first names, each once and with its first words; and how many there are besides."""
    words: dict[str, str] = {}
    for name, both in differences:
        words.setdefault(name, both)
    shown = [f"{short_value(name, _LONGEST_NAME)}{f' ({both})' if both else ''}" for name, both in words.items()]
    num_more = len(shown) - _NUM_NAMES
    return ", ".join(shown[:_NUM_NAMES]) + (f" and {num_more} more" if num_more > 0 else "")


def _of_runs(there: Session, here: Session, run_id: str) -> Iterator[Difference]:
    """Differences of a run itself, then of its trials, then the trials that one side alone has."""
    for member in _members(there, here, run_id):
        # The number of an experiment is of one database alone; what differs in `_identity` is told before.
        known = ("experiment_id", "kind", "name") if member == run_id else ("experiment_id",)
        differences = _of_columns(run_values(here, member), run_values(there, member))
        yield from _of_member(member == run_id, (each for each in differences if each[0] not in known))
    ours, theirs = set(family_of(here, run_id)), set(family_of(there, run_id))
    for session, alone, where in ((here, ours - theirs, "here"), (there, theirs - ours, "there")):
        for number in sorted(run_values(session, trial)["number"] for trial in alone):
            yield f"trial {number}", f"only {where}"


def _of_table(there: Session, here: Session, name: str, run_id: str) -> Iterator[Difference]:
    """Differences of a table's rows of a run, then of those of the trials that both sides have."""
    table = BaseRow.metadata.tables[name]
    for member in _members(there, here, run_id):
        for ours, theirs in _paired(there, here, table, member):
            if ours is None or theirs is None:
                found = [_of_one_side(table, ours, theirs)]
            else:
                found = list(_of_columns(ours, theirs))
                if found and name in _NAMED_BY:
                    found = [(_row_name(table, ours), dict(found).get(_VALUE.get(name, ""), ""))]
            yield from _of_member(member == run_id, found)


def _of_member(is_run: bool, differences: Iterable[Difference]) -> Iterator[Difference]:
    """Differences of the run itself; of a trial their names alone: the words would not say of which trial."""
    return ((name, both) if is_run else (f"trials' {name}", "") for name, both in differences)


def _members(there: Session, here: Session, run_id: str) -> list[str]:
    """Ids of a run and of the trials that both sides have, the run first."""
    theirs = set(family_of(there, run_id))
    return [member for member in family_of(here, run_id) if member in theirs]


def _paired(there: Session, here: Session, table: Table, run_id: str) -> Iterator[tuple[Row | None, Row | None]]:
    """Rows of both sides, those of one key together; None for a side that has no such row."""
    keys = [column.name for column in table.primary_key]

    def keyed(session: Session, side: int) -> Iterator[tuple[list[Any], int, Row]]:
        for row in session.execute(rows_of_run(session, table, run_id)).mappings():
            yield [row[name] for name in keys], side, row

    both = merge(keyed(here, 0), keyed(there, 1), key=itemgetter(0, 1))
    for _, of_one_key in groupby(both, key=itemgetter(0)):
        rows = {side: row for _, side, row in of_one_key}
        yield rows.get(0), rows.get(1)


def _of_columns(ours: Row, theirs: Row) -> Iterator[Difference]:
    """Columns in which two rows differ as their digests do: NaN is NaN, and 1 is not 1.0."""
    for column in ours:
        if repr(ours[column]) != repr(theirs[column]):
            one, other = _cell(ours[column]), _cell(theirs[column])
            is_telling = one != other and max(len(one), len(other)) <= _LONGEST_VALUE
            yield column, f"{one} here, {other} there" if is_telling else ""


def _cell(value: Any) -> str:
    return "none" if value is None else setting_cell(value)


def _of_one_side(table: Table, ours: Row | None, theirs: Row | None) -> Difference:
    # Points of a measurement have its name alone, and both sides may have others of them.
    has_words = table.name in _VALUE or table.name not in _NAMED_BY
    return _row_name(table, ours or theirs or {}), f"only {'there' if ours is None else 'here'}" if has_words else ""


def _row_name(table: Table, row: Row) -> str:
    if table.name in _NAMED_BY:
        return " ".join(row[column] for column in _NAMED_BY[table.name])
    return " ".join(f"{column.name} {row[column.name]}" for column in table.primary_key if column.name != "run_id")
