"""Roll-up of groups: the numbers by which a board ranks them, so that it reads no run that it does not show.

A board ranks tens of thousands of groups. As a row of a table each, they would take longer to become Python values than
all else that it does, so that a row has many of them, as one array.

A run is *open* from its creation until it has ended and its groups are rolled up, in the same transaction; what changes
it afterwards opens it again. Groups are rolled up from the runs that are not open. A board reads those of open runs
from the runs themselves, and so the groups that have archived runs, where it leaves these out.

Whether a score on test data is refused follows from what is recorded of other runs. So groups with such scores are
rolled up again when any run is removed, restored or merged. What a board shows of a group is read from the runs anyway.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, and_, bindparam, delete, func, insert, not_, or_, select, union

from orchestrator.registry.dialects import lock_until_commit, select_items, select_runs, upsert
from orchestrator.registry.group_records import GroupRecord
from orchestrator.registry.groups import is_ranked, load_groups, of_task
from orchestrator.registry.records import is_flagged
from orchestrator.registry.tables import ALL_RUNS, OPEN_RUNS, RANKED_GROUPS, RUNS
from orchestrator.run_states import RunState

NUMBERS = np.dtype(
    [("key", "<u8"), ("code", "<i8"), ("n", "<i4"), ("has_model", "<i4")]
    + [(name, "<f8") for name in ("mean", "sd", "median", "best", "newest")]
)
"""Numbers of a group: both parts of its key, of the code -1 where it is not known; the number of its seeds, 0 without a
score; whether its best run left a model; statistics of its seeds; and when its newest run ended, in seconds."""
Numbers = NDArray[Any]
_NO_NUMBERS = np.array([], NUMBERS)
_OPEN = select(OPEN_RUNS.c.run_id)
_PACKS = select(*RANKED_GROUPS.primary_key, RANKED_GROUPS.c.numbers).order_by(*RANKED_GROUPS.primary_key)
_LIVE = [select(RUNS.c.group_key).where(column.in_(_OPEN)) for column in (RUNS.c.key, RUNS.c.parent_id)]
_LIVE_KEYS = {
    True: union(*_LIVE),
    False: union(*_LIVE, select(RUNS.c.group_key).where(is_flagged("archived"))),
}
"""Statements for the keys of the groups that are read from the runs, by whether archived runs belong to them."""


class Ranking(NamedTuple):
    """Task, metric, split and data: what groups have in common that are ranked together."""

    task: str
    metric: str
    split: str
    data: str
    """Digest of the data; empty where it was not recorded."""

    @classmethod
    def of(cls, group: GroupRecord) -> "Ranking":
        return cls(group.task, group.metric, group.split, group.data or "")


def numbers_of(groups: Iterable[GroupRecord]) -> Numbers:
    """Numbers of groups, in their order."""
    records: list[tuple[Any, ...]] = []
    for group in groups:
        one, best, newest = group.summary, group.best, group.runs[-1].finished_at
        has_model = best is not None and best.model_folder is not None
        statistics = (0.0,) * 4 if one is None else (one.mean, one.sd or 0.0, one.median, group.best_score)
        ended = newest.timestamp() if newest else 0.0
        records.append((*split_key(group.key), one.n if one else 0, has_model, *statistics, ended))
    return np.array(records, NUMBERS)


def split_key(key: str) -> tuple[int, int]:
    """Split a group's key into both of its parts, as `NUMBERS` have them."""
    recipe, _, code = key.partition(".")
    return int(recipe, 16), int(code, 16) if code else -1


def joined_key(key: int, code: int = -1) -> str:
    """Join both parts of a group's key.

    >>> joined_key(*split_key("3f2a77c0b1d2e3f4.1a2b3c4d")), joined_key(*split_key("3f2a77c0b1d2e3f4"))
    ('3f2a77c0b1d2e3f4.1a2b3c4d', '3f2a77c0b1d2e3f4')
    """
    return f"{key:016x}" if code < 0 else f"{key:016x}.{code:08x}"


def open_run(connection: Connection, run_id: str) -> None:
    """Open a run that is about to change, and take it out of the roll-up; nothing of one at work is rolled up."""
    connection.execute(upsert(connection.dialect.name, OPEN_RUNS, ("run_id",)), {"run_id": run_id})
    state = connection.scalar(select(ALL_RUNS.c.state).where(ALL_RUNS.c.id == run_id))
    if state is not None and state.is_final:  # although it may be open already: `open_statement`
        roll_up_runs(connection, [run_id])


def roll_up(connection: Connection) -> None:
    """Roll up the groups of the open runs that have ended."""
    has_ended = ALL_RUNS.c.state.in_([state for state in RunState if state.is_final])
    run_ids = connection.scalars(select(ALL_RUNS.c.id).where(ALL_RUNS.c.key.in_(_OPEN), has_ended)).all()
    if run_ids:
        connection.execute(delete(OPEN_RUNS).where(OPEN_RUNS.c.run_id.in_(select_runs(connection, run_ids))))
        roll_up_runs(connection, run_ids)


def roll_up_runs(connection: Connection, run_ids: Collection[str]) -> None:
    """Roll up the groups of some runs and their trials anew."""
    roll_up_again(connection, keys_of_runs(connection, run_ids))


def roll_up_tests(connection: Connection) -> None:
    """Roll up the groups with scores on test data anew: others than before may be refused."""
    packs = connection.scalars(select(RANKED_GROUPS.c.numbers).where(RANKED_GROUPS.c.split == "test"))
    roll_up_again(
        connection, [joined_key(key) for pack in packs for key in np.frombuffer(pack, NUMBERS)["key"].tolist()]
    )


def keys_of_runs(connection: Connection, run_ids: Collection[str]) -> set[str]:
    """Keys of the groups of some runs and of their trials, without that of the code."""
    asked = select_runs(connection, run_ids)
    are_theirs = or_(ALL_RUNS.c.key.in_(asked), ALL_RUNS.c.parent_id.in_(asked))
    return set(connection.scalars(select(ALL_RUNS.c.group_key).where(are_theirs)))


def roll_up_again(connection: Connection, keys: Collection[str]) -> None:
    """Roll up the groups with these keys anew, from the runs that are not open."""
    if not keys:
        return
    table = RANKED_GROUPS
    lock_until_commit(connection, table.name)
    touched = _PACKS.where(table.c.beginning.in_({key[:2] for key in keys}))
    stored = {tuple(place): np.frombuffer(pack, NUMBERS) for *place, pack in connection.execute(touched)}
    made, packs = _make_packs(connection, keys), []
    for place in {*stored, *made}:
        old = stored.get(place, _NO_NUMBERS)
        new = _replace(old, keys, made.get(place, _NO_NUMBERS)).tobytes()
        if new != old.tobytes():
            packs.append(dict(zip(table.primary_key.columns.keys(), place, strict=True)) | {"numbers": new})
    if packs:
        is_it = [column == bindparam(f"old_{column.key}") for column in table.primary_key]
        old_keys = [{f"old_{name}": value for name, value in pack.items() if name != "numbers"} for pack in packs]
        connection.execute(delete(table).where(*is_it), old_keys)
    if filled := [pack for pack in packs if pack["numbers"]]:
        connection.execute(insert(table), filled)


def _replace(numbers: Numbers, keys: Iterable[str], new: Numbers) -> Numbers:
    """Replace the numbers of the groups with these keys; those of all stand in the order of the keys."""
    gone = np.array([int(key, 16) for key in keys], np.uint64)
    joined = np.concatenate([numbers[~np.isin(numbers["key"], gone)], new])
    return joined[np.lexsort((joined["code"], joined["key"]))]


def check_roll_up(connection: Connection, *, mend: bool = False) -> list[str]:
    """Keys of the groups whose numbers are not those that follow from the runs, without those of open runs.

    Args:
        mend: whether all groups are rolled up anew.
    """
    keys = set(connection.scalars(select(RUNS.c.group_key).where(is_ranked()).distinct()))
    made = [(place[:4], numbers) for place, numbers in _make_packs(connection, keys).items()]
    stored, followed = (
        {(*ranking, *one) for ranking, numbers in packs for one in numbers.tolist()}
        for packs in (_read_packs(connection, None), made)
    )
    differing = {joined_key(one[len(Ranking._fields)]) for one in stored ^ followed}
    if mend:
        connection.execute(delete(RANKED_GROUPS))
        roll_up_again(connection, keys)
    return sorted(differing.difference(connection.scalars(_LIVE_KEYS[True])))


def _make_packs(connection: Connection, keys: Collection[str]) -> dict[tuple[str, ...], Numbers]:
    """Make the numbers of the groups with these keys, by ranking and beginning, from the runs that are not open."""
    is_open = func.coalesce(RUNS.c.parent_id, RUNS.c.key).in_(_OPEN)
    found: dict[tuple[str, ...], list[GroupRecord]] = defaultdict(list)
    for group in load_groups(connection, and_(RUNS.c.group_key.in_(select_items(connection, keys)), not_(is_open))):
        found[*Ranking.of(group), group.key[:2]].append(group)
    return {place: numbers_of(groups) for place, groups in found.items()}


def load_rankings(
    connection: Connection, task: str | None, *, archived: bool = False, across_code: bool = False
) -> dict[Ranking, Numbers]:
    """Load the numbers of the groups of a task, or of all, each ranking's in the order of their keys.

    Args:
        archived: whether archived runs belong to them.
        across_code: whether runs that differ in the version of the code belong to one group.
    """
    rankings = dict(_read_packs(connection, task))
    live = {key for (key,) in connection.execute(_LIVE_KEYS[archived]).all()}
    if across_code:
        for numbers in rankings.values():
            is_twin = numbers["key"][1:] == numbers["key"][:-1]
            live |= set(map(joined_key, numbers["key"][1:][is_twin].tolist()))
    if not live:
        return rankings
    read = and_(of_task(None, archived=archived), RUNS.c.group_key.in_(select_items(connection, live)))
    found: dict[Ranking, list[GroupRecord]] = defaultdict(list)
    for group in load_groups(connection, read, across_code=across_code):
        if task in (None, group.task):
            found[Ranking.of(group)].append(group)
    joined = {
        ranking: _replace(rankings.get(ranking, _NO_NUMBERS), live, numbers_of(found[ranking]))
        for ranking in {*rankings, *found}
    }
    return {ranking: numbers for ranking, numbers in joined.items() if len(numbers)}


def _read_packs(connection: Connection, task: str | None) -> Iterator[tuple[Ranking, Numbers]]:
    rows = connection.execute(_PACKS if task is None else _PACKS.where(RANKED_GROUPS.c.task == task)).all()
    for ranking, of_ranking in groupby(rows, key=itemgetter(slice(4))):
        yield Ranking(*ranking), np.frombuffer(b"".join(row.numbers for row in of_ranking), NUMBERS)
