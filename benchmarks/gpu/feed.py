"""Feed of a card: the share of a step that waits for data which comes as in a training run.

Fed steps take masked and packed batches, built from text as they are asked for, through the thread and the copies of
`orchestrator.pretraining.device_batch`, which needs torch and numpy alone. The same batches lie on the device before
for the steps that take turns with these. The share is what a fed step takes longer, over its time; beside it stands
what the device's own clock saw of it: the time from asking for a batch until it was there.
"""

import statistics
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

from benchmarks.gpu.own_step import Learner, own_loss, packed_inputs
from benchmarks.gpu.results import NOT_REACHED, Report, Row, Value
from benchmarks.gpu.setting import SMALL_SIZE, Budget, Setting
from benchmarks.gpu.sides import HERE, build_side_model
from benchmarks.gpu.texts import RandomText, first_batches, generated_text
from bert_core.examples.packing import PackedBatch
from orchestrator.pretraining.device_batch import DeviceBatch, device_batches
from orchestrator.training.clocks import Clock, clock_of

LARGEST_SHARE = 0.02
"""Share of a step that may wait for data."""
_SEED = 1


@dataclass
class FedSteps:
    """Steps on batches that a feed brings."""

    learner: Learner
    batches: Iterator[tuple[int, DeviceBatch]]
    clock: Clock
    waits: list[tuple[Any, Any]] = field(default_factory=list)
    """Marks of the clock for each step: where its batch was asked for, and where it was there."""

    def make_step(self) -> None:
        asked_at = self.clock.mark()
        _, batch = next(self.batches)
        self.waits.append((asked_at, self.clock.mark()))
        (micro,) = batch.cut([batch.host])
        self.learner.step(own_loss(self.learner, (micro.sequences, micro.labels)))


def measure(setting: Setting, budget: Budget, report: Report) -> Iterator[Row]:
    """Compare fed steps with others: a row for each size, with whether the share is small enough."""
    width, batch_size, num_steps = setting.choose((128, 256, 20), (16, 4, 3))
    text = generated_text(*setting.choose((4000, 512), (100, 48)))
    for size in setting.choose(("base", "mini"), (SMALL_SIZE,)):
        named: dict[str, Value] = {"size": size, "S": width, "sequences": batch_size}
        if budget.is_spent:
            yield {**named, "outcome": NOT_REACHED}
            continue
        learner = build_side_model(setting, HERE, setting.build_config(size))
        yield named | compare(setting, learner, text, batch_size, width, num_steps)


def compare(
    setting: Setting, learner: Learner, text: RandomText, batch_size: int, width: int, num_steps: int
) -> dict[str, Value]:
    """Let fed steps and steps on batches that lie on the device take turns."""
    lying = [packed_inputs(batch, setting.device) for batch in first_batches(text, num_steps, batch_size, width, _SEED)]
    there = cycle([own_loss(learner, inputs) for inputs in lying])
    numbered = enumerate(repeated_batches(text, num_steps, batch_size, width))
    there_ms, fed_ms, waits_ms = list[float](), list[float](), list[float]()
    with closing(device_batches(numbered, setting.device)) as batches:
        fed = FedSteps(learner, batches, clock_of(setting.device))
        for place in range(1 + setting.choose(4, 2)):
            fed.waits.clear()
            ms = setting.ms(lambda: learner.step(next(there)), num_steps), setting.ms(fed.make_step, num_steps)
            if place > 0:  # in the first round libraries make their handles, and the allocator its memory
                there_ms.append(ms[0])
                fed_ms.append(ms[1])
                waits_ms.append(1000 * sum(fed.clock.seconds_between(*marks) for marks in fed.waits) / num_steps)
    share = statistics.median(1 - own / other for own, other in zip(there_ms, fed_ms, strict=True))
    return {
        "ms, batches lie there": statistics.median(there_ms),
        "ms, batches are fed": statistics.median(fed_ms),
        "ms of waiting, by the clock": statistics.median(waits_ms),
        "share that waits": share,
        "largest share": LARGEST_SHARE,
        "met": setting.choose(share <= LARGEST_SHARE, None),  # tiny steps say nothing of it
    }


def repeated_batches(text: RandomText, num_batches: int, batch_size: int, width: int) -> Iterator[PackedBatch]:
    """Build the first batches of a text again and again, each when it is asked for."""
    while True:
        yield from islice(text.batches(batch_size, width, _SEED), num_batches)
