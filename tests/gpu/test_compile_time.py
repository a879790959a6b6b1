"""Seconds of compiling, and the steps that pay for them. Run alone: pytest tests/gpu/test_compile_time.py"""

from pathlib import Path

import pytest

from benchmarks.gpu import compile_time
from benchmarks.gpu.results import NOT_REACHED, Report, StageRecord
from benchmarks.gpu.setting import Budget
from benchmarks.gpu.sides import HERE, HERE_COMPILED
from tests.gpu.devices import ON_EACH_DEVICE, PLENTY_S, rows_of, small_setting


def measured(tmp_path: Path, eager_ms: float, compiled_ms: float) -> Report:
    """Report of a run whose steps took so long."""
    named = {"size": "2x64", "S": 16, "fill": 1.0}
    rows = [{**named, "side": HERE, "ms": eager_ms}, {**named, "side": HERE_COMPILED, "ms": compiled_ms}]
    return Report(tmp_path / "r", "", {"step time": StageRecord("", rows)})


@ON_EACH_DEVICE
def test_compiling_is_timed_with_an_empty_cache_and_with_a_filled_one(device: str, tmp_path: Path) -> None:
    rows = rows_of(compile_time.measure, device, measured(tmp_path, 12.0, 10.0))
    assert [row["cache"] for row in rows] == ["empty", "filled"]
    for row in rows:
        assert row["s"] > 0
        assert row["paid after steps"] == pytest.approx(500 * row["s"], abs=1)


def test_the_second_process_has_the_cache_of_the_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def look(setting: object, size: str, cache: Path, limit_s: float) -> float:
        seen.append([path.name for path in cache.iterdir()])
        (cache / "kernel").touch()
        return 8.0

    monkeypatch.setattr(compile_time, "compile_in_a_process", look)
    rows_of(compile_time.measure, "cpu", Report(tmp_path / "r", ""))
    assert seen == [[], ["kernel"]]


def test_a_second_run_measures_no_seconds_again_and_tells_what_steps_save_now(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    report = measured(tmp_path, 12.0, 10.0)
    rows = [{"size": "2x64", "S": 16, "cache": state, "s": 4.0} for state in compile_time.CACHES]
    report.earlier["compile time"] = StageRecord("", rows)
    monkeypatch.setattr(compile_time, "compile_in_a_process", lambda *_: 7.0)
    assert [row["paid after steps"] for row in rows_of(compile_time.measure, "cpu", report)] == [2000, 2000]
    rows.pop()
    assert [row["s"] for row in rows_of(compile_time.measure, "cpu", report)] == [7.0, 7.0]


@pytest.mark.parametrize(
    ("saved_ms", "expected"), [(2.0, 5000), (3.0, 3334), (0.0, "never: no step is shorter"), (None, None)]
)
def test_compiling_has_paid_once_steps_have_saved_as_much(saved_ms: float | None, expected: object) -> None:
    assert compile_time.payback(10.0, saved_ms) == {"paid after steps": expected}


def test_without_time_or_with_a_compiler_that_fails_the_row_says_so(tmp_path: Path) -> None:
    setting = small_setting("cpu")
    assert compile_time.compile_in_a_process(setting, "2x64", tmp_path, limit_s=0.01) == {"outcome": NOT_REACHED}
    late = list(compile_time.measure(setting, Budget(0), Report(tmp_path / "r", "")))
    assert [row["outcome"] for row in late] == [NOT_REACHED] * 2
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(setting.__class__, "choose", lambda self, full, small: ["--unknown"])
        row = compile_time.compile_in_a_process(setting, "2x64", tmp_path, PLENTY_S)
    assert row["ok"] is False
    assert "unrecognized arguments: --unknown" in str(row["outcome"])
