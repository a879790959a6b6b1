"""Commands `leaderboard` and `compare`. Alone: pytest tests/orchestrator/cli/test_ranking.py"""

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator.base.results import TrialResult
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.registry import Registry
from tests.orchestrator.cli.laboratory import Command
from tests.orchestrator.registry.samples import new_run


def record_group(
    recipe: dict[str, object], scores: Sequence[float], num_failed: int = 0, tags: Sequence[str] = ()
) -> str:
    """Record a sweep of one group, a seed for each score and for each trial that failed; return its id."""
    spec = {"kind": "sweep", "task": {"id": "mrpc"}, "recipe": recipe}
    trials = [
        TrialResult(f"k{seed}", seed, {}, RunState.COMPLETED, seed, metrics={"f1": score})
        for seed, score in enumerate(scores)
    ]
    trials += [TrialResult("k9", 9, {}, RunState.FAILED, 9, error="out of memory")] * num_failed
    with Registry(Settings.from_options().registry) as registry:
        sweep = new_run(registry, kind="sweep", spec=spec, task="mrpc", metric="f1", tags=tags)
        registry.trials.record(sweep, trials)
    return sweep


@pytest.fixture
def three_groups(home: object) -> list[str]:
    """Sweeps of a group each: five good seeds, a lucky one, and three poor ones of which one failed."""
    groups = {1e-5: (0.88, 0.885, 0.882, 0.879, 0.884), 2e-5: (0.92,), 3e-5: (0.7, 0.72)}
    recipe = {"size": "tiny", "seed": 0}
    return [record_group({**recipe, "learning_rate": rate}, groups[rate], int(rate == 3e-5)) for rate in groups]


def test_a_board_tells_its_doubts(command: Command, three_groups: list[str]) -> None:
    outcome = command("leaderboard", "mrpc")
    lines = outcome.out.splitlines()
    assert re.split(r"\s{2,}", lines[0].strip()) == [
        "#", "metric", "mean", "95 % of mean", "seeds", "recipe", "group"
    ]  # fmt: skip
    assert [line.split()[:3] for line in lines[1:]] == [
        ["1", "f1", "0.8820"], ["2", "≈", "f1"], ["3", "f1", "0.7100"]
    ]  # fmt: skip
    assert "2 of 3" in lines[3]
    assert "3: of 3 runs 1 failed" in outcome.err
    assert "≈ may be the best, too" in outcome.err
    assert "the first place was chosen on them, too: the best of 3 groups" in outcome.err
    by_mean = command("leaderboard", "mrpc", "--by", "mean")
    assert by_mean.out.splitlines()[1].split()[:3] == ["1", "f1", "0.9200"]


def test_groups_that_may_be_the_best_are_marked_and_noise_that_is_not_known_told(
    command: Command, home: object
) -> None:
    with Registry(Settings.from_options().registry) as registry:
        for task, scores in (("mrpc", [(0.8, 0.9), (0.86, 0.82)]), ("rte", [(0.8,), (0.9,)])):
            for rate, own in enumerate(scores):
                spec = {"kind": "sweep", "task": {"id": task}, "recipe": {"learning_rate": rate}}
                sweep = registry.lifecycle.create(
                    kind="sweep", name="s", fingerprint="f" * 64, spec=spec, task=task, metric="f1"
                )
                trials = [
                    TrialResult(f"k{n}", n, {}, RunState.COMPLETED, n, metrics={"f1": f1}) for n, f1 in enumerate(own)
                ]
                registry.trials.record(sweep, trials)
    outcome = command("leaderboard")
    assert [line.split()[:3] for line in outcome.out.splitlines()[1:]] == [
        ["mrpc", "1", "f1"], ["mrpc", "2", "≈"], ["rte", "1", "f1"], ["rte", "2", "f1"]
    ]  # fmt: skip
    assert "no group of rte has several seeds that differ" in outcome.err


def test_groups_are_listed_shown_and_compared_by_what_the_list_calls_them(
    command: Command, three_groups: list[str]
) -> None:
    listed = command("leaderboard", "mrpc", "--all").out.splitlines()
    labels = [line.split()[0] for line in listed[1:]]
    assert len(labels) == 3
    shown = command("leaderboard", "--group", labels[2])
    assert "of 3 runs 1 failed" in shown.out
    assert [line.split()[0] for line in shown.out.splitlines()[-3:]] == ["0", "1", "9"]
    compared = command("compare", labels[0], labels[2])
    assert compared.status == 0
    answer = compared.out.splitlines()[0]
    assert answer.startswith(
        f"{labels[0]} beside {labels[2]}: distinguishable: the first is better, difference 17.2 points"
    )
    assert "  recipe.learning_rate: 1e-05 → 3e-05" in compared.out.splitlines()


def test_a_board_and_a_comparison_are_there_for_a_program(command: Command, three_groups: list[str]) -> None:
    board = json.loads(command("leaderboard", "mrpc", "-f", "json", "--limit", "2").out)
    assert [(row["rank"], row["n"], row["failed"], row["may_be_best"]) for row in board] == [
        (1, 5, 0, True),
        (2, 1, 0, True),
    ]
    pairs = json.loads(command("compare", *three_groups, "-f", "json").out)
    rows = [pair["scores"] for pair in pairs]
    assert [row["distinguishable"] for row in rows] == [None, True, None], "one seed cannot be tested"
    assert rows[1]["differs_in"] == {"recipe.learning_rate": [1e-05, 3e-05]}


def test_a_comparison_tells_that_the_noise_of_the_whole_ranking_says_otherwise(command: Command, home: object) -> None:
    recipes = {1e-5: (0.80, 0.82), 3e-5: (0.86, 0.87), 1e-4: (0.70, 0.71), 3e-4: (0.60, 0.615)}
    first, second, *_ = (record_group({"learning_rate": rate}, scores) for rate, scores in recipes.items())
    (pair,) = json.loads(command("compare", first, second, "-f", "json").out)
    tests = {row["test"]: row["p"] for row in pair["scores"]["tests"]}
    assert (pair["scores"]["distinguishable"], tests["seed noise of the ranking"] < 0.05) == (False, True)
    assert "pooled over the whole ranking" in command("compare", first, second).err


def test_a_pipeline_is_compared_by_the_scores_of_its_last_stage(command: Command, home: object) -> None:
    with Registry(Settings.from_options().registry) as registry:
        pipelines = [new_run(registry, kind="pipeline", name=f"p{number}") for number in range(2)]
    sweeps = [
        record_group({"learning_rate": rate}, (rate, rate + 0.1), tags=[f"pipeline:{pipeline}"])
        for rate, pipeline in zip((0.2, 0.6), pipelines, strict=True)
    ]
    (both,) = json.loads(command("compare", *pipelines, "-f", "json").out)
    assert (both["scores"]["difference"], both["first"]["id"]) == (pytest.approx(-0.4), pipelines[0])
    (mixed,) = json.loads(command("compare", pipelines[0], sweeps[1], "-f", "json").out)
    assert (mixed["scores"]["difference"], mixed["first"]["id"]) == (pytest.approx(-0.4), sweeps[0])


def test_a_group_that_is_not_there_is_an_error_with_its_own_status(command: Command, three_groups: list[str]) -> None:
    outcome = command("leaderboard", "--group", "nothere")
    assert (outcome.status, outcome.out, "nothere" in outcome.err) == (3, "", True)
    assert command("leaderboard", "sst2", "--all").status == 3
    assert command("compare", three_groups[0]).status == 2


def test_a_comparison_is_written_whole_in_every_format(command: Command, three_groups: list[str]) -> None:
    first, _, third = three_groups
    assert command("compare", first, third, "-o", "both.txt").out == ""
    text = Path("both.txt").read_text()
    assert "distinguishable" in text
    assert "recipe.learning_rate" in text
    rows = list(csv.DictReader(command("compare", first, third, "-f", "csv").out.splitlines()))
    assert {row["section"] for row in rows} >= {"comparison", "spec"}
    label = command("leaderboard", "mrpc", "--all").out.splitlines()[1].split()[0]
    mixed = command("compare", label, third)
    assert (mixed.status, "recipe.learning_rate" in mixed.out or "learning_rate" in mixed.out) == (0, True)


def test_places_are_skipped_and_options_that_do_not_go_together_refused(
    command: Command, three_groups: list[str]
) -> None:
    (row,) = json.loads(command("leaderboard", "mrpc", "--offset", "2", "-f", "json").out)
    assert row["rank"] == 3
    record_group({"size": "tiny", "learning_rate": 4e-5}, (), num_failed=1)
    pages = [command("leaderboard", "mrpc", "--limit", "1", "--offset", str(place), "-f", "json") for place in range(4)]
    assert [[row["rank"] for row in json.loads(page.out)] for page in pages] == [[1], [2], [3], [None]]
    label = command("leaderboard", "mrpc", "--all").out.splitlines()[1].split()[0]
    assert command("leaderboard", "mrpc", "--group", label).status == 2


@pytest.fixture
def long_recipes(home: object) -> None:
    """Two groups whose recipes differ in more than a line of a terminal can hold."""
    for number in (1, 2):
        recipe: dict[str, object] = {f"a_setting_{place}": place + number for place in range(6)}
        recipe["init_from"] = f"bert-small/pretraining-on-many-notes@{number}"
        record_group(recipe, (number / 100, number / 100 + 1 / 9))


@pytest.mark.parametrize("words", [("leaderboard",), ("leaderboard", "--all")])
@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.heavy
def test_a_board_with_long_recipes_stays_a_table_with_all_of_them(
    command: Command, long_recipes: None, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], width: int
) -> None:
    monkeypatch.setattr("orchestrator.cli.output._terminal_width", lambda output: width)
    heading, *lines = command(*words).out.splitlines()
    assert {"mean", "seeds", "group"} <= set(heading.split())
    assert max(map(len, lines)) <= width
    recipes = [word for line in lines for word in line.split() if word.startswith("a_setting_")]
    assert len(recipes) == 6 * 2
