"""Time, utilization and peak memory of a training step here and in transformers, taking turns A B A B.

All sides see the same batches, which lie on the device beforehand, with a hidden dropout of 0.1 and an attention
dropout of 0, unless the side's name says another. A step is forward, loss, backward, clipping and AdamW, in bf16
autocast. Real tokens are counted, and operations that the model asks for, as in a run's `mfu`: padding is no work.

All cases take longer than one run has: a second run with the same code, on the same day, goes on behind the first.
"""

import gc
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, product
from operator import itemgetter
from typing import TypeVar

import torch

from benchmarks._pretraining_batches import make_batch
from benchmarks.gpu.ceilings import measured_ceilings
from benchmarks.gpu.own_step import Learner
from benchmarks.gpu.results import NOT_REACHED, Report, Row, Value, is_reached
from benchmarks.gpu.roofline import BatchShape
from benchmarks.gpu.setting import SMALL_SIZE, Budget, Setting
from benchmarks.gpu.sides import (
    COMPILED_HERE,
    HERE,
    HERE_COMPILED,
    HERE_COMPILED_GRAPHS,
    HERE_DROPOUT,
    HERE_GRAPHS,
    LEVERS,
    PEER,
    PEER_COMPILED,
    Batch,
    Side,
    build_side,
    build_side_model,
    predicted_ms,
    refusal,
    shape_of,
)
from bert_core.config import BertConfig, count_pretraining_flops
from orchestrator.pretraining.meter import peak_flops

FILLS = (1.0, 0.56)
_NUM_BATCHES = 3
"""Batches that are gone through in turn: lengths and their sum differ from step to step, as in a training run."""
LARGEST_GAP = 0.01
"""Relative difference of losses between sides that their dropout explains."""
T = TypeVar("T")


EAGER, COMPILED = "eager", "compiled"
_SIDES = {
    EAGER: (HERE, HERE_GRAPHS, HERE_DROPOUT, PEER),
    COMPILED: (HERE_GRAPHS, HERE_COMPILED, HERE_COMPILED_GRAPHS, PEER_COMPILED),
}
_COMPILE_S = {"base": 60, "large": 120}
"""Seconds that compiling transformers' model may take, which must be left in the budget; 40 for smaller models."""
COMPILE_LAYERS_S = 20
"""Seconds that compiling the layers here may take."""


@dataclass(frozen=True)
class Case:
    """A model and a width of rows, with the sides that are compared."""

    size: str
    width: int
    batch_size: int
    sides: tuple[str, ...]
    kind: str
    """EAGER or COMPILED: what stands beside the step here. A size and width has a case of each kind."""

    def named(self, fill: float) -> dict[str, Value]:
        """Begin the rows of the case on rows that are so full."""
        return {"size": self.size, "S": self.width, "fill": fill, "case": self.kind}


def cases(setting: Setting) -> Iterator[Case]:
    """Yield the cases, those of the goals first; what is long to compile comes last, and never before an eager side."""
    slots, widths = setting.choose((32_768, (128, 512)), (64, (16,)))

    def case(size: str, width: int, kind: str) -> Case:
        return Case(size, width, slots // width, _SIDES[kind], kind)

    first, *others = setting.choose(("base", "large", "small", "mini", "tiny"), (SMALL_SIZE,))
    yield from (case(first, widths[0], kind) for kind in (EAGER, COMPILED))
    rest = [(size, width) for size in (first, *others) for width in widths][1:]
    yield from (case(size, width, EAGER) for size, width in rest)
    yield from (case(size, width, COMPILED) for size, width in rest)


def compile_s(size: str, name: str) -> int:
    """Seconds that compiling a side may take, which must be left in the budget."""
    if name in COMPILED_HERE:
        return COMPILE_LAYERS_S
    return _COMPILE_S.get(size, 40) if name == PEER_COMPILED else 0


@dataclass(frozen=True)
class Unmeasured:
    """A side without figures."""

    side: str
    outcome: str
    """Why it has none."""
    has_failed: bool = False
    """Whether it was tried and failed: of a side here that is a failed check."""

    @property
    def row(self) -> Row:
        verdict = {"ok": False} if self.has_failed and self.side in LEVERS else {}
        return {"side": self.side, "outcome": self.outcome, **verdict}


def measure(setting: Setting, budget: Budget, report: Report) -> Iterator[Row]:
    """Compare the sides of each case on full rows and on rows partly filled: one row for each side.

    What an earlier run has measured comes first, so that a run that is ended early loses none of it.
    """
    missing: list[tuple[Case, float]] = []
    for case, fill in product(cases(setting), FILLS):
        rows = measured_rows(report, case, fill)
        yield from rows
        if not rows:
            missing.append((case, fill))
    for case, found in groupby(missing, key=itemgetter(0)):
        yield from measure_case(setting, budget, report, case, [fill for _, fill in found])
        free_memory(setting)


def measured_rows(report: Report, case: Case, fill: float) -> list[dict[str, Value]]:
    """Find the rows that an earlier run has of all sides of a case; none where one was not reached."""
    rows = report.earlier_rows("step time", **case.named(fill))
    return rows if {row["side"] for row in rows if is_reached(row)} == set(case.sides) else []


def measure_case(setting: Setting, budget: Budget, report: Report, case: Case, fills: Sequence[float]) -> Iterator[Row]:
    """Compare the sides of a case: one row for each side and fill."""
    config = setting.build_config(case.size)
    learners: dict[str, Learner] = {}
    for fill in fills:
        named = case.named(fill)
        batches = [make_batch(config, case.batch_size, case.width, fill, seed) for seed in range(_NUM_BATCHES)]
        sides: list[Side] = []
        for name in case.sides:
            made = ready_side(setting, budget, case, name, learners, batches)
            if isinstance(made, Side):
                sides.append(made)
            else:
                yield {**named, **made.row}
        for unmeasured in take_turns(setting, budget, sides):
            del learners[unmeasured.side]
            yield {**named, **unmeasured.row}
        shapes = [shape_of(batch) for batch in batches]
        for side in sides:
            found = attempt(side.name, partial(figures, setting, report, config, shapes, side, sides))
            yield {**named, **(found.row if isinstance(found, Unmeasured) else found)}


def ready_side(
    setting: Setting, budget: Budget, case: Case, name: str, learners: dict[str, Learner], batches: Sequence[Batch]
) -> Side | Unmeasured:
    """Build a side, its model too unless `learners` has it, and make the first steps; the reason where that fails."""
    if budget.left_s <= (0 if name in learners else setting.choose(compile_s(case.size, name), 0)):
        return Unmeasured(name, NOT_REACHED)
    if reason := refusal(name):
        return Unmeasured(name, reason)
    made = attempt(name, partial(prepare, setting, case, name, learners, batches))
    if isinstance(made, Unmeasured):
        learners.pop(name, None)
        free_memory(setting)
    return made


def attempt(name: str, action: Callable[[], T]) -> T | Unmeasured:
    """Do something with a side; where any compiler or kernel fails, the other sides are measured nevertheless."""
    try:
        return action()
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
    return Unmeasured(name, reason, has_failed=True)  # outside of `except`, which holds on to the failed step's tensors


def prepare(setting: Setting, case: Case, name: str, learners: dict[str, Learner], batches: Sequence[Batch]) -> Side:
    """Build a side and make its first steps, which give the memory that it takes, and the last of them its loss."""
    if name not in learners:
        learners[name] = build_side_model(setting, name, setting.build_config(case.size))
    side = build_side(setting, name, learners[name], batches)
    of_others = 0
    if setting.is_cuda:
        torch.cuda.reset_peak_memory_stats(setting.device)
        of_others = torch.cuda.memory_allocated(setting.device) - side.learner.num_bytes
    side.make_steps()
    losses = side.make_steps()
    if setting.is_cuda:
        side.peak_bytes = torch.cuda.max_memory_allocated(setting.device) - of_others
    side.loss = statistics.mean(float(loss) for loss in losses)
    return side


def take_turns(setting: Setting, budget: Budget, sides: list[Side]) -> Iterator[Unmeasured]:
    """Time the steps of each side, one after the other, several times: A B A B. A side that fails is taken out."""
    for _ in range(setting.choose(6, 2)):
        if budget.is_spent:
            return
        for side in list(sides):
            found = attempt(side.name, partial(setting.host_and_device_ms, side.make_steps))
            if isinstance(found, Unmeasured):
                sides.remove(side)
                yield found
                continue
            for times_ms, ms in zip((side.host_times_ms, side.times_ms), found, strict=True):
                times_ms.append(ms / len(side.steps))


def figures(
    setting: Setting,
    report: Report,
    config: BertConfig,
    shapes: Sequence[BatchShape],
    side: Side,
    sides: Sequence[Side],
) -> Row:
    if not side.times_ms:
        return {"side": side.name, "outcome": NOT_REACHED}
    ms = statistics.median(side.times_ms)
    tokens = statistics.mean(shape.num_tokens for shape in shapes)
    counts = ((shape.num_tokens, shape.num_predictions, shape.num_pairs) for shape in shapes)
    flops_per_s = statistics.mean(count_pretraining_flops(config, *each) for each in counts) / (ms / 1000)
    ceilings = measured_ceilings(report)
    predicted = None if ceilings is None else predicted_ms(side.name, config, shapes, ceilings)
    sheet = peak_flops(torch.cuda.get_device_name(setting.device)) if setting.is_cuda else None
    return {
        "side": side.name,
        "tokens": tokens,
        "ms": ms,
        "host ms": statistics.median(side.host_times_ms),
        "spread": (max(side.times_ms) - min(side.times_ms)) / ms,
        "tokens/s": 1000 * tokens / ms,
        "MFU of measured rate": None if ceilings is None else flops_per_s / ceilings.product_flops_per_s,
        "MFU of data sheet": None if sheet is None else flops_per_s / sheet,
        "× the best here": times_best_here(side, sides),
        "peak GiB": None if side.peak_bytes is None else side.peak_bytes / 2**30,
        "loss": side.loss,
        "predicted ms": predicted,
        "measured / predicted": None if predicted is None else ms / predicted,
        "ok": computes_the_same(side, sides[0]),
    }


def computes_the_same(side: Side, other: Side) -> bool:
    """Whether the losses of two sides, from the same weights on the same batches, are near enough; NaN is not."""
    assert side.loss is not None
    assert other.loss is not None
    return abs(side.loss - other.loss) <= LARGEST_GAP * abs(other.loss)


def times_best_here(side: Side, sides: Sequence[Side]) -> float | None:
    """Time of a side as a multiple of the best one here without attention dropout: the median of paired ratios."""
    own = [other for other in sides if other.name in LEVERS and other.name != HERE_DROPOUT]
    if not own:
        return None
    best = min(own, key=lambda other: statistics.median(other.times_ms))
    return statistics.median(a / b for a, b in zip(side.times_ms, best.times_ms, strict=True))


def free_memory(setting: Setting) -> None:
    """Give the memory of models that are gone back to the card."""
    gc.collect()
    if setting.is_cuda:
        torch.cuda.empty_cache()
