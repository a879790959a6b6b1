"""Measured figures in the tables of the page on performance, from invented results. Alone:
pytest tests/gpu/test_measured_tables.py
"""

from pathlib import Path

import pytest

from benchmarks.gpu import measured_tables
from benchmarks.gpu.measured_figures import NOT_YET, compared, newest_report, source
from benchmarks.gpu.measured_tables import (
    WITHOUT,
    ComparedRow,
    compared_table,
    goal_table,
    left_out_table,
    milliseconds,
    peer_table,
    step_table,
)
from benchmarks.gpu.predictions import predict_ms, predict_peer_ms
from benchmarks.gpu.results import Report, StageRecord, Value
from benchmarks.gpu.roofline import ALL_LEVERS
from benchmarks.gpu.roofline_tables import tables
from benchmarks.gpu.sides import HERE_COMPILED, HERE_COMPILED_GRAPHS, PEER
from bert_core.config import BertConfig


def write_results(folder: Path, name: str, rows: list[dict[str, Value]] | None = None) -> Report:
    """Write the files of a run."""
    report = Report(folder / name, "python -m benchmarks.gpu", {"step time": StageRecord("", rows or [])})
    report.write()
    return report


def step_row(size: str, width: int, fill: float, side: str, ms: float) -> dict[str, Value]:
    return {"size": size, "S": width, "fill": fill, "side": side, "ms": ms}


def cells_of(table: str, title: str) -> list[str]:
    """Cells of the row that begins so."""
    (line,) = (line for line in table.splitlines() if line.startswith(f"| {title} |"))
    return [cell.strip() for cell in line.strip("| ").split("|")]


def predicted(size: str, peer: bool = False) -> list[float]:
    config, shapes = BertConfig.from_size(size), measured_tables.batch_shapes().values()
    return [predict_peer_ms(config, each, False) if peer else predict_ms(config, each, ALL_LEVERS) for each in shapes]


def test_the_newest_full_run_on_a_gpu_is_read(tmp_path: Path) -> None:
    assert newest_report(tmp_path) is None
    for name in ("gpu_small-cpu_2026-12-01", "gpu_h200-small_2026-12-02", "gpu_notes"):
        write_results(tmp_path, name, [step_row("base", 128, 1.0, PEER, 7.0)])
    assert newest_report(tmp_path) is None, "small forms do not count"
    for name in ("gpu_h200_2026-11-25", "gpu_a100-sxm4-80gb_2026-11-30", "gpu_h200_2026-11-29"):
        write_results(tmp_path, name, [step_row("base", 128, 1.0, PEER, 7.0)])
    found = newest_report(tmp_path)
    assert found is not None
    assert found.path.name == "gpu_a100-sxm4-80gb_2026-11-30"
    assert found.rows("step time") == [step_row("base", 128, 1.0, PEER, 7.0)]
    write_results(tmp_path, "gpu_h200_2026-12-05", [{"size": "base", "S": 128, "outcome": "not reached"}])
    assert newest_report(tmp_path) == found, "a run of other stages leaves the figures of the steps as they are"
    assert "`benchmarks/results/gpu_a100-sxm4-80gb_2026-11-30.md`" in source(found)


def test_without_a_run_on_a_gpu_every_measured_cell_says_so(tmp_path: Path) -> None:
    write_results(tmp_path, "gpu_small-cpu_2026-12-01", [step_row("base", 128, 1.0, HERE_COMPILED, 7.0)])
    sentence, *found = tables(tmp_path)
    assert sentence.startswith("No card has run this code yet")
    with_cell = [table for table in found if table.splitlines()[0].endswith("| measured |")]
    assert len(with_cell) == 4
    for table in with_cell:
        assert all(line.endswith(f"| {NOT_YET} |") for line in table.splitlines()[2:])
    assert not any(NOT_YET in table for table in found if table not in with_cell)


def test_steps_have_their_measured_time_and_its_ratio_to_the_predicted_one(tmp_path: Path) -> None:
    base, graphed, peer = predicted("base"), predicted("mini"), predicted("base", peer=True)
    rows = [
        step_row("base", 128, 1.0, HERE_COMPILED, 2 * base[0]),
        step_row("base", 512, 0.56, HERE_COMPILED, 0.5 * base[3]),
        step_row("mini", 128, 0.56, HERE_COMPILED_GRAPHS, 3 * graphed[1]),
        step_row("base", 512, 1.0, PEER, 1.25 * peer[2]),
        {"size": "large", "S": 128, "fill": 1.0, "side": HERE_COMPILED, "outcome": "not reached"},
    ]
    write_results(tmp_path, "gpu_h200_2026-11-25", rows)
    report = newest_report(tmp_path)
    assert report is not None
    steps = step_table(report)
    assert cells_of(steps, "base")[-1] == f"{2 * base[0]:.1f} ms (2.00), –, –, {0.5 * base[3]:.1f} ms (0.50)"
    assert cells_of(steps, "mini, CUDA graphs")[-1] == f"–, {3 * graphed[1]:.1f} ms (3.00), –, –"
    assert cells_of(steps, "mini")[-1] == cells_of(steps, "large")[-1] == NOT_YET
    assert cells_of(peer_table(report), "base")[-1] == f"–, –, {1.25 * peer[2]:.1f} ms (1.25), –"


def test_goals_have_their_measured_figures(tmp_path: Path) -> None:
    assert "| 56.0 % |" in goal_table(Report(tmp_path / "none", ""))
    rows = [
        step_row("base", 128, 1.0, HERE_COMPILED, 40.0) | {"MFU of measured rate": 0.28},
        step_row("base", 128, 0.56, PEER, 80.0) | {"× the best here": 6.2},
        step_row("base", 512, 1.0, HERE_COMPILED, 40.0) | {"tokens/s": 100.0},
        step_row("base", 512, 0.56, HERE_COMPILED, 40.0) | {"tokens/s": 103.0},
    ]
    table = goal_table(write_results(tmp_path, "gpu_h200_2026-11-25", rows))
    assert cells_of(table, "G1")[-1] == "28.0 % (0.50)"
    assert cells_of(table, "G3")[-1] == "–, 6.2× (1.97)"
    assert cells_of(table, "G5")[-1] == "1.03× (1.00)"
    assert cells_of(table, "G2, S 512")[-1] == cells_of(table, "G3, compiled")[-1] == NOT_YET


def test_reasons_of_differences_are_a_column_where_there_are_any() -> None:
    rows = [ComparedRow(["base", "40.4 ms"], "50.0 ms (1.24)"), ComparedRow(["large", "130.8 ms"], NOT_YET)]
    assert compared_table(["step", "S 128"], rows).splitlines()[0] == "| step | S 128 | measured |"
    explained = compared_table(["step", "S 128"], rows, {("step", "base"): "another card"})
    assert explained.splitlines()[0] == "| step | S 128 | measured | reason of the difference |"
    assert cells_of(explained, "base")[-1] == "another card"
    assert compared_table(["other", "S 128"], rows, {("step", "base"): "another card"}).count("another card") == 0


def test_every_reason_belongs_to_a_row_of_the_page(tmp_path: Path) -> None:
    rows = {
        (header.split(" | ")[0].strip("| "), line.split(" | ")[0].strip("| "))
        for header, _, *lines in (table.splitlines() for table in tables(tmp_path)[1:])
        for line in lines
    }
    assert ("transformers", "tiny, compiled") in rows
    assert rows >= measured_tables.REASONS.keys()


@pytest.mark.parametrize(
    ("measured", "cell"),
    [([None, None], NOT_YET), ([3.0, None], "3.0 ms (1.50), –"), ([2.0, 2.0], "2.0 ms (1.00), 2.0 ms (0.50)")],
)
def test_a_cell_has_each_figure_with_its_ratio(measured: list[float | None], cell: str) -> None:
    assert compared(measured, [2.0, 4.0], milliseconds) == cell


def test_levers_have_their_step_and_what_it_takes_longer(tmp_path: Path) -> None:
    rows: list[dict[str, Value]] = [
        {"size": "base", "S": 128, "without": "none", "ms": 40.4, "ms longer": 0.0},
        {"size": "base", "S": 128, "without": "fused_adamw", "ms": 43.0, "ms longer": 3.0},
        {"size": "base", "S": 128, "without": "varlen", "outcome": "not reached"},
    ]
    table = left_out_table(Report(tmp_path / "r", "", {"levers": StageRecord("", rows)}))
    assert cells_of(table, WITHOUT["none"])[-1] == "40.4 ms (1.00)"
    assert cells_of(table, WITHOUT["fused_adamw"])[1:] == ["41.9 ms", "1.5 ms", "43.0 ms (1.03), 3.0 ms (1.95)"]
    assert cells_of(table, WITHOUT["varlen"])[-1] == NOT_YET
