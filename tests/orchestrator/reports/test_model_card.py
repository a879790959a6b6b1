"""Model cards: what they say of seeds. Alone: pytest tests/orchestrator/reports/test_model_card.py"""

from collections.abc import Sequence

import pytest
from sqlalchemy import update

from orchestrator.registry import Registry
from orchestrator.registry.tables import ALL_RUNS
from orchestrator.reports.model_export import write_card
from tests.orchestrator.registry.samples import model_result, new_run, trial_result


def sweep_of(registry: Registry, scores: Sequence[float], *, code: str | None = None, first_seed: int = 0) -> str:
    """Record a sweep of one recipe, a trial for each score, and return its id."""
    spec = {"kind": "sweep", "recipe": {"learning_rate": 1e-4}}
    sweep = new_run(registry, kind="sweep", spec=spec, task="sst2", metric="accuracy")
    trials = [
        trial_result(f"k{seed}", seed=seed, metrics={"accuracy": score}, model=model_result(f"{sweep}{seed}"))
        for seed, score in enumerate(scores, start=first_seed)
    ]
    registry.trials.record(sweep, trials)
    with registry._database.connection(writing=True) as connection:
        connection.execute(update(ALL_RUNS).where(ALL_RUNS.c.parent_id == sweep).values(code_version=code))
    return sweep


def seeds_line(registry: Registry, sweep: str, seed: int = 0) -> str:
    """Lines of the card of a trial's model that tell of the seeds."""
    registry.models.register("m", model_result(f"{sweep}{seed}"), sweep)
    (line,) = [line for line in write_card("m", registry).splitlines() if "seed" in line and not line.startswith("|")]
    return line


def test_the_same_seed_again_is_no_new_seed(registry: Registry) -> None:
    sweeps = [sweep_of(registry, [0.8]) for _ in range(3)]
    assert seeds_line(registry, sweeps[0]).startswith("How far accuracy would differ with another seed is not known")


def test_seeds_of_other_sweeps_count_and_those_of_other_code_do_not(registry: Registry) -> None:
    own = sweep_of(registry, [0.7, 0.8])
    sweep_of(registry, [0.9], first_seed=2)
    sweep_of(registry, [0.1, 0.2], code="other", first_seed=3)
    assert seeds_line(registry, own).startswith("Over 3 seeds of this recipe accuracy has the mean 0.8000")


@pytest.mark.parametrize("kind", ["pretrain", "distill"])
def test_a_model_of_a_run_without_trials_says_what_is_known(registry: Registry, kind: str) -> None:
    run = new_run(registry, kind=kind, spec={"kind": kind}, task=None, metric="accuracy")
    registry.models.register("m", model_result("e" * 64), run)
    assert "seeds of this recipe" not in write_card("m", registry)


def test_one_seed_has_the_noise_of_other_recipes(registry: Registry) -> None:
    own = sweep_of(registry, [0.5])
    sweep_of(registry, [0.3, 0.32], code="other", first_seed=3)
    line = seeds_line(registry, own)
    assert line.startswith("Over 1 seed of this recipe accuracy has the mean 0.5000, with the 95 % interval 0.3203 to ")
