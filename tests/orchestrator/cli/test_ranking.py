"""Commands `leaderboard` and `groups`. Alone: pytest tests/orchestrator/cli/test_ranking.py"""

import json
import re

import pytest

from orchestrator.registry import Registry
from orchestrator.results import TrialResult
from orchestrator.run_states import RunState
from orchestrator.settings import Settings
from tests.orchestrator.cli.laboratory import Command, RecordedSweep


@pytest.fixture
def three_groups(home: object) -> list[str]:
    """Sweeps of a group each: five good seeds, a lucky one, and three poor ones of which one failed."""
    found = []
    with Registry(Settings.from_options().registry) as registry:
        for rate, scores in ((1e-5, (0.88, 0.885, 0.882, 0.879, 0.884)), (2e-5, (0.92,)), (3e-5, (0.7, 0.72))):
            spec = {
                "kind": "sweep",
                "task": {"id": "mrpc"},
                "recipe": {"size": "tiny", "learning_rate": rate, "seed": 0},
            }
            sweep = registry.lifecycle.create(
                kind="sweep", name="s", fingerprint="f" * 64, spec=spec, task="mrpc", metric="f1"
            )
            trials = [
                TrialResult(f"k{seed}", seed, {}, RunState.COMPLETED, seed, metrics={"f1": score})
                for seed, score in enumerate(scores)
            ]
            if rate == 3e-5:
                trials.append(TrialResult("k9", 9, {}, RunState.FAILED, 9, error="out of memory"))
            registry.trials.record(sweep, trials)
            found.append(sweep)
    return found


def test_one_lucky_seed_does_not_lead_and_the_doubts_are_told(command: Command, three_groups: list[str]) -> None:
    outcome = command("leaderboard", "mrpc")
    lines = outcome.out.splitlines()
    assert re.split(r"\s{2,}", lines[0].strip()) == [
        "#", "metric", "mean", "95 % of mean", "seeds", "recipe", "group"
    ]  # fmt: skip
    assert [line.split()[0] for line in lines[1:]] == ["1", "2", "3"]
    assert [line.split()[1:3] for line in lines[1:]] == [["f1", "0.8820"], ["f1", "0.7100"], ["f1", "0.9200"]]
    assert "2 of 3" in lines[2]
    assert "2: of 3 runs 1 failed" in outcome.err
    assert "3: one seed: noise not known" in outcome.err
    assert "the first place was chosen on them, too: the best of 3 groups" in outcome.err


def test_intervals_take_no_room_where_no_group_has_one(command: Command, three_groups: list[str]) -> None:
    command("runs", "archive", three_groups[0])
    command("runs", "archive", three_groups[2])
    heading = command("leaderboard", "mrpc").out.splitlines()[0]
    assert heading.split() == ["#", "metric", "mean", "seeds", "group"]


def test_archived_runs_are_not_ranked_and_it_says_so(command: Command, three_groups: list[str]) -> None:
    command("runs", "archive", three_groups[0])
    for words in (("leaderboard", "mrpc"), ("groups", "list", "mrpc")):
        outcome = command(*words)
        assert "0.882" not in outcome.out
        assert "5 archived runs not shown; --archived shows them" in outcome.err
        assert "0.882" in command(*words, "--archived").out
        command("runs", "archive", *three_groups[1:])
        outcome = command(*words)
        assert "every run that could be ranked is archived" in outcome.err
        assert "9 archived runs not shown" in outcome.err
        command("runs", "unarchive", *three_groups[1:])


def test_a_note_of_every_group_is_told_once(command: Command) -> None:
    with Registry(Settings.from_options().registry) as registry:
        for rate in (1e-5, 2e-5):
            spec = {"kind": "sweep", "task": {"id": "mrpc"}, "recipe": {"learning_rate": rate}}
            sweep = registry.lifecycle.create(
                kind="sweep", name="s", fingerprint="f" * 64, spec=spec, task="mrpc", metric="f1"
            )
            registry.trials.record(sweep, [TrialResult("k", 0, {}, RunState.COMPLETED, 0, metrics={"f1": rate})])
    lines = command("leaderboard", "mrpc").err.splitlines()
    assert [line for line in lines if "noise not known" in line] == ["all 2: one seed: noise not known"]


def test_a_note_names_the_ranking_of_its_place_where_a_task_has_several(command: Command) -> None:
    """Each ranking has its own first place."""
    with Registry(Settings.from_options().registry) as registry:
        for data, num_seeds in (("v1", 1), ("v2", 1), ("v3", 2)):
            spec = {"kind": "sweep", "task": {"id": "mrpc"}, "recipe": {"learning_rate": 1e-5}}
            sweep = registry.lifecycle.create(
                kind="sweep", name="s", fingerprint="f" * 64, spec=spec, task="mrpc", metric="f1"
            )
            registry.trials.set_data(sweep, {"validation": data})
            scores = enumerate((0.8, 0.9)[:num_seeds])
            trials = [
                TrialResult(f"{seed}", seed, {}, RunState.COMPLETED, seed, metrics={"f1": score})
                for seed, score in scores
            ]
            registry.trials.record(sweep, trials)
    lines = command("leaderboard", "mrpc").err.splitlines()
    assert [line for line in lines if "noise not known" in line] == ["1 (v2), 1 (v1): one seed: noise not known"]


def test_comparisons_are_parted_and_wrapped_for_a_terminal(
    command: Command, three_groups: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = command("groups", "compare", *three_groups).out
    blocks = [number for number, line in enumerate(plain.splitlines()) if " beside " in line]
    assert len(blocks) == 3
    assert all(plain.splitlines()[number - 1] == "" for number in blocks[1:])
    monkeypatch.setattr("orchestrator.cli.output._terminal_width", lambda output: 80)
    on_terminal = command("groups", "compare", *three_groups[::2]).out
    assert max(map(len, on_terminal.splitlines())) <= 80


def test_another_order_says_what_is_wrong_with_it(command: Command, three_groups: list[str]) -> None:
    outcome = command("leaderboard", "mrpc", "--by", "best")
    assert [line.split()[2] for line in outcome.out.splitlines()[1:]] == ["0.9200", "0.8820", "0.7100"]
    assert "best of n" in outcome.out.splitlines()[0]
    assert "the luckiest of n" in outcome.err
    assert "1: one seed: noise not known" in outcome.err


def test_a_row_has_everything_for_a_program(command: Command, three_groups: list[str]) -> None:
    rows = json.loads(command("leaderboard", "mrpc", "-f", "json").out)
    assert [(row["rank"], row["n"], row["failed"], row["tie"]) for row in rows] == [
        (1, 5, 0, None), (2, 2, 1, False), (3, 1, 0, None)
    ]  # fmt: skip
    assert rows[0]["low"] < rows[0]["mean"] < rows[0]["high"]
    assert rows[2]["notes"] == "one seed: noise not known"


def test_groups_are_listed_shown_and_compared_by_what_the_list_calls_them(
    command: Command, three_groups: list[str]
) -> None:
    listed = command("groups", "list", "mrpc").out.splitlines()
    labels = [line.split()[0] for line in listed[1:]]
    assert len(labels) == 3
    shown = command("groups", "show", labels[1])
    assert "of 3 runs 1 failed" in shown.out
    assert [line.split()[0] for line in shown.out.splitlines()[-3:]] == ["0", "1", "9"]
    compared = command("groups", "compare", labels[0], labels[1])
    assert compared.status == 0
    answer = compared.out.splitlines()[0]
    assert answer.startswith(
        f"{labels[0]} beside {labels[1]}: distinguishable: the first is better, difference 17.2 points"
    )
    assert ["learning_rate", "1e-05", "3e-05"] in [line.split() for line in compared.out.splitlines()]


def test_a_setting_is_shown_as_it_was_chosen(command: Command) -> None:
    with Registry(Settings.from_options().registry) as registry:
        for rate, epochs in ((0.00125, 2.5), (0.0000123, 4.0)):
            spec = {"kind": "sweep", "task": {"id": "mrpc"}, "recipe": {"learning_rate": rate, "epochs": epochs}}
            sweep = registry.lifecycle.create(
                kind="sweep", name="s", fingerprint="f" * 64, spec=spec, task="mrpc", metric="f1"
            )
            for seed in (0, 1):
                result = TrialResult(
                    f"k{seed}", seed, {}, RunState.COMPLETED, seed, metrics={"f1": 0.8 + seed * epochs / 99}
                )
                registry.trials.record(sweep, [result])
    labels = [line.split()[0] for line in command("groups", "list", "mrpc").out.splitlines()[1:]]
    rows = {tuple(line.split()) for line in command("groups", "compare", *labels).out.splitlines()}
    assert {row[1:] for row in rows if row and row[0] == "epochs"} <= {("2.5", "4"), ("4", "2.5")}
    assert {row[1:] for row in rows if row and row[0] == "learning_rate"} <= {
        ("0.00125", "1.23e-05"), ("1.23e-05", "0.00125")
    }  # fmt: skip
    assert any(row[:1] == ("learning_rate",) for row in rows)
    shown = [command("groups", "show", label).out.split() for label in labels]
    assert {words[words.index("recipe.learning_rate") + 1] for words in shown} == {"0.00125", "1.23e-05"}
    assert "epochs=4 learning_rate=1.23e-05" in command("leaderboard", "mrpc").out


def test_the_noise_of_sums_is_no_difference(command: Command) -> None:
    with Registry(Settings.from_options().registry) as registry:
        for rate, first in ((1e-5, 0.1 + 0.2), (2e-5, 0.3)):
            spec = {"kind": "sweep", "task": {"id": "mrpc"}, "recipe": {"learning_rate": rate}}
            sweep = registry.lifecycle.create(
                kind="sweep", name="s", fingerprint="f" * 64, spec=spec, task="mrpc", metric="f1"
            )
            for seed, score in enumerate((first, 0.31, 0.3)):
                registry.trials.record(
                    sweep, [TrialResult(f"k{seed}", seed, {}, RunState.COMPLETED, seed, metrics={"f1": score})]
                )
    labels = [line.split()[0] for line in command("groups", "list", "mrpc").out.splitlines()[1:]]
    out = command("groups", "compare", *labels).out
    assert "e-1" not in out
    assert [line.split()[4] for line in out.splitlines() if line.startswith("Welch, all seeds")] == ["0"]


def test_a_comparison_is_there_for_a_program(command: Command, three_groups: list[str]) -> None:
    rows = json.loads(command("groups", "compare", *three_groups, "-f", "json").out)
    assert [row["distinguishable"] for row in rows] == [None, True, None], "one seed cannot be tested"
    good_and_poor = rows[1]
    assert good_and_poor["num_comparisons"] == 1
    assert good_and_poor["tests"][0]["test"] == "Welch, all seeds"
    assert good_and_poor["tests"][0]["of"] == "f1"
    assert good_and_poor["differs_in"] == {"recipe.learning_rate": [1e-05, 3e-05]}


def test_a_group_that_is_not_there_is_an_error_with_its_own_status(command: Command, three_groups: list[str]) -> None:
    outcome = command("groups", "show", "nothere")
    assert (outcome.status, outcome.out) == (3, "")
    assert "No group's digest begins with 'nothere'" in outcome.err
    assert command("groups", "list", "sst2").status == 3
    assert command("groups", "compare", three_groups[0]).status == 2


def test_a_group_of_a_recorded_sweep_is_shown_as_json(command: Command, recorded_sweep: RecordedSweep) -> None:
    shown = json.loads(command("groups", "show", recorded_sweep.trial_ids[0], "-f", "json").out)
    assert [run["run"] for run in shown["runs"]] == [recorded_sweep.trial_ids[0]]
    assert shown["n"] == 1


def test_groups_of_an_empty_registry_say_how_to_begin(command: Command) -> None:
    outcome = command("groups", "list")
    assert (outcome.status, outcome.out) == (0, "")
    assert "no runs yet" in outcome.err


def test_a_board_of_several_tasks_keeps_the_digits_of_each_score(command: Command, three_groups: list[str]) -> None:
    """A perplexity of 50 has two decimals; a fraction beside it is told from others by its fourth."""
    with Registry(Settings.from_options().registry) as registry:
        spec = {"kind": "sweep", "task": {"id": "lm"}, "recipe": {"seed": 0}}
        sweep = registry.lifecycle.create(
            kind="sweep", name="lm", fingerprint="e" * 64, spec=spec, task="lm", metric="perplexity"
        )
        registry.trials.record(
            sweep, [TrialResult("k", 0, {}, RunState.COMPLETED, 0, metrics={"perplexity": 50.5, "accuracy": 0.1234})]
        )
    for words in (("leaderboard",), ("groups", "list")):
        out = command(*words).out
        assert "0.8820" in out
        assert "50.50" in out


def test_the_list_of_groups_has_what_tells_them_apart_and_how_many_seeds_have_a_score(
    command: Command, three_groups: list[str]
) -> None:
    with Registry(Settings.from_options().registry) as registry:
        spec = {"kind": "sweep", "task": {"id": "mrpc"}, "recipe": {"size": "mini", "learning_rate": 3e-5, "seed": 0}}
        sweep = registry.lifecycle.create(
            kind="sweep", name="s", fingerprint="e" * 64, spec=spec, task="mrpc", metric="f1"
        )
        registry.trials.record(sweep, [TrialResult("k", 0, {}, RunState.COMPLETED, 0, metrics={"f1": 0.75})])
    lines = command("groups", "list", "mrpc").out.splitlines()
    assert re.split(r"\s{2,}", lines[0].strip()) == [
        "group", "task", "kind", "metric", "seeds", "mean", "sd", "size", "recipe", "notes"
    ]  # fmt: skip
    (failed,) = [line for line in lines if "0.7100" in line]
    assert "2 of 3" in failed
    assert [line.split()[-1] for line in lines if " mini " in line] == ["known"]
