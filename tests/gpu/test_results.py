"""Files of results, stages that end early or fail, and goals. Run alone: pytest tests/gpu/test_results.py"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.gpu import goals
from benchmarks.gpu.results import NOT_REACHED, Report, Row, StageRecord, cell, table
from benchmarks.gpu.setting import Budget, Setting
from benchmarks.gpu.stages import STAGES, Stage, run_stage, run_stages
from tests.gpu.devices import PLENTY_S, small_setting


def three_rows(setting: Setting, budget: Budget, report: Report) -> Iterator[Row]:
    yield {"case": 1, "ok": True}
    yield {"case": 2, "ok": False}
    yield {"case": 3, "outcome": NOT_REACHED}


def run(measure: object, report: Report) -> bool:
    stage = Stage("a stage", 5, measure, "What it is.")  # type: ignore[arg-type]
    return run_stage(stage, small_setting("cpu"), Budget(5.5), report)


def test_rows_are_written_as_they_come(tmp_path: Path) -> None:
    report, seen = Report(tmp_path / "gpu_x", "the command"), []

    def look(*arguments: object) -> Iterator[Row]:
        for row in three_rows(*arguments):  # type: ignore[arg-type]
            yield row
            seen.append(len(json.loads(report.json_path.read_text())["stages"]["a stage"]["rows"]))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(look, report)
    assert seen == [1, 2, 3]
    assert "was interrupted" in report.markdown_path.read_text()


def test_a_stage_tells_when_it_begins_and_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not run(three_rows, Report(tmp_path / "gpu_x", ""))
    begins, ends = capsys.readouterr().out.splitlines()
    assert begins == "a stage: begins, 5 s"
    assert ends == "a stage: done, 0 s, 3 rows, 1 FAILED, 1 not reached"


def test_a_stage_that_fails_keeps_its_rows_and_says_why(tmp_path: Path) -> None:
    report = Report(tmp_path / "gpu_x", "")

    def fail(*_: object) -> Iterator[Row]:
        yield {"case": 1}
        raise RuntimeError("CUDA error: out of luck\nmore")

    assert not run(fail, report)
    assert report.stages["a stage"].rows == [{"case": 1}]
    assert report.stages["a stage"].ended == "failed: RuntimeError: CUDA error: out of luck"


def test_stages_of_an_earlier_run_are_kept_until_they_are_run_again(tmp_path: Path) -> None:
    first = Report(tmp_path / "gpu_x", "")
    first.stages = {"parity": StageRecord("P", [{"a": 1}]), "losses": StageRecord("L", [{"b": 1}])}
    first.write()
    second = Report.open(tmp_path / "gpu_x", "again")
    second.stages["losses"] = StageRecord("L", [{"b": 2}])
    assert second.rows("parity") == [{"a": 1}]
    assert second.rows("losses", b=1) == []
    assert second.rows("goals") == []


def one_row(setting: Setting, budget: Budget, report: Report) -> Iterator[Row]:
    yield {"time left": round(budget.left_s, 1), "ok": True}


def test_a_stage_that_was_completed_with_the_same_code_is_kept_by_a_second_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stages = [
        Stage("whole", 5, one_row, ""),
        Stage("cut short", 5, three_rows, ""),
        Stage("always", 5, one_row, "", is_kept=False),
    ]

    def run_all(made_with: str) -> list[str]:
        report = Report.open(tmp_path / "r", "", made_with)
        assert not run_stages(stages, small_setting("cpu"), Budget(15), report), "a check of three_rows failed"
        assert list(report.stages) == ["whole", "cut short", "always"]
        return [line.partition(":")[0] for line in capsys.readouterr().out.splitlines() if ": begins" in line]

    assert run_all("this code") == ["whole", "cut short", "always"]
    assert run_all("this code") == ["cut short", "always"]
    assert run_all("other code") == ["whole", "cut short", "always"]


def test_a_check_that_failed_stays_failed_where_its_stage_is_kept(tmp_path: Path) -> None:
    record = StageRecord("", [{"case": 1, "ok": False}], ended="done", made_with="this code")
    Report(tmp_path / "r", "", {"whole": record}).write()
    stages = [Stage("whole", 5, one_row, "")]
    assert not run_stages(stages, small_setting("cpu"), Budget(5), Report.open(tmp_path / "r", "", "this code"))


def test_a_stage_has_its_own_time_and_what_those_before_it_left(tmp_path: Path) -> None:
    report = Report(tmp_path / "r", "")
    stages = [Stage("first", 5, one_row, ""), Stage("second", 10, one_row, ""), Stage("last", 20, one_row, "")]
    assert run_stages(stages, small_setting("cpu"), Budget(50), report)
    left = [report.rows(stage.name)[0]["time left"] for stage in stages]
    assert left == pytest.approx([20, 30, 50], abs=1)
    assert run_stages(stages, small_setting("cpu"), Budget(12), report)
    left = [report.rows(stage.name)[0]["time left"] for stage in stages]
    assert left == pytest.approx([5, 10, 12], abs=1)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (True, "yes"), (False, "**no**"), (1234.5, "1,234"), (0.12345, "0.1235"), ("a|b", "a/b")],
)
def test_values_are_written_shortly(value: str, text: str) -> None:
    assert cell(value) == text


def test_a_table_has_every_column_of_any_row() -> None:
    assert table([{"a": 1}, {"b": 2}]) == "| a | b |\n| --- | --- |\n| 1 | – |\n| – | 2 |"


def test_the_stages_together_fit_into_ten_minutes() -> None:
    assert sum(stage.seconds for stage in STAGES) <= 9.5 * 60


def measured(tmp_path: Path) -> Report:
    named = {"size": "base", "S": 128, "fill": 1.0}
    rows = [
        {**named, "side": "here", "MFU of measured rate": 0.45},
        {**named, "side": "here, layers compiled", "MFU of measured rate": 0.52},
        {**named, "side": "here, attention dropout 0.1", "MFU of measured rate": 0.9},
        {**named, "side": "transformers", "× the best here": 2.4},
        {**named, "side": "transformers compiled", "outcome": NOT_REACHED},
        {"size": "base", "S": 512, "fill": 1.0, "side": "here", "tokens/s": 100.0},
        {"size": "base", "S": 512, "fill": 0.56, "side": "here", "tokens/s": 96.0},
    ]
    return Report(tmp_path / "gpu_x", "", {"step time": StageRecord("", rows)})


def test_goals_are_met_missed_or_not_measured(tmp_path: Path) -> None:
    rows = list(goals.measure(small_setting("cpu"), Budget(PLENTY_S), measured(tmp_path)))
    found = [(row["goal"], row["figure"], row["met"]) for row in rows]
    assert found == [
        ("G1", 0.52, True),
        ("G1, stretch", 0.52, False),
        ("G2", None, None),
        ("G2", None, None),
        ("G3", 2.4, False),
        ("G3", None, None),
        ("G3", None, None),
        ("G3", None, None),
        ("G5", 0.96, True),
    ]
