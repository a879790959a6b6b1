"""Number of steps that fit into the hours of a run, from a few steps of each phase on the run's own workers.

The measurement is a short run by the same code, with a learning rate of almost nothing, whose folder is deleted; where
it fails, the run keeps its workers' logs. What it takes beside its steps (to start, an evaluation, a model that is
written) the run itself takes as well, and its further evaluations take as long as that one. Its few steps are below
MIN_STEPS_TO_COMPILE, so that with compile_layers auto they run uncompiled; the steps that are chosen are compiled where
they are that many, and may then end before the hours do.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from statistics import fmean

from orchestrator.base.errors import RunFailedError
from orchestrator.base.results import Event, MetricEvent
from orchestrator.corpus.stream import ExampleStream
from orchestrator.pretraining.job import PretrainJob
from orchestrator.specs import PretrainSpec
from orchestrator.specs.pretrain_execution import NUM_EVALUATIONS
from orchestrator.storage import delete, join, read_bytes, write_bytes
from orchestrator.training.worker_log import worker_logs

NUM_WARM_STEPS, NUM_TIMED_STEPS = 5, 15
"""Steps of each phase that warm up, and those behind them that are timed."""
USED_SHARE = 0.95
"""Share of the time that steps and evaluations are to take; steps differ, and checkpoints take some of it, too."""
_SAMPLED_EXAMPLES = 4096
"""Examples, about, by which the tokens of a step are estimated."""


def timed_spec(spec: PretrainSpec) -> PretrainSpec:
    """The spec of the measurement: as many steps of each phase, and nothing that is kept."""
    num_steps = (NUM_WARM_STEPS + NUM_TIMED_STEPS) * len(spec.phases)
    alike = {"share": 1.0 / len(spec.phases), "learning_rate": None}
    execution = {
        **{"log_every_steps": NUM_WARM_STEPS, "evaluate_every_steps": num_steps, "snapshot_steps": ()},
        **dict.fromkeys(("checkpoint_every_steps", "checkpoint_every_minutes")),
    }
    changes = {
        "learning_rate": 1e-12,
        "phases": tuple(phase.model_copy(update=alike) for phase in spec.phases),
        "execution": spec.execution.model_copy(update=execution),
    }
    return spec.with_steps(num_steps).model_copy(update=changes)


def choose_steps(
    spec: PretrainSpec,
    job_of: Callable[[PretrainSpec, str], PretrainJob],
    run_folder: str,
    train: Callable[[PretrainJob, Callable[[Event], None]], None],
    left_s: Callable[[], float],
) -> int:
    """Measure steps, and return how many of them fit into the time that is left.

    Args:
        job_of: makes the job of a spec, in a folder on the storage.
        run_folder: folder of the run, whose name is the run's.
        train: carries a job out, and tells its events.
        left_s: returns the seconds that are left.

    Raises: RunFailedError where there is no time for a step of each phase; what `train` raises.
    """
    measured: list[MetricEvent] = []
    told_at: dict[str, float] = {}  # by split, the last step's

    def note(event: Event) -> None:
        if isinstance(event, MetricEvent):
            measured.append(event)
            told_at[event.split] = time.monotonic()

    begun_at, scratch = time.monotonic(), join(run_folder, "measurement")
    job = job_of(timed_spec(spec), join(scratch, run_folder.rstrip("/").rpartition("/")[2]))
    delete(scratch)  # of an attempt that was killed: nothing goes on from its checkpoint
    try:
        train(job, note)
    except RunFailedError:  # it names the workers' logs
        with suppress(OSError):  # on a full disk the error itself counts
            for *_, path in worker_logs(job.run_folder):
                write_bytes(join(run_folder, path.removeprefix(job.run_folder)), read_bytes(path))
        raise
    except KeyboardInterrupt as interrupt:  # the step that it saved is deleted with the measurement
        vars(interrupt)["step"] = None
        raise
    finally:
        delete(scratch)
    seconds = step_seconds(job.stream, measured)
    beside_s = time.monotonic() - begun_at - (NUM_WARM_STEPS + NUM_TIMED_STEPS) * sum(seconds)
    mean_s = sum(phase.share * each for phase, each in zip(spec.phases, seconds, strict=True))
    remaining_s = USED_SHARE * (left_s() - max(0.0, beside_s))
    evaluation_s = max(0.0, told_at.get("validation", 0.0) - told_at["train"])
    if spec.execution.evaluate_every_steps is None:
        remaining_s -= (NUM_EVALUATIONS - 1) * evaluation_s
    else:
        mean_s += evaluation_s / spec.execution.evaluate_every_steps
    if remaining_s < mean_s * len(spec.phases):
        raise RunFailedError(
            f"steps auto: a step takes {mean_s:.2g} s, starting and ending {beside_s:.0f} s, and {left_s():.0f} s are "
            f"left of execution.max_hours {spec.execution.max_hours:g}; raise it"
        )
    return int(remaining_s / mean_s)


def step_seconds(stream: ExampleStream, measured: Sequence[MetricEvent]) -> list[float]:
    """Seconds of a step of each phase, from the speeds of the steps behind those that warm up."""
    seconds, first = [], 0
    speeds = {event.step: event.values["tokens_per_s"] for event in measured if event.split == "train"}
    for _, num_steps, size in stream.config.phases:
        timed = range(first + NUM_WARM_STEPS, first + num_steps)
        sampled = stream.batches(timed[: max(1, _SAMPLED_EXAMPLES // size)])
        num_tokens = fmean(len(batch.input_ids) for _, batch in sampled)
        seconds.append(num_tokens * fmean(1 / speed for step, speed in speeds.items() if step - 1 in timed))
        first += num_steps
    return seconds
