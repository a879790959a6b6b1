"""Queries for what people add to runs: notes and flags.

pytest tests/orchestrator/registry/queries/test_query_annotations.py
"""

import pytest

from orchestrator.registry import Registry
from orchestrator.registry.run_flags import Flag
from tests.orchestrator.registry.samples import new_run


def test_a_run_is_found_by_its_notes(registry: Registry) -> None:
    noted, other = (new_run(registry, name=name) for name in ("noted", "other"))
    registry.annotations.note(noted, "LR too high")
    registry.annotations.note(noted, "tried again")
    assert list(registry.runs("note like '%lr%'").id) == [noted]
    assert list(registry.runs("note = 'tried again'").id) == [noted]
    assert list(registry.runs("note is null").id) == [other]
    assert sorted(registry.grouped("note", aggregates="count")["note"].dropna()) == ["LR too high", "tried again"]


@pytest.mark.parametrize("flag", ["archived", "pinned"])
def test_a_run_is_found_by_its_flags(registry: Registry, flag: Flag) -> None:
    pipeline, other = new_run(registry, kind="pipeline"), new_run(registry)
    stage = new_run(registry, tags=[f"pipeline:{pipeline}"])
    registry.annotations.set_flag(pipeline, flag)
    for query in (f"{flag} = true", f"{flag} != false", f"{flag} is not null and not {flag} = false", flag):
        assert set(registry.run_ids(query)) == {pipeline, stage}
        assert registry.num_runs(query) == 2
    assert registry.run_ids(f"{flag} = false") == [other]
    assert registry.run_ids(sort=flag)[0] == other
    assert dict(registry.grouped(flag, aggregates="count").values) == {False: 1, True: 2}


def test_a_query_for_archived_runs_finds_them_where_they_are_left_out_otherwise(registry: Registry) -> None:
    run_id = new_run(registry)
    registry.annotations.set_flag(run_id, "archived")
    assert registry.run_ids("archived = true", archived=False) == [run_id]
    assert registry.run_ids("pinned != archived", archived=False) == [run_id]
    assert registry.run_ids("name != 'archived'", archived=False) == []
