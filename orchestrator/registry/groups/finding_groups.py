"""Groups by what a person calls them: the beginning of a group's digest, a trial, or a run."""

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import ColumnElement, and_, select
from sqlalchemy.orm import Session

from orchestrator.errors import InputError, NotFoundError, SeveralRunsError
from orchestrator.registry.groups.group_keys import LABEL_DIGITS, distinct_labels, group_code, group_key, group_label
from orchestrator.registry.groups.group_records import GroupRecord
from orchestrator.registry.groups.groups import is_ranked, load_groups
from orchestrator.registry.run_records import MAX_CANDIDATES, MIN_ID_DIGITS, find_run, newest_called
from orchestrator.registry.tables import RunRow
from orchestrator.run_states import RunState


def find_group(session: Session, name: str, state: ColumnElement[RunState]) -> GroupRecord:
    """Find the group whose digest begins with `name` (four characters), or a run's or trial's part of its group.

    A whole digest, or one as lists show it, means that group, although longer ones begin with it. A trial, a student or
    an evaluation stands for itself alone; a sweep for its own trials, where they are one group, without those of other
    sweeps that the group has.

    Raises: NotFoundError where nothing is called so, or several are; InputError for a run without a score that ranks,
        or with several groups.
    """
    digest, _, code = name.lower().partition(".")
    is_called = RunRow.group_key.startswith(digest, autoescape=True)
    ranked = select(RunRow.group_key, RunRow.code_version).where(is_called, is_ranked())
    is_long = len(digest) >= MIN_ID_DIGITS
    pairs = session.execute(ranked.distinct().order_by(RunRow.group_key, RunRow.code_version)).all() if is_long else []
    keys = {group_key(*pair): pair for pair in pairs if group_code(group_key(*pair)).startswith(code)}
    is_shown = len(digest) >= LABEL_DIGITS
    exact = {key: pair for key, pair in keys.items() if is_shown and name.lower() == group_label(key, len(digest))}
    if len(exact) == 1:  # a group whose code is unknown has no more to its name than others begin with
        keys = exact
    named = newest_called(session, name, state) if keys else None
    if named is not None:
        raise SeveralRunsError(f"{name!r} is the name of run {named[0].id}, and begins a group's digest; give that id.")
    if len(keys) == 1:
        ((own_digest, version),) = keys.values()
        of_code = RunRow.code_version.is_(None) if version is None else RunRow.code_version == version
        return _only(load_groups(session, and_(RunRow.group_key == own_digest, of_code)), name)
    if keys:
        listed = ", ".join(distinct_labels([*keys])[:MAX_CANDIDATES]) + (", …" if len(keys) > MAX_CANDIDATES else "")
        raise SeveralRunsError(f"{name!r} begins the digests of several groups; give more of it: {listed}.")
    try:
        run = find_run(session, name, state)
    except NotFoundError as error:
        raise NotFoundError(f"No group's digest begins with {name!r}. {error}") from None
    own = load_groups(session, RunRow.parent_id == run.id)
    groups = own or [
        replace(group, runs=[one for one in group.runs if one.id == run.id])
        for group in load_groups(session, RunRow.id == run.id)
    ]
    if not groups:
        raise InputError(f"run {run.id} ({run.kind}) has no score that ranks; name a sweep, a trial or an evaluation")
    return _only(groups, name)


def _only(groups: Sequence[GroupRecord], name: str) -> GroupRecord:
    if len({group.key for group in groups}) < len(groups):
        listed = ", ".join(
            f"{group.runs[-1].id} ({group.metric}, data {group.data})" for group in groups[:MAX_CANDIDATES]
        )
        raise InputError(
            f"{name} stands for {len(groups)} groups with other scores or on other data; name one by a run of it: "
            f"{listed}{', …' if len(groups) > MAX_CANDIDATES else ''}"
        )
    if len(groups) > 1:
        labels = distinct_labels([group.key for group in groups])[:MAX_CANDIDATES]
        listed = ", ".join(f"{label} ({group.metric})" for label, group in zip(labels, groups, strict=False))
        raise InputError(
            f"{name} has {len(groups)} groups of trials; name one of them, as `orchestrator groups list` shows them: "
            f"{listed}{', …' if len(groups) > MAX_CANDIDATES else ''}"
        )
    return groups[0]
