"""Tables of docs/performance.md: what each lever is predicted to bring, before a card has run it.

python -m benchmarks.gpu.roofline_tables
"""

from collections.abc import Iterator, Sequence

from benchmarks.gpu.launches import host_ms, num_launches
from benchmarks.gpu.predictions import predict_ms, predict_peer_ms
from benchmarks.gpu.roofline import (
    AS_IT_WAS,
    BatchShape,
    Ceilings,
    Levers,
    component_ms,
    one_after_another,
    step_ms,
    utilization,
)
from bert_core.config import BertConfig

NUM_SLOTS = 32_768
"""Positions of the padded form of a batch: 256 rows of 128, or 64 of 512."""
FILLS = (1.0, 0.56)
WIDTHS = (128, 512)
SIZES = ("base", "large")
SMALL_SIZES = ("mini", "small")
_LEVER_NAMES = {
    "fused_adamw": "fused AdamW: **as it was**",
    "varlen": "no attention dropout, varlen attention",
    "compiled_layers": "compiled layers",
    "bf16_residual": "bf16 between the layers",
    "fused_cross_entropy": "fused cross entropy",
    "last_layer_rows": "last layer only where it is read",
}
_NOT_YET = "not yet: no card was at hand"


def as_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table in Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows))


def cases() -> Iterator[tuple[str, BatchShape]]:
    """Name each batch of the tables, with its shape."""
    for width in WIDTHS:
        for fill in FILLS:
            name = "full" if fill == 1 else f"{fill:.0%} filled".replace("%", " %")
            yield f"S {width}, {name}", BatchShape.of_fill(NUM_SLOTS, width, fill)


def lever_table(size: str) -> str:
    """Write the step of a size after each lever: milliseconds, those that the lever saves, and the utilization."""
    config, ceilings = BertConfig.from_size(size), Ceilings()
    shapes = dict(cases())
    before = [step_ms(config, shape, Levers()) for shape in shapes.values()]
    plain = zip(before, shapes.values(), strict=True)
    rows = [
        [
            "autocast, padded attention, PyTorch's default AdamW",
            *(f"{ms:.1f} ms, {percent(utilization(config, shape, ms, ceilings))}" for ms, shape in plain),
            _NOT_YET,
        ]
    ]
    for lever, levers in one_after_another():
        cells = []
        for place, shape in enumerate(shapes.values()):
            after = step_ms(config, shape, levers)
            share = percent(utilization(config, shape, after, ceilings))
            cells.append(f"{after:.1f} ms (−{before[place] - after:.1f}), {share}")
            before[place] = after
        rows.append([_LEVER_NAMES[lever], *cells, _NOT_YET])
    return as_table([f"{size}: lever", *shapes, "measured"], rows)


def component_table(size: str) -> str:
    """Write the components of a size's step in milliseconds, as it was and with all levers."""
    config = BertConfig.from_size(size)
    *_, (_, all_levers) = one_after_another()
    header, columns = [f"{size}: component, ms"], []
    for name, shape in cases():
        for title, levers in (("as it was", AS_IT_WAS), ("all levers", all_levers)):
            header.append(f"{name}, {title}")
            columns.append(component_ms(config, shape, levers))
    rows = [[component, *(f"{column[component]:.1f}" for column in columns)] for component in columns[0]]
    return as_table(header, [*rows, ["step", *(f"{sum(column.values()):.1f}" for column in columns)]])


def small_table() -> str:
    """Write the steps of small models with all levers: the device's time, the host's, and the longer one."""
    *_, (_, levers) = one_after_another()
    ceilings, rows = Ceilings(), []
    for size in SMALL_SIZES:
        config = BertConfig.from_size(size)
        for title, is_graphed in ((size, False), (f"{size}, CUDA graphs", True)):
            number = num_launches(config, levers, is_graphed)
            cells = [
                f"{step_ms(config, shape, levers):.1f} and {host_ms(number, ceilings):.1f}: "
                f"**{predict_ms(config, shape, levers, is_graphed=is_graphed):.1f} ms**"
                for _, shape in cases()
            ]
            rows.append([title, str(number), *cells, _NOT_YET])
    return as_table(["device and host: step", "launches", *dict(cases()), "measured"], rows)


def peer_table() -> str:
    """Write the steps of transformers, and how many times as long they are as those here with all levers."""
    *_, (_, levers) = one_after_another()
    rows = []
    for size in (*SMALL_SIZES, *SIZES):
        config = BertConfig.from_size(size)
        for title, is_compiled in ((size, False), (f"{size}, compiled", True)):
            peers = [(predict_peer_ms(config, shape, is_compiled), shape) for _, shape in cases()]
            cells = [f"{ms:.1f} ms, {ms / predict_ms(config, shape, levers):.1f}×" for ms, shape in peers]
            rows.append([title, *cells, _NOT_YET])
    return as_table(["transformers", *dict(cases()), "measured"], rows)


def goal_table() -> str:
    """Write the goals of a GPU with what is predicted of them, for a step with all levers."""
    *_, (_, levers) = one_after_another()
    ceilings, shapes = Ceilings(), dict(cases())

    def reached(size: str, case: str) -> float:
        config = BertConfig.from_size(size)
        return utilization(config, shapes[case], step_ms(config, shapes[case], levers), ceilings)

    def tokens_per_ms(case: str) -> float:
        return shapes[case].num_tokens / step_ms(BertConfig.from_size("base"), shapes[case], levers)

    half = tokens_per_ms("S 512, 56 % filled") / tokens_per_ms("S 512, full")

    def times_as_fast(is_compiled: bool) -> str:
        base, chosen = BertConfig.from_size("base"), (shapes["S 128, full"], shapes["S 128, 56 % filled"])
        full, filled = (predict_peer_ms(base, each, is_compiled) / predict_ms(base, each, levers) for each in chosen)
        return f"{full:.1f}× full, {filled:.1f}× at 56 %"

    rows = [
        ["G1", "base, S 128: 50 % of the measured product rate", percent(reached("base", "S 128, full"), 1), _NOT_YET],
        ["G2", "large, S 128: 60 %", percent(reached("large", "S 128, full"), 1), _NOT_YET],
        ["G2", "large, S 512: 60 %", percent(reached("large", "S 512, full"), 1), _NOT_YET],
        ["G3", "base, S 128, against transformers in bf16: 2.5× full, 4× at 56 %", times_as_fast(False), _NOT_YET],
        ["G3", "the same against transformers compiled: 1.8× full, 3× at 56 %", times_as_fast(True), _NOT_YET],
        ["G5", "base, S 512 at 56 %: real tokens/s within 5 % of full rows", f"{half:.2f}×", _NOT_YET],
    ]
    return as_table(["", "goal", "predicted", "measured"], rows)


def percent(share: float, digits: int = 0) -> str:
    """Write a share as percent."""
    return f"{100 * share:.{digits}f} %"


def tables() -> list[str]:
    """Write all tables of the page."""
    return [goal_table(), *map(lever_table, SIZES), *map(component_table, SIZES), small_table(), peer_table()]


if __name__ == "__main__":
    print("\n\n".join(tables()))
