"""Tables of docs/performance.md: what each lever is predicted to bring, and what the newest run on a GPU measured.

python -m benchmarks.gpu.roofline_tables
"""

from pathlib import Path

from benchmarks.gpu.measured_figures import newest_report, source
from benchmarks.gpu.measured_tables import (
    as_table,
    batch_shapes,
    goal_table,
    left_out_table,
    peer_table,
    percent,
    step_table,
)
from benchmarks.gpu.results import RESULTS, Report
from benchmarks.gpu.roofline import (
    ALL_LEVERS,
    AS_IT_WAS,
    Ceilings,
    Levers,
    component_ms,
    one_after_another,
    step_ms,
    utilization,
)
from bert_core.config import BertConfig

SIZES = ("base", "large")
"""Sizes whose step is taken apart."""
_LEVER_NAMES = {
    "fused_adamw": "fused AdamW: **as it was**",
    "varlen": "varlen attention",
    "compiled_layers": "compiled layers",
    "bf16_residual": "bf16 between the layers",
    "fused_cross_entropy": "fused cross entropy",
    "last_layer_rows": "last layer only where it is read",
}


def lever_table(size: str) -> str:
    """Write the step of a size after each lever: milliseconds, those that the lever saves, and the utilization."""
    config, ceilings = BertConfig.from_size(size), Ceilings()
    shapes = batch_shapes()
    before = [step_ms(config, shape, Levers()) for shape in shapes.values()]
    plain = zip(before, shapes.values(), strict=True)
    rows = [
        [
            "autocast, padded attention, PyTorch's default AdamW",
            *(f"{ms:.1f} ms, {percent(utilization(config, shape, ms, ceilings))}" for ms, shape in plain),
        ]
    ]
    for lever, levers in one_after_another():
        cells = []
        for place, shape in enumerate(shapes.values()):
            after = step_ms(config, shape, levers)
            share = percent(utilization(config, shape, after, ceilings))
            cells.append(f"{after:.1f} ms (−{before[place] - after:.1f}), {share}")
            before[place] = after
        rows.append([_LEVER_NAMES[lever], *cells])
    return as_table([f"{size}: lever", *shapes], rows)


def component_table(size: str) -> str:
    """Write the components of a size's step in milliseconds, as it was and with all levers."""
    config = BertConfig.from_size(size)
    header, columns = [f"{size}: component, ms"], []
    for name, shape in batch_shapes().items():
        for title, levers in (("as it was", AS_IT_WAS), ("all levers", ALL_LEVERS)):
            header.append(f"{name}, {title}")
            columns.append(component_ms(config, shape, levers))
    rows = [[component, *(f"{column[component]:.1f}" for column in columns)] for component in columns[0]]
    return as_table(header, [*rows, ["step", *(f"{sum(column.values()):.1f}" for column in columns)]])


def tables(results: Path = RESULTS) -> list[str]:
    """Write all tables of the page, behind the sentence that says what was measured."""
    found = newest_report(results)
    report = found or Report(results / "none", command="")
    predicted = [*map(lever_table, SIZES), *map(component_table, SIZES)]
    compared = [left_out_table(report), step_table(report), peer_table(report)]
    return [source(found), goal_table(report), *predicted, *compared]


if __name__ == "__main__":
    print("\n\n".join(tables()))
