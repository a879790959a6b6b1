"""The contract of a kind of run, and what a kind is handed.

    spec ─► preflight ─► facts, disk, resources ─► run ─► record
              └─────────── inputs: Resolved ────────┘

A kind is one object in the list `KINDS`. Its spec is a file in `specs/` and an entry of the union in
`specs/pipeline.py`. Plans and the runner ask every kind the same questions and know none by name.

All methods but `run` and `record` start nothing, write nothing and load no Ray: `orchestrator plan` calls them. `run`
works on a connected Ray and may be called again with the same run folder, after an interruption: it goes on where the
earlier attempt ended. `record` writes the result to the registry and may be called twice.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, Protocol, TypeVar

from bert_core.config import BertConfig
from bert_core.constants import Precision
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.console import Progress, duration
from orchestrator.base.errors import superseded
from orchestrator.base.results import DriftEvent, Event, MessageEvent, MetricEvent
from orchestrator.base.settings import Settings
from orchestrator.cluster.capacity import Processes, cluster_resources
from orchestrator.cluster.gpus import find_gpu_problem, have_bf16
from orchestrator.corpus.document_batches import check_text
from orchestrator.corpus.input_files import find_files
from orchestrator.kinds.resolved import Resolved
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.specs import Spec
from orchestrator.specs.corpus import text_sources_of
from orchestrator.specs.loading import parse_spec, spec_values
from orchestrator.specs.precision import asks_auto, with_precision
from orchestrator.specs.pretrain import pretraining_of
from orchestrator.specs.references import Product
from orchestrator.specs.task import task_of

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=Spec)
R = TypeVar("R")
Fact = tuple[str, str]
"""A line of a plan: what it is about, and its value as text."""


NARROW = 256
"""Hidden size below which a training step on a CPU takes longer in bf16 than in fp32."""


def is_narrow(configs: Iterable[BertConfig | None]) -> bool:
    """Whether one of the models, as far as they are known, is too narrow to be faster in bf16 on a CPU."""
    return any(config is not None and config.hidden_size < NARROW for config in configs)


@dataclass(frozen=True)
class DiskUse:
    """Bytes of one sort of files of a run, at most at one time."""

    what: str
    num_bytes: int
    shared_as: str | None = None
    """Identity of files that several stages read and only the first one writes; None for the run's own."""


@dataclass(frozen=True)
class Resources:
    """Ray resources that a run takes of the cluster."""

    total: Mapping[str, float]
    """Ray resources held at once, by name: `CPU`, `GPU`."""
    processes: Sequence[Processes]
    """The processes that hold them, each on one node: the training workers, or one trial at least."""
    with_gpus: "Resources | None" = None
    """Resources that the run takes instead where there are enough GPUs for that: with `device: auto`."""
    up_to: float = 1.0
    """Number of times that it takes `total` where the cluster has so much: trials at a time, or workers of a range."""

    def on(self, have: Mapping[str, float]) -> "Resources":
        """Resources that the run takes of a cluster that has these in all: the one place that decides about GPUs."""
        if self.with_gpus is None or have.get("GPU", 0.0) < self.with_gpus.total.get("GPU", 0.0):
            return self
        return replace(self.with_gpus, up_to=self.up_to)

    def unused_gpus(self, have: Mapping[str, float]) -> str | None:
        """Warning for a person whose cluster has GPUs, but too few, so that the run takes none; None otherwise."""
        if self.with_gpus is None or self.on(have) is not self or not have.get("GPU"):
            return None
        return (
            "training on CPUs: execution.device auto takes a GPU for each worker; GPUs needed: "
            f"{self.with_gpus.total['GPU']:g}, there: {have['GPU']:g}; lower execution.num_workers to use GPUs"
        )

    @classmethod
    def of_one_process(cls, cpus: float = 1.0, gpus: float | Literal["auto"] = 0.0) -> "Resources":
        """Resources of a run in one process, or in one at a time at least; `auto` is a GPU if available."""
        if gpus == "auto":
            return replace(cls.of_one_process(cpus), with_gpus=cls.of_one_process(cpus, 1.0))
        total = {"CPU": cpus} | ({"GPU": gpus} if gpus else {})
        return cls(total, [Processes(1, total)])


@dataclass(frozen=True)
class MeasuredTime:
    """Time that a run would take, from a small part of it that was done."""

    seconds: float
    of_what: str
    """Part of the run that takes that long: so many steps, or so many trials."""
    by: str = "a few steps"
    """Part of the run that was done."""


class StageRuns(Protocol):
    """Starts and resumes the runs of a pipeline's stages."""

    def start(self, spec: Spec, tags: Sequence[str] = ()) -> RunRecord:
        """Carry a stage out as a new run."""

    def resume(self, record: RunRecord, spec: Spec) -> RunRecord:
        """Make another attempt at the run of a stage."""


@dataclass(frozen=True)
class RunContext:
    """One attempt at a run: its folder, its settings, and the recorder and progress that it reports to."""

    run_id: str
    attempt: int
    run_folder: str
    """The run's place on the storage; what an earlier attempt left is there."""
    settings: Settings
    recorder: Recorder
    progress: Progress
    superseded: threading.Event
    """Set when a later attempt, on whatever machine, works on the same run."""
    allow_drift: bool = False
    """Whether this attempt may go on although what the run reads has changed since an earlier one."""
    show: Callable[[MetricEvent], None] = lambda event: None
    """Shows a measurement to those who watch the cluster."""
    stages: StageRuns | None = None
    """Runs of a pipeline's stages."""

    def take_event(self, event: Event) -> None:
        """Record what a worker reports, show a measurement, log a message, and warn of a drift.

        Raises: RunStoppedError when this attempt has been superseded.
        """
        self.refuse_if_superseded()
        self.recorder.record_events(self.run_id, [event])
        if isinstance(event, MetricEvent):
            self.show(event)
        elif isinstance(event, MessageEvent):
            logger.log(logging.getLevelNamesMapping()[event.level.upper()], event.text)
        elif isinstance(event, DriftEvent):
            self.mark_drift(event.step, event.differences)

    def mark_drift(self, step: int, differences: Sequence[str]) -> None:
        """Warn that the attempt goes on with changed inputs, and tag the run `drift`."""
        for difference in differences:
            logger.warning(f"goes on from step {step:,} although this has changed: {difference}")
        self.recorder.registry.annotations.tag(self.run_id, ["drift"])

    def refuse_if_superseded(self) -> None:
        """Raise RunStoppedError when this attempt has been superseded."""
        if self.superseded.is_set():
            raise superseded(self.run_id)


class Kind(ABC, Generic[S, R]):
    """A kind of run, for specs of the class S and with results of the class R.

    Every method raises errors that a person can mend, of `OWN_ERRORS`, with field, value and remedy in the message.
    """

    spec: type[S]
    products: frozenset[Product] = frozenset()
    """Products that later stages of a pipeline can take from a run of this kind."""
    resumes_midway: bool = False
    """Whether an interrupted run goes on from the midst of its work."""

    @property
    def name(self) -> str:
        """The word after `kind:` in a spec."""
        return str(self.spec.model_fields["kind"].default)

    def for_spec(self, spec: S) -> "AnyKind":
        """Return the kind itself, or the object for one of the ways in which it works, as the spec asks for."""
        return self

    # Before a run: checks and plans.

    def preflight(self, spec: S, inputs: Resolved) -> None:
        """Refuse a spec that cannot run, as far as its files, models and tokenizers tell before anything starts."""
        for source in text_sources_of(spec):
            check_text(source)
        inputs.check(spec)
        self.check(spec, inputs)

    def check(self, spec: S, inputs: Resolved) -> None:
        """Refuse a spec that cannot run. Its text files, models and tokenizers exist, as `preflight` has seen."""

    def facts(self, spec: S, inputs: Resolved) -> Iterator[Fact]:
        """Yield the lines of a plan that only this kind knows: steps, trials, parameters, memory."""
        yield from ()

    def disk(self, spec: S, inputs: Resolved) -> Iterator[DiskUse]:
        """Yield what a run writes to the storage, at its largest, as far as that is known before it starts."""
        yield from ()

    def measure_time(self, spec: S, inputs: Resolved) -> MeasuredTime | None:
        """Do a small part of a run on this machine's CPU, and return how long all would take.

        Random weights and a tokenizer of the first text stand in for what an earlier stage will make. Returns None
        where a run takes a GPU, has long steps, or reads what only an earlier run decides. Takes seconds.
        """
        return None

    def resources(self, spec: S) -> Resources:
        """Resources that a run takes of the cluster."""
        return Resources.of_one_process()

    def settle_precision(self, spec: S, inputs: Resolved) -> S:
        """Put what `precision: auto` comes to on the connected Ray in its place, for the run and its record.

        Raises: SpecError where another field does not go with it.
        """
        if not asks_auto(spec):
            return spec
        asked, pretraining = self.resources(spec), pretraining_of(spec)
        labels = {} if pretraining is None else pretraining.execution.node_labels
        taken = asked.on(cluster_resources())
        on_gpus = bool(taken.total.get("GPU")) and (taken is asked or find_gpu_problem(labels) is None)
        is_slower = not on_gpus and is_narrow(self.model_configs(spec, inputs))  # before the nodes are asked
        precision: Precision = "bf16" if not is_slower and have_bf16(on_gpus=on_gpus, labels=labels) else "fp32"
        logger.info(f"precision {precision}, by the {'GPUs' if on_gpus else 'CPUs'} and the width of the model")
        settled: S = parse_spec(spec_values(with_precision(spec, precision)))  # type: ignore[assignment]
        return settled

    # The run.

    def check_resume(self, spec: S, run_folder: str) -> None:
        """Check, before anything starts, that an attempt without drift can go on from what a run's folder has.

        What takes long to find out is left to the attempt itself. Raises: CheckpointError, naming what has changed.
        """

    def check_more_points(self, recorded: S, spec: S) -> None:
        """Check that the search space has more points than a recorded search has tried. Raises: InputError."""

    @abstractmethod
    def run(self, spec: S, inputs: Resolved, context: RunContext) -> R:
        """Carry the spec out on the connected Ray and return its result.

        `spec` names no `@stage` any more. Measurements go to `context.recorder` while the run works.

        Raises: the work's own errors; RunStoppedError when a later attempt has superseded this one.
        """

    @abstractmethod
    def record(self, result: R, run_id: str, recorder: Recorder) -> RunOutcome:
        """Write a result's scores, data and models to the registry; return what stands in the run's own row."""

    def summary(self, run: RunRecord, registry: Registry) -> Iterator[str]:
        """Yield lines for a person on the result of a run that has completed; the first line stands by itself."""
        yield f"completed after {duration(run.seconds or 0.0)}"

    def summary_lines(self, run_id: str, registry: Registry) -> list[str]:
        """List the lines of `summary`; the run is complete without them, so that trouble costs the lines alone."""
        try:
            return list(self.summary(registry.run(run_id), registry))
        except Exception as error:
            return [f"the result cannot be shown: {error}"]

    # Stages of a pipeline: when a run can stand for one, and what it will leave to later ones.

    def input_identity(self, spec: S, inputs: Resolved) -> list[Any]:
        """Return plain values that change when any file that the spec reads does.

        A stage is used again, or gone on with, only where these, and the spec's fingerprint, are the same.
        """
        files = [file for source in text_sources_of(spec) for file in find_files(source)]
        asked = task_of(spec)
        tasks = [] if asked is None else [inputs.task(asked)]
        return [
            *([file.path, file.num_bytes, file.version] for file in files),
            *([split, task.fingerprint(split)] for task in tasks for split in task.splits),
            *(inputs.content_digest(field, name) for field, name in inputs.names_of(spec)),
        ]

    def model_configs(self, spec: S, inputs: Resolved) -> Iterator[BertConfig | None]:
        """Yield the configuration of each model that a run may leave; None where only the run decides it."""
        yield from ()

    def vocab_size(self, spec: S, inputs: Resolved) -> int | None:
        """Return the size of the vocabulary that a run leaves; None where only the run decides."""
        return None

    def tokenizer_like(self, spec: S, inputs: Resolved) -> Tokenizer | None:
        """Return a tokenizer similar to what a run will leave, to measure with; None where nothing tells."""
        return None


AnyKind = Kind[Any, Any]
