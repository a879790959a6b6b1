"""Roll-up of groups: the numbers by which a board ranks them, so that it reads no run that it does not show.

A row has the numbers of many groups, as one array: a row each would take longer to become Python values than all else
that a board does.

A run is *open* from its creation until it has ended and its groups are rolled up, in the same transaction; what changes
it afterwards opens it again. Groups are rolled up from the runs that are not open. A board reads those of open runs
from the runs themselves, and so the groups that have archived runs, where it leaves these out.

Whether a score on test data is refused follows from what is recorded of other runs. So groups with such scores are
rolled up again when any run ends that has left a model, or is removed, restored or merged.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, delete, func, not_, or_, select, union

from orchestrator.base.run_states import RunState
from orchestrator.registry.dialects import lock_until_commit, select_items, select_runs, upsert, upsert_rows
from orchestrator.registry.group_records import GroupRecord, load_groups
from orchestrator.registry.records import is_flagged, is_ranked
from orchestrator.registry.tables import ALL_RUNS, OPEN_RUNS, RANKED_GROUPS, RUNS

NUMBERS = np.dtype(
    [("key", "<u8"), ("code", "<i8"), ("n", "<i4"), ("has_model", "<i4")]
    + [(name, "<f8") for name in ("mean", "sd", "median", "best", "newest")]
)
"""Numbers of a group: both parts of its key, of the code -1 where it is not known; the number of its seeds, 0 without a
score; whether its best run left a model; statistics of its seeds; and when its newest run ended, in seconds."""
Numbers = NDArray[Any]
_NO_NUMBERS = np.array([], NUMBERS)
_KEYS = tuple(RANKED_GROUPS.primary_key.columns.keys())
_PACKS = select(*RANKED_GROUPS.primary_key, RANKED_GROUPS.c.numbers).order_by(*RANKED_GROUPS.primary_key)
_OPEN = select(OPEN_RUNS.c.run_id)
_OPEN_KEYS = union(*(select(RUNS.c.group_key).where(column.in_(_OPEN)) for column in (RUNS.c.key, RUNS.c.parent_id)))


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
        (recipe, _, code), has_model = group.key.partition("."), best is not None and best.model_folder is not None
        statistics = (0.0,) * 4 if one is None else (one.mean, one.sd or 0.0, one.median, group.best_score)
        key = int(recipe, 16), int(code, 16) if code else -1
        records.append((*key, one.n if one else 0, has_model, *statistics, newest.timestamp() if newest else 0.0))
    return np.array(records, NUMBERS)


def joined_key(key: int, code: int = -1) -> str:
    """Join both parts of a group's key.

    >>> joined_key(0x3F2A77C0B1D2E3F4, 0x1A2B3C4D), joined_key(0x3F2A77C0B1D2E3F4)
    ('3f2a77c0b1d2e3f4.1a2b3c4d', '3f2a77c0b1d2e3f4')
    """
    return f"{key:016x}" if code < 0 else f"{key:016x}.{code:08x}"


def open_run(connection: Connection, run_id: str) -> None:
    """Open a run that is about to change, and take it out of the roll-up; nothing of one at work is rolled up."""
    connection.execute(upsert(connection.dialect.name, OPEN_RUNS, ("run_id",)), {"run_id": run_id})
    state = connection.scalar(select(ALL_RUNS.c.state).where(ALL_RUNS.c.id == run_id))
    if state is not None and state.is_final:  # although it may be open already: `open_statement`
        roll_up_again(connection, keys_of_runs(connection, [run_id]))


def roll_up(connection: Connection) -> None:
    """Roll up the groups of the open runs that have ended."""
    has_ended = ALL_RUNS.c.state.in_([state for state in RunState if state.is_final])
    run_ids = connection.scalars(select(ALL_RUNS.c.id).where(ALL_RUNS.c.key.in_(_OPEN), has_ended)).all()
    if run_ids:
        connection.execute(delete(OPEN_RUNS).where(OPEN_RUNS.c.run_id.in_(select_runs(run_ids))))
        roll_up_again(connection, keys_of_runs(connection, run_ids))


def roll_up_tests(connection: Connection) -> None:
    """Roll up the groups with scores on test data anew: others than before may be refused."""
    tested = _stored_numbers(connection, RANKED_GROUPS.c.split == "test").values()
    roll_up_again(connection, {joined_key(key) for numbers in tested for key in numbers["key"].tolist()})


def keys_of_runs(connection: Connection, run_ids: Collection[str]) -> set[str]:
    """Keys of the groups of some runs and of their trials, without that of the code."""
    asked = select_runs(run_ids)
    are_theirs = or_(ALL_RUNS.c.key.in_(asked), ALL_RUNS.c.parent_id.in_(asked))
    return set(connection.scalars(select(ALL_RUNS.c.group_key).where(are_theirs)))


def roll_up_again(connection: Connection, keys: Collection[str]) -> None:
    """Roll up the groups with these keys anew, from the runs that are not open."""
    if not keys:
        return
    lock_until_commit(connection, RANKED_GROUPS.name)
    touched = RANKED_GROUPS.c.beginning.in_({key[:2] for key in keys})
    stored, made = _stored_numbers(connection, touched), _numbers_of_runs(connection, keys)
    packs = []
    for place in {*stored, *made}:
        old = stored.get(place, _NO_NUMBERS)
        new = _replace(old, keys, made.get(place, _NO_NUMBERS)).tobytes()
        if new != old.tobytes():
            packs.append(dict(zip(_KEYS, place, strict=True)) | {"numbers": new})
    upsert_rows(connection, RANKED_GROUPS, packs, ("numbers",))
    connection.execute(delete(RANKED_GROUPS).where(touched, func.length(RANKED_GROUPS.c.numbers) == 0))


def _stored_numbers(connection: Connection, *conditions: Any) -> dict[tuple[str, ...], Numbers]:
    """Numbers of the groups that are rolled up, by ranking and beginning."""
    packs = connection.execute(_PACKS.where(*conditions))
    return {tuple(place): np.frombuffer(pack, NUMBERS) for *place, pack in packs}


def _numbers_of_runs(connection: Connection, keys: Collection[str]) -> dict[tuple[str, ...], Numbers]:
    """Numbers of the groups with these keys, by ranking and beginning, from the runs that are not open."""
    is_open = func.coalesce(RUNS.c.parent_id, RUNS.c.key).in_(_OPEN)
    found: dict[tuple[str, ...], list[GroupRecord]] = defaultdict(list)
    for group in load_groups(connection, RUNS.c.group_key.in_(select_items(keys)), not_(is_open)):
        found[*Ranking.of(group), group.key[:2]].append(group)
    return {place: numbers_of(groups) for place, groups in found.items()}


def _replace(numbers: Numbers, keys: Iterable[str], new: Numbers) -> Numbers:
    """Replace the numbers of the groups with these keys; those of all stand in the order of the keys."""
    gone = np.array([int(key, 16) for key in keys], np.uint64)
    joined = np.concatenate([numbers[~np.isin(numbers["key"], gone)], new])
    return joined[np.lexsort((joined["code"], joined["key"]))]


def check_roll_up(connection: Connection, *, mend: bool = False) -> list[str]:
    """Keys of the groups whose numbers are not those that follow from the runs, without those of open runs.

    `mend` rolls all groups up anew.
    """
    keys = set(connection.scalars(select(RUNS.c.group_key).where(is_ranked()).distinct()))
    stored, followed = (
        {(*place, *one) for place, numbers in packs.items() for one in numbers.tolist()}
        for packs in (_stored_numbers(connection), _numbers_of_runs(connection, keys))
    )
    if mend:
        connection.execute(delete(RANKED_GROUPS))
        roll_up_again(connection, keys)
    differing = {joined_key(one[len(_KEYS)]) for one in stored ^ followed}
    return sorted(differing.difference(connection.scalars(_OPEN_KEYS)))


def load_rankings(
    connection: Connection, task: str | None, *, archived: bool = False, across_code: bool = False
) -> dict[Ranking, Numbers]:
    """Load the numbers of the groups of a task, or of all, each ranking's in the order of their keys.

    With `archived` runs or without; runs that differ in the version of the code are one group where `across_code`.
    """
    packs = _PACKS if task is None else _PACKS.where(RANKED_GROUPS.c.task == task)
    rankings = {
        Ranking(*ranking): np.frombuffer(b"".join([row[-1] for row in rows]), NUMBERS)
        for ranking, rows in groupby(connection.execute(packs).all(), key=lambda row: row[:4])
    }
    live = set(connection.scalars(_OPEN_KEYS))
    if not archived:
        live |= set(connection.scalars(select(RUNS.c.group_key).where(is_flagged("archived"))))
    if across_code:
        for numbers in rankings.values():
            is_twin = numbers["key"][1:] == numbers["key"][:-1]
            live |= set(map(joined_key, numbers["key"][1:][is_twin].tolist()))
    found: dict[Ranking, list[GroupRecord]] = defaultdict(list)
    is_live = RUNS.c.group_key.in_(select_items(live))
    for group in load_groups(connection, is_live, archived=archived, across_code=across_code) if live else ():
        if task in (None, group.task):
            found[Ranking.of(group)].append(group)
    for ranking in {*rankings, *found} if live else ():
        rankings[ranking] = _replace(rankings.get(ranking, _NO_NUMBERS), live, numbers_of(found[ranking]))
    return {ranking: numbers for ranking, numbers in rankings.items() if len(numbers)}
