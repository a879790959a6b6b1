"""Time of a pretraining on this machine's CPU, from a few of its steps: a model with random weights, the run's batches.

Nothing is written, and no worker is started. The time is that of one worker's part of a step; where several workers
share the machine's CPUs, or wait for one another, it is more.
"""

import time

from bert_core.config import BertConfig
from bert_core.heads import BertForPreTraining
from orchestrator.corpus.stream import ExampleStream
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.device_batch import DeviceBatch
from orchestrator.pretraining.step import StepContext, training_step
from orchestrator.specs import PretrainSpec
from orchestrator.training.step_time import (
    NUM_MEASURED_STEPS,
    example_seconds,
    measure_update,
    num_measured_examples,
    on_threads,
)


def measure_training(spec: PretrainSpec, config: BertConfig, stream: ExampleStream) -> float | None:
    """Measure steps of each phase; returns the seconds of all steps, or None for a model too large to measure.

    Args:
        stream: the run's examples, or those of the beginning of its text.
    """
    share = -(-spec.global_batch_size // spec.execution.min_workers)
    sizes = [num_measured_examples(config, length, share) for length, _ in spec.phase_steps()]
    if not all(sizes):
        return None
    with on_threads(spec.threads_per_worker):
        model = BertForPreTraining.from_config(config, seed=spec.seed)
        model.train()
        context = StepContext.build(spec, model, Worker(), warn=lambda message: None)
        seconds, first = 0.0, 0
        for size, (_, steps) in zip(sizes, spec.phase_steps(), strict=True):
            measured = range(first, first + min(steps, NUM_MEASURED_STEPS))
            seconds += steps * _measure(context, stream, measured, size, share) * share
            first += steps
    return seconds


def _measure(context: StepContext, stream: ExampleStream, steps: range, num_examples: int, share: int) -> float:
    """Seconds of an example of a worker's share in these steps, of which about so many examples are taken."""
    measured, num_sequences = [], 0
    num_parts = -(-context.spec.global_batch_size // num_examples)
    for step, batch in stream.batches(steps, 0, num_parts):
        begun_at = time.perf_counter()
        training_step(context, step, DeviceBatch.copied(batch, context.worker.device), learning_rate=0.0)
        measured.append(time.perf_counter() - begun_at)
        num_sequences += batch.num_sequences
    update_s = measure_update(context.model, context.optimizer)
    return example_seconds(measured, update_s, num_sequences / len(measured), share)
