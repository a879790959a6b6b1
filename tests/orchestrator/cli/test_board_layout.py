"""Layout of `leaderboard` and `groups list`: long recipes on narrow terminals, and pages.

pytest tests/orchestrator/cli/test_board_layout.py
"""

import json

import pytest

from orchestrator.registry import Registry
from orchestrator.results import TrialResult
from orchestrator.run_states import RunState
from orchestrator.settings import Settings
from tests.orchestrator.cli.laboratory import Command


@pytest.fixture
def long_recipes(home: object) -> None:
    """Two tasks with two groups each, whose recipes differ in more than a line of a terminal can hold."""
    with Registry(Settings.from_options().registry) as registry:
        for task, rate in (("mrpc", 1e-5), ("mrpc", 2e-5), ("sst2", 1e-5), ("sst2", 2e-5)):
            recipe = {f"a_setting_{number}": number + 1e5 * rate for number in range(6)}
            recipe |= {"init_from": f"bert-small/pretraining-on-many-notes@{round(1e5 * rate)}"}
            spec = {"kind": "sweep", "task": {"id": task}, "recipe": recipe}
            sweep = registry.lifecycle.create(
                kind="sweep", name="s", fingerprint="f" * 64, spec=spec, task=task, metric="f1"
            )
            trials = [TrialResult(f"k{n}", n, {}, RunState.COMPLETED, n, metrics={"f1": rate + n / 9}) for n in (0, 1)]
            registry.trials.record(sweep, trials)


@pytest.mark.parametrize("words", [("leaderboard",), ("leaderboard", "sst2"), ("groups", "list")])
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
    assert len(recipes) == 6 * (2 if "sst2" in words else 4)


@pytest.mark.parametrize("page", [["--limit", "3"], ["--limit", "2", "--offset", "1"], ["--limit", "9"]])
@pytest.mark.heavy
def test_a_page_of_groups_is_that_part_of_all_of_them(command: Command, long_recipes: None, page: list[str]) -> None:
    every = json.loads(command("groups", "list", "-f", "json").out)
    first, limit = int(page[3]) if "--offset" in page else 0, int(page[1])
    assert json.loads(command("groups", "list", "-f", "json", *page).out) == every[first : first + limit]
