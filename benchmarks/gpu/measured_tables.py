"""Tables of docs/performance.md with measured beside predicted figures: goals, steps, levers, transformers."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.gpu.feed import LARGEST_SHARE
from benchmarks.gpu.goals import figure, goals
from benchmarks.gpu.launches import host_ms, num_launches
from benchmarks.gpu.levers import NONE, levers_without
from benchmarks.gpu.measured_figures import NOT_YET, compared
from benchmarks.gpu.predictions import predict_ms, predict_peer_ms
from benchmarks.gpu.results import Report
from benchmarks.gpu.roofline import ALL_LEVERS, BatchShape, Ceilings, step_ms, utilization
from benchmarks.gpu.sides import HERE_COMPILED, PEER, PEER_COMPILED
from bert_core.config import BertConfig

NUM_SLOTS = 32_768
"""Positions of the padded form of a batch: 256 rows of 128, or 64 of 512."""
WIDTHS_AND_FILLS = tuple((width, fill) for width in (128, 512) for fill in (1.0, 0.56))
"""Batches of the tables, in the order of their columns."""
SIZES = ("tiny", "mini", "small", "base", "large")

WITHOUT = {
    NONE: "nothing: all levers",
    "fused_adamw": "fused AdamW: PyTorch's default in its place",
    "varlen": "varlen attention: padded attention with dropout",
    "compiled_layers": "compiled layers: as they are written",
    "bf16_residual": "bf16 between the layers: fp32",
    "fused_cross_entropy": "fused cross entropy: block by block, eagerly",
    "last_layer_rows": "last layer only where it is read: all of its rows",
}
"""Levers, with what stands in the place of each."""

REASONS: Mapping[tuple[str, str], str] = {}
"""Why a measured figure differs from the predicted one, by the table's and the row's first cell; written by hand."""


@dataclass(frozen=True)
class ComparedRow:
    """Row of a table that has a cell for what was measured."""

    cells: Sequence[str]
    measured: str


def as_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table in Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows))


def compared_table(
    header: Sequence[str], rows: Sequence[ComparedRow], reasons: Mapping[tuple[str, str], str] | None = None
) -> str:
    """Write a table with what was measured, and with reasons of differences where any of its rows has one."""
    found = [(REASONS if reasons is None else reasons).get((header[0], row.cells[0]), "") for row in rows]
    lines = [[*row.cells, row.measured] for row in rows]
    if not any(found):
        return as_table([*header, "measured"], lines)
    explained = [[*line, reason] for line, reason in zip(lines, found, strict=True)]
    return as_table([*header, "measured", "reason of the difference"], explained)


def batch_shapes() -> dict[str, BatchShape]:
    """Shape of each batch of the tables, by its name."""
    names = {1.0: "full", 0.56: "56 % filled"}
    return {f"S {width}, {names[fill]}": BatchShape.of_fill(NUM_SLOTS, width, fill) for width, fill in WIDTHS_AND_FILLS}


def percent(share: float, digits: int = 0) -> str:
    """Write a share as percent."""
    return f"{100 * share:.{digits}f} %"


def goal_table(report: Report) -> str:
    """Write the goals of a GPU with what is predicted and what was measured of them, for a step with all levers."""
    shapes, base = batch_shapes(), BertConfig.from_size("base")
    full, filled, wide, wide_filled = shapes.values()
    measured: dict[str, list[float | None]] = defaultdict(list)
    for goal in goals(report):
        measured[goal.name].append(goal.figure)

    def reached(size: str, shape: BatchShape) -> float:
        config = BertConfig.from_size(size)
        return utilization(config, shape, step_ms(config, shape, ALL_LEVERS), Ceilings())

    def times_as_fast(is_compiled: bool) -> list[float]:
        chosen = (full, filled)
        return [predict_peer_ms(base, each, is_compiled) / predict_ms(base, each, ALL_LEVERS) for each in chosen]

    tokens_per_ms = [each.num_tokens / step_ms(base, each, ALL_LEVERS) for each in (wide_filled, wide)]
    half = tokens_per_ms[0] / tokens_per_ms[1]
    against = "base, S 128, against transformers in bf16: 2.5× full, 4× at 56 %"
    rows = [
        _share_row("G1", "base, S 128: 50 % of the measured product rate", reached("base", full), measured["G1"][0]),
        _share_row("G2, S 128", "large, S 128: 60 %", reached("large", full), measured["G2"][0]),
        _share_row("G2, S 512", "large, S 512: 60 %", reached("large", wide), measured["G2"][1]),
        _ratio_row("G3", against, times_as_fast(False), measured["G3"][:2]),
        _ratio_row(
            "G3, compiled",
            "the same against transformers compiled: 1.8× full, 3× at 56 %",
            times_as_fast(True),
            measured["G3"][2:],
        ),
        ComparedRow(
            ["G5", "base, S 512 at 56 %: real tokens/s within 5 % of full rows", f"{half:.2f}×"],
            compared(measured["G5"], [half], lambda ratio: f"{ratio:.2f}×"),
        ),
    ]
    return compared_table(["goal", "asked", "predicted"], [*rows, _feed_row(report)])


def _share_row(name: str, asked: str, predicted: float, found: float | None) -> ComparedRow:
    return ComparedRow([name, asked, _percent_1(predicted)], compared([found], [predicted], _percent_1))


def _ratio_row(name: str, asked: str, predicted: list[float], found: list[float | None]) -> ComparedRow:
    """Row of a goal on full rows and on rows that are partly filled."""
    cell = f"{_times(predicted[0])} full, {_times(predicted[1])} at 56 %"
    return ComparedRow([name, asked, cell], compared(found, predicted, _times))


def _feed_row(report: Report) -> ComparedRow:
    """Row of the share that waits for data; without a ratio, as none of it is predicted."""
    values = [row.get("share that waits") for row in report.rows("feed", size="base")]
    shares = [value for value in values if isinstance(value, float)]
    asked = f"base, S 128: at most {percent(LARGEST_SHARE)} of a step waits for data"
    return ComparedRow(["feed", asked, "nothing"], _percent_1(shares[0]) if shares else NOT_YET)


def step_table(report: Report) -> str:
    """Write the steps with all levers: the device's time, the host's, and the longer one, beside the measured one."""
    shapes, ceilings, rows = batch_shapes(), Ceilings(), []
    for size in SIZES:
        config = BertConfig.from_size(size)
        number = num_launches(config, ALL_LEVERS)
        predicted = [predict_ms(config, each, ALL_LEVERS) for each in shapes.values()]
        cells = [
            f"{step_ms(config, shape, ALL_LEVERS):.1f} and {host_ms(number, ceilings):.1f}: **{ms:.1f} ms**"
            for shape, ms in zip(shapes.values(), predicted, strict=True)
        ]
        measured = compared(step_figures(report, size, HERE_COMPILED), predicted, milliseconds)
        rows.append(ComparedRow([size, str(number), *cells], measured))
    return compared_table(["device and host: step", "launches", *shapes], rows)


def left_out_table(report: Report) -> str:
    """Write the step of base without each lever alone, and what it takes longer than with all of them."""
    config, (shape, *_) = BertConfig.from_size("base"), batch_shapes().values()
    whole, rows = predict_ms(config, shape, ALL_LEVERS), []
    for name, title in WITHOUT.items():
        ms = predict_ms(config, shape, levers_without(name))
        predicted = {"ms": ms} if name == NONE else {"ms": ms, "ms longer": ms - whole}
        found = report.rows("levers", size="base", S=shape.width, without=name)
        row = found[0] if found else {}
        figures = [float(value) if isinstance(value := row.get(key), int | float) else None for key in predicted]
        cells = [title, *map(milliseconds, predicted.values())] + ["–"] * (2 - len(predicted))
        rows.append(ComparedRow(cells, compared(figures, list(predicted.values()), milliseconds)))
    return compared_table(["base, S 128, full: without", "step", "longer"], rows)


def peer_table(report: Report) -> str:
    """Write the steps of transformers, and how many times as long they are as those here with all levers."""
    shapes, rows = batch_shapes(), []
    for size in SIZES:
        config = BertConfig.from_size(size)
        own = [predict_ms(config, shape, ALL_LEVERS) for shape in shapes.values()]
        for title, side in ((size, PEER), (f"{size}, compiled", PEER_COMPILED)):
            predicted = [predict_peer_ms(config, shape, side == PEER_COMPILED) for shape in shapes.values()]
            cells = [f"{ms:.1f} ms, {ms / best:.1f}×" for ms, best in zip(predicted, own, strict=True)]
            measured = compared(step_figures(report, size, side), predicted, milliseconds)
            rows.append(ComparedRow([title, *cells], measured))
    return compared_table(["transformers", *shapes], rows)


def step_figures(report: Report, size: str, side: str) -> list[float | None]:
    """Measured milliseconds of a side's step on each batch of the tables; None where it was not reached."""
    return [figure(report, size, width, fill, side, "ms") for width, fill in WIDTHS_AND_FILLS]


def milliseconds(ms: float) -> str:
    """Write a time."""
    return f"{ms:.1f} ms"


def _percent_1(share: float) -> str:
    return percent(share, 1)


def _times(ratio: float) -> str:
    return f"{ratio:.1f}×"
