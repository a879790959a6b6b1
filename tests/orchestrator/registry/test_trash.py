"""A removed run is nowhere else, and comes back. Alone: pytest tests/orchestrator/registry/test_trash.py"""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from orchestrator.base.errors import InputError, NotFoundError
from orchestrator.base.run_states import RunState
from orchestrator.registry import Registry
from orchestrator.registry.merging import merge_registry
from orchestrator.registry.recorded_names import RecordedNames
from orchestrator.registry.tables import ALL_RUNS, LINEAGE
from tests.orchestrator.registry.samples import everything, fill, fill_every_table, model_result, new_run


def claim(registry: Registry, run_id: str) -> bool:
    """Claim one run, as a garbage collection does."""
    with registry.trash.claiming() as claim_one:
        return claim_one(run_id)


def test_a_run_comes_back_with_all_that_was_recorded_of_it(registry: Registry) -> None:
    """On SQLite and on PostgreSQL, beside another run, which nothing happens to."""
    fill(registry, "b" * 12, weights="b" * 64)
    run_id = fill_every_table(registry)
    before = everything(registry)
    assert registry.trash.put(run_id, 4711)
    assert registry.run_table().values("id")
    assert run_id not in registry.run_table().values("id")
    assert registry.models.of_run(run_id) == []
    removed = registry.trash.find(run_id[:4])
    assert (removed.num_trials, removed.num_bytes, removed.storage_path) == (2, 4711, f"/srv/lab/runs/{run_id}")
    registry.trash.restore(run_id)
    assert everything(registry) == before


def test_lineage_names_a_restored_run_again_and_keeps_its_own_names(registry: Registry) -> None:
    run_id = fill_every_table(registry)
    registry.trash.put(run_id, 0)
    with registry._database.connection(writing=True) as connection:
        connection.execute(update(LINEAGE).values(child_name="later"))
    registry.trash.restore(run_id)
    with registry._database.connection(writing=False) as connection:
        rows = connection.execute(select(LINEAGE.c.run_id, LINEAGE.c.child_name)).all()
    assert {tuple(row) for row in rows} == {(run_id, "later")}


def test_a_run_that_has_not_ended_is_not_thrown_away(registry: Registry) -> None:
    run_id = fill(registry, ends=False)
    assert not registry.trash.put(run_id, 0)
    assert not registry.trash.put("nobody", 0)
    assert registry.trash.records() == []
    assert registry.run(run_id).id == run_id


def test_a_removed_run_takes_part_in_nothing(registry: Registry, tmp_path: Path) -> None:
    run_id = fill_every_table(registry)
    pipeline = new_run(registry, kind="pipeline", tags=["all"], spec={"optimizer": {"learning_rate": 1.0}})
    registry.annotations.tag(run_id, [f"pipeline:{pipeline}"], reserved=True)
    alias, trial = f"{registry.models.of_run(run_id)[0].name}@production", registry.trials.table(run_id).values("id")[0]
    assert not registry.trash.put(trial, 0), "a trial is removed with its sweep alone"
    with pytest.raises(InputError, match="say which"):
        registry.run_table("params.learning_rate = 1")
    registry.trash.put(run_id, 0)
    with pytest.raises(NotFoundError):
        registry.lifecycle.start_attempt(run_id)
    assert registry.annotations.untag(pipeline, ["all"]) == ["all"]
    assert registry.run_table("params.learning_rate = 1").values("id") == [pipeline]
    with registry._database.connection(writing=False) as connection:
        assert alias not in dict(RecordedNames.of(connection).models())
    fill(registry, "b" * 12)  # which makes the same model of the same data
    assert {edge.run_id for edge in edges(registry)} == {"b" * 12}
    with Registry(str(tmp_path / "there.sqlite")) as there:
        assert "conflict" not in {one.change for one in merge_registry(there._database, registry.place)}


def edges(registry: Registry) -> list[Any]:
    with registry._database.connection(writing=False) as connection:
        return list(connection.execute(select(LINEAGE).where(LINEAGE.c.role != "teacher")))


def test_what_is_not_in_the_trash_is_told(registry: Registry) -> None:
    with pytest.raises(NotFoundError, match=r"'zzz' is no run in the trash; there are: none"):
        registry.trash.find("zzz")
    registry.trash.put(fill(registry), 0)
    with pytest.raises(NotFoundError, match=r"there are: aaaaaaaaaaaa \("):
        registry.trash.find("")


def test_a_removed_run_is_found_by_its_name_where_that_is_its_alone(registry: Registry) -> None:
    ids = [new_run(registry, name="spring") for _ in range(2)]
    with registry._database.connection(writing=True) as connection:
        connection.execute(update(ALL_RUNS).values(state=RunState.COMPLETED))
    assert registry.trash.put(ids[0], 0)
    assert registry.trash.find("spring").run_id == ids[0]
    assert registry.trash.put(ids[1], 0)
    with pytest.raises(NotFoundError, match="spring"):
        registry.trash.find("spring")


def test_the_id_of_a_removed_run_is_not_given_again(registry: Registry) -> None:
    run_id = fill(registry)
    registry.trash.put(run_id, 0)
    with pytest.raises(InputError, match=f"run {run_id} was removed; to bring it back: orchestrator runs restore"):
        new_run(registry, run_id=run_id)


@pytest.mark.heavy
def test_a_model_comes_back_under_its_number_which_no_other_has_got_meanwhile(tmp_path: Path) -> None:
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        run_id = fill(registry)
        name = registry.models.of_run(run_id)[0].name
        registry.trash.put(run_id, 0)
        assert registry.models.register(name, model_result("9" * 64)) == 2
        registry.trash.restore(run_id)
        assert [model.label for model in registry.models.of_run(run_id)] == [f"{name}@1"]


def test_what_was_removed_for_good_is_gone(registry: Registry) -> None:
    run_id = fill(registry)
    registry.trash.put(run_id, 0)
    registry.lifecycle.remove(run_id)
    with pytest.raises(NotFoundError):
        registry.trash.restore(run_id)


def test_a_run_whose_deletion_has_begun_is_not_restored(registry: Registry) -> None:
    run_id = fill(registry)
    registry.trash.put(run_id, 0)
    assert claim(registry, run_id)
    assert claim(registry, run_id), "a collection that broke off is finished by the next one"
    assert registry.trash.find(run_id).claimed_at is not None
    with pytest.raises(InputError, match="has deleted its files, or does so, since"):
        registry.trash.restore(run_id)
    assert run_id not in registry.run_table().values("id")


def test_a_run_that_is_back_is_not_claimed(registry: Registry) -> None:
    run_id = fill(registry)
    registry.trash.put(run_id, 0)
    registry.trash.restore(run_id)
    assert not claim(registry, run_id)
    registry.trash.put(run_id, 0)
    assert claim(registry, run_id)
