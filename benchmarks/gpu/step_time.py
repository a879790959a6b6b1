"""Time, utilization and peak memory of a training step here and in transformers, taking turns A B A B.

All sides see the same batches, which lie on the device beforehand, with a hidden dropout of 0.1 and an attention
dropout of 0, unless the side's name says another. A step is forward, loss, backward, clipping and AdamW, in bf16
autocast. Real tokens are counted, and operations that the model asks for (`roofline.useful_flops`): padding is no work.
"""

import gc
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from benchmarks._pretraining_batches import make_batch
from benchmarks.gpu.ceilings import COPY, LARGE_PRODUCT, rate_per_s
from benchmarks.gpu.machine import data_sheet_flops_per_s
from benchmarks.gpu.own_step import Learner
from benchmarks.gpu.results import NOT_REACHED, Report, Row, Value
from benchmarks.gpu.roofline import BatchShape, Ceilings, useful_flops
from benchmarks.gpu.setting import SMALL_SIZE, Budget, Setting
from benchmarks.gpu.sides import (
    HERE,
    HERE_COMPILED,
    HERE_DROPOUT,
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
from bert_core.config import BertConfig

FILLS = (1.0, 0.56)
_NUM_BATCHES = 3
"""Batches that are gone through in turn: lengths and their sum differ from step to step, as in a training run."""
_COMPILE_S = {"base": 60, "large": 120}
"""Seconds that compiling transformers' model may take, which must be left in the budget; 40 for smaller models."""


@dataclass(frozen=True)
class Case:
    """A model and a width of rows, with the sides that are compared."""

    size: str
    width: int
    batch_size: int
    sides: tuple[str, ...]


def measure(setting: Setting, budget: Budget, report: Report) -> Iterator[Row]:
    """Compare the sides of each case on full rows and on rows partly filled: one row for each side."""
    for case in cases(setting):
        config = setting.build_config(case.size)
        learners: dict[str, Learner] = {}
        for fill in FILLS:
            named: dict[str, Value] = {"size": case.size, "S": case.width, "fill": fill}
            batches = [make_batch(config, case.batch_size, case.width, fill, seed) for seed in range(_NUM_BATCHES)]
            sides = []
            for name in case.sides:
                made = ready_side(setting, budget, case, name, learners, batches)
                if isinstance(made, Side):
                    sides.append(made)
                else:
                    yield {**named, "side": name, "outcome": made}
            take_turns(setting, budget, sides)
            for side in sides:
                yield {**named, **figures(setting, report, config, [shape_of(batch) for batch in batches], side, sides)}
        del learners, sides
        free_memory(setting)


def cases(setting: Setting) -> Iterator[Case]:
    """Yield the cases, those of the goals first; what is long to compile comes last."""
    slots, widths = setting.choose((32_768, (128, 512)), (64, (16,)))
    eager = (HERE, HERE_COMPILED, HERE_DROPOUT, PEER)
    first, *others = setting.choose(("base", "large", "small", "mini"), (SMALL_SIZE,))
    yield Case(first, widths[0], slots // widths[0], (*eager, PEER_COMPILED))
    rest = [(size, width) for size in (first, *others) for width in widths][1:]
    yield from (Case(size, width, slots // width, eager) for size, width in rest)
    yield from (Case(size, width, slots // width, (HERE, HERE_COMPILED, PEER_COMPILED)) for size, width in rest)


def ready_side(
    setting: Setting, budget: Budget, case: Case, name: str, learners: dict[str, Learner], batches: Sequence[Batch]
) -> Side | str:
    """Build a side, its model too unless `learners` has it, and make a first round; the reason where that fails."""
    compiles = name == PEER_COMPILED and name not in learners
    if budget.left_s <= (setting.choose(_COMPILE_S.get(case.size, 40), 0) if compiles else 0):
        return NOT_REACHED
    if reason := refusal(name):
        return reason
    try:
        if name not in learners:
            learners[name] = build_side_model(setting, name, setting.build_config(case.size))
        side = build_side(setting, name, learners[name], batches)
        side.round()
        measure_peak(setting, side)
    except Exception as error:  # of any compiler or kernel: the other sides are measured nevertheless
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}"
    else:
        return side
    learners.pop(name, None)  # outside of `except`, which holds on to the failed step's tensors
    free_memory(setting)
    return reason


def measure_peak(setting: Setting, side: Side) -> None:
    """Make a round and note the most memory that it takes besides what lay there before."""
    if not setting.is_cuda:
        side.round()
        return
    torch.cuda.reset_peak_memory_stats(setting.device)
    before = torch.cuda.memory_allocated(setting.device)
    side.round()
    side.peak_bytes = torch.cuda.max_memory_allocated(setting.device) - before


def take_turns(setting: Setting, budget: Budget, sides: Sequence[Side]) -> None:
    """Time a round of each side, one after the other, several times: A B A B."""
    for _ in range(setting.choose(6, 2)):
        if budget.is_spent:
            return
        for side in sides:
            side.times_ms.append(setting.ms(side.round) / len(side.losses))


def figures(
    setting: Setting,
    report: Report,
    config: BertConfig,
    shapes: Sequence[BatchShape],
    side: Side,
    sides: Sequence[Side],
) -> Row:
    """Figures of a side."""
    if not side.times_ms:
        return {"side": side.name, "outcome": NOT_REACHED}
    ms = statistics.median(side.times_ms)
    tokens = statistics.mean(shape.num_tokens for shape in shapes)
    flops_per_s = statistics.mean(useful_flops(config, shape) for shape in shapes) / (ms / 1000)
    ceilings = ceilings_of(report)
    predicted = predicted_ms(side.name, config, shapes, ceilings)
    sheet = data_sheet_flops_per_s(torch.cuda.get_device_name(setting.device)) if setting.is_cuda else None
    memory = None if side.peak_bytes is None else (side.peak_bytes + side.learner.num_bytes) / 2**30
    return {
        "side": side.name,
        "tokens": tokens,
        "ms": ms,
        "spread": (max(side.times_ms) - min(side.times_ms)) / ms,
        "tokens/s": 1000 * tokens / ms,
        "MFU of measured rate": flops_per_s / ceilings.product_flops_per_s,
        "MFU of data sheet": None if sheet is None else flops_per_s / sheet,
        "× the best here": times_best_here(side, sides),
        "peak GiB": memory,
        "loss without dropout": side.loss_without_dropout(),
        "predicted ms": predicted,
        "measured / predicted": None if predicted is None else ms / predicted,
    }


def ceilings_of(report: Report) -> Ceilings:
    """Ceilings with the rates that this run measured, and those of an H200 where it did not."""
    products, copies, known = rate_per_s(report, LARGE_PRODUCT), rate_per_s(report, COPY), Ceilings()
    return Ceilings(products or known.product_flops_per_s, copies or known.copy_bytes_per_s)


def times_best_here(side: Side, sides: Sequence[Side]) -> float | None:
    """Time of a side as a multiple of the best one here without attention dropout: the median of paired ratios."""
    own = [other for other in sides if other.name in (HERE, HERE_COMPILED)]
    if not own:
        return None
    best = min(own, key=lambda other: statistics.median(other.times_ms))
    return statistics.median(a / b for a, b in zip(side.times_ms, best.times_ms, strict=True))


def free_memory(setting: Setting) -> None:
    """Give the memory of models that are gone back to the card."""
    gc.collect()
    if setting.is_cuda:
        torch.cuda.empty_cache()
