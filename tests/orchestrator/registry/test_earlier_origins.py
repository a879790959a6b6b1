"""Scores on data that ancestors had used. Alone: pytest tests/orchestrator/registry/test_earlier_origins.py"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from orchestrator.base.results import DatasetResult, FileCount, ModelResult
from orchestrator.base.run_states import RunState
from orchestrator.registry import Registry
from orchestrator.registry.merging import merge_registry
from orchestrator.registry.model_origins import NAME_PATHS
from orchestrator.registry.parameters import START
from orchestrator.specs import SPEC_KINDS, spec_class
from orchestrator.specs.fields import Section
from orchestrator.specs.references import NAME_FIELDS, Product
from tests.orchestrator.registry.group_samples import evaluated, new_sweep, scored
from tests.orchestrator.registry.samples import model_result, new_run

REFUSED = "the model was made of one that was trained on the test data"


def model_of(registry: Registry, name: str, *, starts_from: str = "random", weights: str = "", **data: str) -> str:
    """A sweep of one trial on these data whose model is registered; the name of the model."""
    sweep = new_sweep(registry)
    registry.trials.set_data(sweep, data)
    model = model_result(f"{weights or name:-<64}")
    registry.trials.record(sweep, [scored("k", 0.8, parameters={"init_from": starts_from}, model=model)])
    finish_with(registry, sweep, model, name)
    return f"{name}@1"


def finish_with(registry: Registry, sweep: str, model: ModelResult, name: str) -> None:
    """End a sweep that kept a model, and register it."""
    registry.models.register(name, model, sweep)
    registry.lifecycle.finish(sweep, RunState.COMPLETED, model_folder=model.folder)


def evaluation_of(registry: Registry, name: str, test: str, **file: Any) -> str:
    return evaluated(registry, "test", test, 0.9, f"{name}@1", digest=f"{name:-<64}"[:16], **file)


def only_row(registry: Registry, kind: str = "evaluate") -> dict[str, Any]:
    (row,) = (row for row in registry.leaderboard().records if row["kind"] == kind)
    return row


@pytest.mark.parametrize("num_between", [0, 1, 3])
def test_a_model_is_scored_on_data_that_its_start_model_was_trained_on_however_far_back(
    registry: Registry, num_between: int
) -> None:
    start = model_of(registry, "first", train="the test file", validation="v0")
    for number in range(num_between):
        start = model_of(registry, f"between{number}", starts_from=start, train=f"x{number}", validation="v")
    model_of(registry, "last", starts_from=start, train="x", validation="v")
    run = evaluation_of(registry, "last", "the test file")
    row = only_row(registry)
    assert (row["mean"], row["origin"], row["notes"]) == (None, "trained earlier", f"score refused: {REFUSED}")
    assert registry.test_refusals([run]) == {run: REFUSED}
    apart = evaluation_of(registry, "last", "other")
    assert registry.test_refusals([run, apart]) == {run: REFUSED}


def test_the_model_of_a_sweep_over_start_models_is_made_of_that_of_the_trial_that_was_kept(registry: Registry) -> None:
    on_test = model_of(registry, "on_test", train="t", validation="v")
    clean = model_of(registry, "clean", train="c", validation="v")
    for kept, start in (("bad", on_test), ("good", clean)):
        sweep = new_sweep(registry)
        registry.trials.set_data(sweep, {"train": "x", "validation": "v"})
        model = model_result(f"{kept:-<64}")
        trials = [
            scored(each, 0.8, number=number, parameters={"init_from": each}, model=model if each == start else None)
            for number, each in enumerate((on_test, clean))
        ]
        registry.trials.record(sweep, trials)
        finish_with(registry, sweep, model, kept)
    bad, good = (evaluation_of(registry, kept, "t") for kept in ("bad", "good"))
    assert registry.test_refusals([bad, good]) == {bad: REFUSED}


@pytest.mark.parametrize("tainted", ["here", "there"])
def test_a_name_from_another_registry_means_the_weights_that_it_meant_there(
    registry: Registry, tmp_path: Path, tainted: str
) -> None:
    """There `start@1` is what is `start@2` here."""
    with Registry(str(tmp_path / "there.sqlite")) as there:
        for place, own in (("here", registry), ("there", there)):
            train = "t" if place == tainted else "x"
            model_of(own, "start", train=train, validation="v", weights=place)
        model_of(there, "tuned", starts_from="start@1", train="x", validation="v")
        assert [*merge_registry(registry._database, there.place)]
    assert sorted(row.version for row in registry.models.table().frame().itertuples() if row.name == "start") == [1, 2]
    run = evaluation_of(registry, "tuned", "t")
    assert registry.test_refusals([run]) == ({run: REFUSED} if tainted == "there" else {})


def test_a_pretraining_on_the_file_of_the_test_data_is_told_and_refuses_nothing(registry: Registry) -> None:
    """Its text was read, its labels were not."""
    pretraining = new_run(registry)
    file = FileCount("a.tsv", 10, 1, digest=f"{'f' * 16:0<64}")
    registry.datasets.record(pretraining, DatasetResult("c", "corpus", "fingerprint", "p", {}, (file,)))
    registry.models.register("base", model_result("b" * 64), pretraining)
    model_of(registry, "tuned", starts_from="base@1", train="x", validation="v")
    run = evaluation_of(registry, "tuned", "t", file="f" * 16)
    row = only_row(registry)
    assert (row["mean"], row["origin"]) == (0.9, "same file")
    assert "its model, or one that it was made of, was trained or chosen on the same file" in row["notes"]
    assert registry.test_refusals([run]) == {}


@pytest.mark.parametrize(
    "path",
    ["/storage/runs/{}/snapshots/step-10", "/moved/runs/{}/model/", "runs/{}/model", "s3://bucket/runs/{}/model"],
)
def test_a_path_in_the_folder_of_a_run_leads_to_what_the_run_began_with(registry: Registry, path: str) -> None:
    """However it was typed, wherever the storage lies now, and whether or not the run has ended."""
    start = model_of(registry, "first", train="t", validation="v")
    pretraining = new_run(registry, spec={"kind": "pretrain", "init_from": start})
    model_of(registry, "tuned", starts_from=path.format(pretraining), train="x", validation="w")
    run = evaluation_of(registry, "tuned", "t")
    assert registry.test_refusals([run]) == {run: REFUSED}


def test_a_cycle_of_start_models_ends(registry: Registry) -> None:
    """No pair of runs can be so; a registry whose folders were used again can."""
    for name, start in (("a", "storage/" + f"{'b':-<64}"), ("b", "storage/" + f"{'a':-<64}")):
        model_of(registry, name, starts_from=start, train=name, validation="v")
    assert registry.group(evaluation_of(registry, "a", "b")).origin == "trained earlier"


def name_paths(section: type[Section], beginning: str = "") -> Iterator[str]:
    """Paths of the fields of a spec, and of the sections in it, that name models."""
    for name, field in section.model_fields.items():
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, Section):
                yield from name_paths(kind, f"{beginning}{name}.")
            elif kind is str and NAME_FIELDS.get(name, Product.TOKENIZER) is not Product.TOKENIZER:
                yield beginning + name


def test_every_field_of_a_spec_that_names_a_model_leads_back() -> None:
    found = {path for kind in SPEC_KINDS if kind != "pipeline" for path in name_paths(spec_class(kind))}
    assert found | {START} == set(NAME_PATHS)
