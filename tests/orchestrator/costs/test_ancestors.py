"""Ancestors of runs, by the names in their specs, by token stores, and by the digests of what was made of what.

Alone: .venv/bin/pytest tests/orchestrator/costs/test_ancestors.py
"""

from typing import Any

from orchestrator.costs.ancestors import ancestors_of
from orchestrator.registry import Registry
from orchestrator.registry.lineage.lineage_edges import LineageEdge, LineageNode
from orchestrator.results import DatasetResult, ModelResult
from orchestrator.specs.loading import parse_spec, spec_values
from tests.orchestrator.registry.samples import new_run, trial_result
from tests.orchestrator.small_specs import DISTILL, PRETRAIN, STORE, SWEEP, TOKENIZER


def run_of(registry: Registry, values: dict[str, Any], **changes: Any) -> str:
    spec = spec_values(parse_spec({**values, **changes}))
    return new_run(registry, kind=spec["kind"], spec=spec)


def register(registry: Registry, name: str, run_id: str, digest: str) -> None:
    registry.models.register(name, ModelResult(f"/{name}", digest * 64, 1, "pretraining"), run_id)


def ancestors(registry: Registry, run_id: str) -> list[str]:
    return [run.id for run in ancestors_of(registry.run(run_id), registry)]


def test_names_lead_to_the_runs_that_made_them_and_theirs_in_turn(registry: Registry) -> None:
    words = run_of(registry, TOKENIZER)
    pretrained = run_of(registry, PRETRAIN, tokenizer=f"/storage/runs/{words}/tokenizer")
    register(registry, "small", pretrained, "a")
    teacher = run_of(registry, SWEEP, recipe={"init_from": "small@1"})
    register(registry, "teacher", teacher, "b")
    student = run_of(registry, DISTILL, teacher="teacher@1", recipe={"init_from": "small@1"})
    run_of(registry, TOKENIZER)
    assert ancestors(registry, student) == [words, pretrained, teacher]
    assert ancestors(registry, words) == []


def test_an_axis_of_models_and_a_trial_have_the_sweeps_ancestors(registry: Registry) -> None:
    made = [run_of(registry, PRETRAIN), run_of(registry, PRETRAIN)]
    for name, run_id in zip(("one", "two"), made, strict=True):
        register(registry, name, run_id, name[0])
    sweep = run_of(registry, SWEEP, space={"init_from": ["one@1", "two@1", "random"]})
    (trial,) = registry.trials.record(sweep, [trial_result()])
    assert ancestors(registry, sweep) == ancestors(registry, trial) == made


def test_a_token_store_counts_where_a_run_was_there_for_it_alone(registry: Registry) -> None:
    own, shared = ("e" * 64, "f" * 64)
    store = run_of(registry, STORE)
    registry.datasets.record(store, DatasetResult("corpus", "corpus", shared, "/shared", {}))
    first = run_of(registry, PRETRAIN)
    for digest in (own, shared):
        registry.datasets.record(first, DatasetResult("corpus", "corpus", digest, f"/{digest}", {}))
    second = run_of(registry, PRETRAIN)
    for digest in (own, shared):
        registry.datasets.record(second, DatasetResult("corpus", "corpus", digest, f"/{digest}", {}))
    assert ancestors(registry, second) == [store], "the first pretraining made its store beside its own work"


def test_recorded_edges_lead_where_no_name_does(registry: Registry) -> None:
    pretrained, tuned = run_of(registry, PRETRAIN), run_of(registry, SWEEP, recipe={"init_from": "/copied/elsewhere"})
    register(registry, "small", pretrained, "a")
    register(registry, "tuned", tuned, "b")
    model, base = LineageNode("b" * 64, "model", "tuned@1"), LineageNode("a" * 64, "model", "small@1")
    text = LineageNode("c" * 64, "file", "corpus.txt")
    registry.lineage.record([LineageEdge(model, base, "weights", tuned), LineageEdge(base, text, "text", pretrained)])
    assert ancestors(registry, tuned) == [pretrained]


def test_names_that_lead_nowhere_and_rings_end_the_walk(registry: Registry) -> None:
    lost = run_of(registry, SWEEP, recipe={"init_from": "/runs/0123456789ab/model"})
    assert ancestors(registry, lost) == []
    one = run_of(registry, SWEEP, recipe={"init_from": "two@1"})
    two = run_of(registry, SWEEP, recipe={"init_from": "one@1"})
    register(registry, "one", one, "a")
    register(registry, "two", two, "b")
    assert ancestors(registry, one) == [two]
