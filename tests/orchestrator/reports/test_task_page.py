"""The page of a task: groups by what their seeds show, apart for each score.

Alone: pytest tests/orchestrator/reports/test_task_page.py
"""

from pathlib import Path

from orchestrator.registry import Registry
from orchestrator.registry.groups.group_keys import group_label
from orchestrator.reports.blocks import Chart, Table, Words
from orchestrator.reports.task_page import same_in_all, shown_columns, task_page
from tests.orchestrator.reports.samples import add_sweep


def test_groups_stand_in_the_order_of_the_leaderboard_with_their_seeds(tmp_path: Path) -> None:
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        add_sweep(registry, tmp_path)
        page = task_page(registry, "own")
        board = registry.leaderboard_table("own").records
    (section,) = page.sections
    assert section.heading.startswith("accuracy on validation")
    chart, _, words, same, table = section.blocks
    assert isinstance(same, Words)
    assert isinstance(words, Words)
    assert words.text.startswith("Scores are on the validation data on which the best step of each trial was chosen")
    assert words.text.endswith("the first place was chosen on them, too: the best of 6 groups.")
    assert isinstance(chart, Chart)
    assert isinstance(table, Table)
    assert [row["group"] for row in table.rows] == [group_label(row["group"]) for row in board]
    assert len(chart.traces[0]["x"]) == 17  # of 18 trials one has failed
    assert list(chart.traces[1]["x"]) == [row["mean"] for row in board]


def test_what_is_the_same_in_all_groups_is_told_once_and_has_no_column() -> None:
    row = dict.fromkeys(("rank", "tie", "mean", "low", "high", "sd", "best", "test", "recipe", "model", "run"))
    row |= {"n": 1, "baseline": 0.0133, "init_from": "random", "size": "tiny", "notes": "one seed", "group": "a"}
    other = row | {"init_from": "wiki@1", "notes": "", "group": "b"}
    assert same_in_all([row, other]) == ["n", "baseline", "size"]
    assert shown_columns([row, other]) == ["init_from", "notes", "group"]
    assert same_in_all([row]) == [], "one group has nothing beside it"


def test_a_page_says_how_many_archived_runs_it_leaves_out(tmp_path: Path) -> None:
    with Registry(str(tmp_path / "registry.sqlite")) as registry:
        sweep = add_sweep(registry, tmp_path)
        registry.annotations.set_flag(sweep, "archived")
        page = task_page(registry, "own")
    assert page.subtitle == "0 groups of runs that differ only in their seed; 18 archived runs left out"
    assert page.sections == []
