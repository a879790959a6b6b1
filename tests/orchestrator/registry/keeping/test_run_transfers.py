"""Bringing runs of one registry into another: whole, again, and never over a run of its own.

pytest tests/orchestrator/registry/keeping/test_run_transfers.py
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

from orchestrator.errors import InputError, RegistryError
from orchestrator.registry import Registry
from orchestrator.registry.keeping.registry_copy import bring_up_to_date, copy_registry, keep_runs
from orchestrator.registry.keeping.run_transfers import is_same_record
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.results import CheckpointEvent, DatasetResult, FileCount, MetricEvent
from tests.orchestrator.registry.samples import everything, model_result, new_run, trial_result

ORIGIN = "head-1"


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Registry]:
    with Registry(str(tmp_path / "here.sqlite")) as opened:
        yield opened


def fill(registry: Registry, run_id: str = "aaaaaaaaaaaa") -> str:
    """A sweep of two trials with all that can be recorded of a run."""
    recorder = Recorder(registry, job_id=run_id)
    spec = {"kind": "sweep", "name": "first", "recipe": {"learning_rate": 0.1}, "tags": ["tried"]}
    recorder.start(spec, "f" * 64, metric="f1", storage_path=f"/srv/lab/runs/{run_id}", run_id=run_id)
    recorder.record_dataset(run_id, DatasetResult("corpus", "words", "e" * 64, "/srv/lab/corpora/e", {}, []))
    recorder.record_events(run_id, [MetricEvent(1, "train", {"loss": 2.5, "nan": float("nan")}, 0.1)])
    recorder.record_events(run_id, [CheckpointEvent(1, "/srv/lab/c", "c" * 64, 7)])
    recorder.record_trials(run_id, [trial_result("k0", metrics={"f1": 0.5}), trial_result("k1", number=1)])
    recorder.record_model(run_id, model_result())
    recorder.complete(run_id, RunOutcome(model_folder="/srv/lab/m"))
    return run_id


def trials_of(registry: Registry, run_id: str) -> list[str]:
    """Ids of a sweep's trials."""
    return sorted(str(trial_id) for trial_id in registry.trials.frame(run_id)["id"])


def without_ids_of_experiments(rows: dict[str, list[tuple[object, ...]]]) -> dict[str, list[tuple[object, ...]]]:
    """All rows of a registry, as they are in another that numbers its experiments otherwise."""
    cut = {"experiments": slice(1, None), "runs": slice(2, None)}
    made = {name: [row[cut.get(name, slice(None))] for row in each] for name, each in rows.items()}
    return {**made, "tags": [row for row in made["tags"] if not str(row[1]).startswith("pulled:")]}


def test_a_run_comes_with_all_that_is_recorded_of_it(registry: Registry, here: Registry) -> None:
    """From SQLite and from PostgreSQL."""
    new_run(here, name="of this machine")
    before = everything(here)
    run_id = fill(registry)
    assert here.transfers.bring(run_id, registry.transfers, ORIGIN).change == "new"
    there, now = without_ids_of_experiments(everything(registry)), without_ids_of_experiments(everything(here))
    own = without_ids_of_experiments(before)
    assert {name: [row for row in rows if row not in own[name]] for name, rows in now.items()} == there
    assert here.tags(run_id) == ["pulled:head-1", "tried"]
    assert here.transfers.digest(run_id) == registry.transfers.digest(run_id)


def test_what_has_not_changed_is_left_as_it_is(registry: Registry, here: Registry) -> None:
    run_id = fill(registry)
    here.transfers.bring(run_id, registry.transfers, ORIGIN)
    here.tag(run_id, "mine")
    before = everything(here)
    assert here.transfers.bring(run_id, registry.transfers, ORIGIN).change == "unchanged"
    assert everything(here) == before


def test_a_run_that_went_on_is_brought_up_to_date_and_keeps_its_tags_here(registry: Registry, here: Registry) -> None:
    run_id = new_run(registry, spec={"kind": "pretrain", "steps": 9})
    registry.lifecycle.start_attempt(run_id, host="a", pid=1)
    here.transfers.bring(run_id, registry.transfers, ORIGIN)
    here.tag(run_id, "mine")
    registry.lifecycle.start_attempt(run_id, host="b", pid=2, job_id=f"{run_id}-2")
    registry.metrics.record(run_id, [MetricEvent(7, "train", {"loss": 1.5})])
    assert here.transfers.bring(run_id, registry.transfers, ORIGIN).change == "updated"
    assert [(one.host, one.job_id) for one in here.attempts(run_id)] == [("a", None), ("b", f"{run_id}-2")]
    assert here.metrics.latest(run_id) == {"train.loss": 1.5}
    assert here.tags(run_id) == ["mine", "pulled:head-1"]


def test_lineage_comes_with_the_second_run_of_the_same_data_and_stays_when_it_is_pulled_again(
    registry: Registry, here: Registry
) -> None:
    """An edge that two runs share is kept once, and names the first of them."""
    for run_id, weights in (("aaaaaaaaaaaa", "a" * 64), ("bbbbbbbbbbbb", "b" * 64)):
        recorder = Recorder(registry, job_id=run_id)
        recorder.start({"kind": "pretrain", "name": run_id}, "f" * 64, run_id=run_id)
        data = DatasetResult("words", "corpus", "e" * 64, "/srv/e", {}, [FileCount("/srv/a.txt", 9, 1)])
        recorder.record_dataset(run_id, data)
        recorder.record_model(run_id, model_result(weights))
        recorder.complete(run_id, RunOutcome(model_folder=f"/srv/{run_id}"))
        registry.lineage.record_run(run_id)
    assert here.transfers.bring("bbbbbbbbbbbb", registry.transfers, ORIGIN).change == "new"
    registry.annotations.note("bbbbbbbbbbbb", "looks good")
    for change in ("updated", "unchanged"):
        edges = here.lineage.parents(["b" * 64, "e" * 64])
        assert {(edge.parent.name, edge.run_id) for edge in edges} == {
            ("words", "bbbbbbbbbbbb"), ("/srv/a.txt", "bbbbbbbbbbbb")
        }  # fmt: skip
        assert here.transfers.bring("bbbbbbbbbbbb", registry.transfers, ORIGIN).change == change


def test_tags_that_are_given_there_come_later_and_those_of_trials_stay(registry: Registry, here: Registry) -> None:
    run_id = fill(registry)
    here.transfers.bring(run_id, registry.transfers, ORIGIN)
    there_before, trial_id = registry.transfers.digest(run_id), trials_of(registry, run_id)[0]
    here.tag(trial_id, "looked at")
    registry.tag(trial_id, "odd")
    assert is_same_record(registry.transfers.digest(run_id), there_before)
    assert registry.transfers.digest(run_id) != there_before
    assert here.transfers.bring(run_id, registry.transfers, ORIGIN).change == "updated"
    assert here.tags(trial_id) == ["looked at", "odd", "tried"]  # the last one is its sweep's
    assert here.tags(run_id) == ["pulled:head-1", "tried"]


def test_a_run_of_ones_own_is_never_replaced(registry: Registry, here: Registry) -> None:
    fill(registry)
    new_run(here, run_id="aaaaaaaaaaaa", kind="pretrain", name="mine")
    before = everything(here)
    told = r"run a{12} stays as it is: here it is pretrain mine of .*, not pulled .* at head-1 it is sweep first"
    with pytest.raises(InputError, match=told):
        here.transfers.bring("aaaaaaaaaaaa", registry.transfers, ORIGIN)
    assert everything(here) == before


def test_a_run_of_ones_own_that_is_the_same_there_stays(registry: Registry, here: Registry) -> None:
    run_id = fill(registry)
    here.transfers.bring(run_id, registry.transfers, ORIGIN)
    with here._database.session(writing=True) as session:
        session.connection().exec_driver_sql("DELETE FROM tags WHERE tag LIKE 'pulled:%'")
    assert here.transfers.bring(run_id, registry.transfers, ORIGIN).change == "unchanged"
    assert here.tags(run_id) == ["tried"]


def test_a_pulled_run_is_not_replaced_by_another_of_its_id(registry: Registry, here: Registry, tmp_path: Path) -> None:
    here.transfers.bring(fill(registry), registry.transfers, ORIGIN)
    with Registry(str(tmp_path / "other.sqlite")) as other:
        new_run(other, run_id="aaaaaaaaaaaa", name="else")
        with pytest.raises(InputError, match=r"here it is sweep first .* at head-2 it is pretrain else"):
            here.transfers.bring("aaaaaaaaaaaa", other.transfers, "head-2")


def test_a_transfer_that_breaks_off_leaves_nothing(registry: Registry, here: Registry) -> None:
    run_id = fill(registry)
    here.open()
    before = everything(here)

    def break_off(*arguments: object) -> None:
        if "INSERT INTO checkpoints" in str(arguments[2]):
            raise KeyboardInterrupt

    event.listen(Engine, "before_cursor_execute", break_off)
    try:
        with pytest.raises(KeyboardInterrupt):
            here.transfers.bring(run_id, registry.transfers, ORIGIN)
    finally:
        event.remove(Engine, "before_cursor_execute", break_off)
    assert everything(here) == before


def test_a_version_that_other_weights_have_here_becomes_another_one(registry: Registry, here: Registry) -> None:
    run_id = fill(registry)
    here.models.register("first", model_result("b" * 64))
    assert here.transfers.bring(run_id, registry.transfers, ORIGIN).renamed == {"first@1": "first@2"}
    assert (here.models.get("first@2").digest, here.models.get("first@2").run_id) == ("d" * 64, run_id)
    assert here.transfers.bring(run_id, registry.transfers, ORIGIN).change == "unchanged"


def test_a_models_name_alone_means_one_of_this_registry_before_a_pulled_one(registry: Registry, here: Registry) -> None:
    run_id = fill(registry)
    here.transfers.bring(run_id, registry.transfers, ORIGIN)
    (pulled,) = here.models.of_run(run_id)
    assert here.models.get(pulled.name) == pulled
    own_run = new_run(here)
    older = replace(model_result(), digest="0" * 64, folder="/home/me/model")
    for digest in ("0" * 64, "1" * 64):
        here.models.register(pulled.name, replace(older, digest=digest), own_run)
    assert here.models.get(pulled.name).run_id == own_run
    assert here.models.get(pulled.name).version == pulled.version + 2
    assert here.models.get(pulled.label) == pulled


def test_a_copy_holds_all_rows_and_the_registry_is_only_read(registry: Registry, location: str, tmp_path: Path) -> None:
    """While another connection writes: its open transaction is not in the copy."""
    fill(registry)
    rows = everything(registry)
    copy = tmp_path / "copy.sqlite"
    with registry._database.session(writing=True) as session:
        session.connection().exec_driver_sql("DELETE FROM metrics")
        copy_registry(location, copy)
        session.rollback()
    with Registry(str(copy)) as copied:
        assert without_ids_of_experiments(everything(copied)) == without_ids_of_experiments(rows)
    assert everything(registry) == rows


def test_a_copy_can_be_cut_down_to_some_runs(registry: Registry, location: str, tmp_path: Path) -> None:
    run_id = fill(registry)
    secret = new_run(registry, name="canary")
    registry.models.register("canary", model_result("b" * 64), secret)
    copy = tmp_path / "copy.sqlite"
    copy_registry(location, copy)
    keep_runs(copy, [run_id])
    with Registry(str(copy)) as cut:
        assert cut.transfers.begun_since(None) == [run_id]
        assert cut.transfers.digest(run_id) == registry.transfers.digest(run_id)
    assert b"canary" not in copy.read_bytes()


def test_a_newer_registry_is_refused(tmp_path: Path) -> None:
    with Registry(str(tmp_path / "r.sqlite")) as registry:
        registry.open()
    with closing(sqlite3.connect(tmp_path / "r.sqlite")) as connection, connection:
        connection.execute("UPDATE registry_revision SET version_num = '9999'")
    with pytest.raises(RegistryError, match=r"r.sqlite is at revision 9999, newer than this version knows; upgrade"):
        copy_registry(str(tmp_path / "r.sqlite"), tmp_path / "copy.sqlite")
    assert not (tmp_path / "copy.sqlite").exists()
    with pytest.raises(RegistryError, match="The registry of head-1 is at revision 9999"):
        bring_up_to_date(tmp_path / "r.sqlite", "of head-1")


def test_a_registry_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match=r"There is no registry at .*none.sqlite"):
        copy_registry(str(tmp_path / "none.sqlite"), tmp_path / "copy.sqlite")
