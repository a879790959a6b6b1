"""Endings of completed runs: lines that tell a result, and differences of groups beside the noise of seeds.

Alone: pytest tests/orchestrator/kinds/test_summaries.py
"""

import dataclasses
from collections.abc import Mapping

import pytest
from sqlalchemy import update

from orchestrator.base.results import MetricEvent, TrialResult
from orchestrator.base.run_states import RunState
from orchestrator.kinds.pretrain import PretrainKind
from orchestrator.kinds.sweep import SweepKind
from orchestrator.registry.recorder import Recorder
from orchestrator.registry.records import RunRecord
from orchestrator.registry.tables import ALL_RUNS
from tests.orchestrator.small_specs import SWEEP


def sweep_of(
    recorder: Recorder,
    scores: Mapping[tuple[str, float, int], float],
) -> list[str]:
    """Lines on a sweep with these scores by start, learning rate and seed."""
    run = recorder.start({**SWEEP, "name": "own sweep", "task": {"id": "own"}}, "f", metric="f1")
    trials = [
        TrialResult(
            str(number),
            number,
            {"init_from": start, "learning_rate": rate, "seed": seed},
            RunState.COMPLETED,
            seed,
            metrics={"f1": score, "baseline.f1": 0.25},
        )
        for number, ((start, rate, seed), score) in enumerate(scores.items())
    ]
    recorder.registry.trials.set_metric(run.id, "own", "f1")
    recorder.registry.trials.record(run.id, trials)
    return list(SweepKind().summary(took(recorder.registry.run(run.id)), recorder.registry))


def took(run: RunRecord) -> RunRecord:
    return dataclasses.replace(run, seconds=75.0)


def test_a_sweep_ends_with_its_groups_its_best_trial_and_what_it_gained(recorder: Recorder) -> None:
    means = {("minilm", 1e-3): 0.8, ("minilm", 1e-5): 0.7, ("random", 1e-3): 0.4}
    scores = {(*group, seed): mean + seed / 100 for group, mean in means.items() for seed in (0, 1, 2)}
    lines = sweep_of(recorder, scores)
    assert "0.8200" in lines[0]
    assert [line.split() for line in lines[2:5]] == [
        ["minilm", "0.001", "0.8100", "0.0100", "3"],
        ["minilm", "1e-05", "0.7100", "0.0100", "3"],
        ["random", "0.001", "0.4100", "0.0100", "3"],
    ]
    assert lines[5].startswith("best: trial 2 ")
    gains = ["+0.5600 ± 0.0141", "+0.4000 ± 0.0200", "+0.1000 ± 0.0200"]
    assert [gain in line for gain, line in zip(gains, lines[6:9], strict=True)] == [True] * 3
    assert [("pooled" in line, "compare" in line) for line in lines[9:]] == [(True, True)]


def test_trials_of_other_code_are_a_group_of_their_own(recorder: Recorder) -> None:
    sweep_of(recorder, {("minilm", 1e-3, seed): 0.8 + seed / 10 for seed in (0, 1)})
    (sweep,) = recorder.registry.find_records("kind = 'sweep'")
    for number, code in enumerate(("0.1.0", "0.2.0")):
        with recorder.registry._database.connection(writing=True) as connection:
            connection.execute(update(ALL_RUNS).where(ALL_RUNS.c.number == number).values(code_version=code))
    lines = list(SweepKind().summary(took(sweep), recorder.registry))
    assert lines[1].split() == ["version", "of", "the", "code", "mean", "f1", "sd", "seeds"]
    assert [line.split()[1:] for line in lines[2:4]] == [["0.9000", "–", "1"], ["0.8000", "–", "1"]]


def test_a_first_group_without_the_best_trial_is_told_with_the_reason(recorder: Recorder) -> None:
    steady = {("minilm", 1e-3, seed): 0.82 + seed / 1000 for seed in (0, 1, 2)}
    lucky = {("minilm", 1e-4, seed): score for seed, score in enumerate((0.7, 0.8, 0.95))}
    lines = sweep_of(recorder, steady | lucky)
    assert lines[4].startswith("best: trial 5 ")
    assert lines[5].startswith("first group: learning_rate 0.001")


def test_with_one_seed_the_noise_is_not_known(recorder: Recorder) -> None:
    lines = sweep_of(recorder, {("minilm", 1e-3, 0): 0.8, ("random", 1e-3, 0): 0.9})
    assert "random weights did best" in lines
    assert lines[-1].endswith("seeds=[0,1,2]")


def test_equal_groups_stand_as_on_the_leaderboard_that_of_the_best_trial_first(recorder: Recorder) -> None:
    rates = {"0.001": 1e-3, "0.0001": 1e-4, "1e-05": 1e-5, "1e-06": 1e-6}
    lines = sweep_of(recorder, {("minilm", rate, 0): 0.8 for rate in rates.values()})
    shown = [line.split()[0] for line in lines[2:6]]
    assert shown[0] == "0.001"
    assert lines[6] == "best: trial 0 (learning_rate 0.001, seed 0), f1 0.8000"
    with recorder.registry._database.connection(writing=True) as connection:
        connection.execute(update(ALL_RUNS).where(ALL_RUNS.c.number == 0).values(model_folder="model"))
    ranked = [row["run"] for row in recorder.registry.leaderboard().records]
    (sweep,) = recorder.registry.find_records("kind = 'sweep'")
    trials = recorder.registry.trials.table(sweep.id).records
    values = {row["id"]: row["params.learning_rate"] for row in trials}
    assert [values[run_id] for run_id in ranked] == [rates[text] for text in shown]


def test_a_sweep_of_one_trial_has_no_table(recorder: Recorder) -> None:
    assert len(sweep_of(recorder, {("minilm", 1e-3, 0): 0.8})) == 3


def test_no_line_of_the_table_is_wider_than_a_terminal(recorder: Recorder) -> None:
    folders = [f"/home/somebody/laboratory/storage/runs/{name * 12}/model" for name in "ab"]
    lines = sweep_of(recorder, {(folder, rate, 0): 0.5 for folder in folders for rate in (1e-3, 1e-4)})
    assert max(map(len, lines[:5])) <= 80


def test_a_pretraining_ends_with_its_speed_and_its_held_out_losses(recorder: Recorder) -> None:
    run = recorder.start({"kind": "pretrain", "name": "small"}, "f")
    for step, loss in ((50, 9.0), (100, 7.5)):
        events = [MetricEvent(step, "train", {"tokens_per_s": 10.0 * step})]
        recorder.record_events(run.id, [*events, MetricEvent(step, "validation", {"mlm_loss": loss})])
    (line,) = PretrainKind().summary(took(recorder.registry.run(run.id)), recorder.registry)
    assert "750 tokens/s" in line
    assert line.endswith("held out mlm 7.500")


def test_a_group_of_one_seed_has_the_noise_of_the_others(recorder: Recorder) -> None:
    lines = sweep_of(recorder, {("minilm", 1e-3, 0): 0.8, ("random", 1e-3, 0): 0.4, ("random", 1e-3, 1): 0.44})
    assert lines[-2].startswith("beside random weights (0.4200): +0.3800 ± 0.4402 (95 %), not more than seed noise")


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ([0.9, 0.91, 0.92], [0.5, 0.51, 0.52], "+0.4000 ± 0.0227 (95 %), more than seed noise"),
        ([0.5, 0.7], [0.4, 0.6], "+0.1000 ± 0.6085 (95 %), not more than seed noise"),
        ([0.7] * 3, [0.5] * 3, "+0.2000; seed noise not known"),
    ],
)
def test_a_difference_is_told_beside_the_noise(
    recorder: Recorder, first: list[float], second: list[float], said: str
) -> None:
    groups = {1e-3: first, 1e-4: second}
    scores = {("minilm", rate, seed): score for rate, group in groups.items() for seed, score in enumerate(group)}
    (told,) = [line for line in sweep_of(recorder, scores) if line.startswith("beside the next group")]
    assert told.endswith(said)
