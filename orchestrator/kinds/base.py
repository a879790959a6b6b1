"""The contract of a kind of run, and what a kind is handed.

    spec ─► check ─► facts, disk, resources ─► run ─► record
              └─────────── inputs: Resolved ─────┘

A kind is one object without state: a file in this package and an entry of `KINDS`. Its spec is a file in `specs/` and
an entry of the union in `specs/pipeline.py`. Planning and the runner ask every kind the same questions and know none by
name.

`check`, `facts`, `disk`, `resources`, `measure_time`, and what later stages ask of a kind, start nothing, write nothing
and load no Ray: `orchestrator plan` calls them. `run` works on a connected Ray and may be called again with the same
run folder, after an interruption: it goes on where the earlier attempt ended. `record` writes the result to the
registry and may be called twice.
"""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from bert_core.config import BertConfig
from bert_core.text.tokenization import Tokenizer
from orchestrator.cluster.capacity import Processes, has_gpus
from orchestrator.corpus.input_files import find_files
from orchestrator.errors import superseded
from orchestrator.kinds.disk import DiskUse
from orchestrator.kinds.resolved import Resolved
from orchestrator.progress import Progress, duration
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.results import Event, MetricEvent
from orchestrator.settings import Settings
from orchestrator.specs import Spec
from orchestrator.specs.corpus import text_sources_of
from orchestrator.specs.references import Product
from orchestrator.specs.task import task_of

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=Spec)
R = TypeVar("R")
Fact = tuple[str, str]
"""A line of a plan: what it is about, and its value as text."""


@dataclass(frozen=True)
class Resources:
    """Resources that a run takes of the cluster."""

    total: Mapping[str, float]
    """Ray resources held at once, by name: `CPU`, `GPU`."""
    processes: Sequence[Processes]
    """The processes that hold them, each on one node: the training workers, or one trial at least."""
    with_gpus: "Resources | None" = None
    """Resources that the run takes instead where there are enough GPUs for that: with `device: auto`."""

    up_to: float = 1.0
    """Number of times that it takes `total` where there is room: trials at a time, or workers of a range."""

    def on(self, have: Mapping[str, float]) -> "Resources":
        """Return what the run takes of a cluster that has these resources in all.

        Plans, checks of room and runs ask here, so that all of them decide alike whether a run takes GPUs.
        """
        if self.with_gpus is None or not has_gpus(self.with_gpus.total, have):
            return self
        return replace(self.with_gpus, up_to=self.up_to)

    def unused_gpus(self, have: Mapping[str, float]) -> str | None:
        """Return what to tell a person where a place has GPUs, and the run takes none as there are too few; or None."""
        if self.with_gpus is None or self.on(have) is not self or not have.get("GPU"):
            return None
        asked = self.with_gpus.total["GPU"]
        return (
            f"training on CPUs: execution.device auto takes a GPU for each worker, {asked:g} in all, and there "
            f"{'is' if have['GPU'] == 1 else 'are'} {have['GPU']:g}; lower execution.num_workers to use "
            f"{'it' if have['GPU'] == 1 else 'them'}"
        )

    @classmethod
    def of_one_process(cls, cpus: float = 1.0, gpus: float | Literal["auto"] = 0.0) -> "Resources":
        """The resources of a run that works in a single process, or in one process at a time at least.

        Args:
            gpus: `auto` for one where there is one.
        """
        if gpus == "auto":
            return replace(cls.of_one_process(cpus), with_gpus=cls.of_one_process(cpus, 1.0))
        total = {"CPU": cpus} | ({"GPU": gpus} if gpus else {})
        return cls(total, [Processes(1, total)])


@dataclass(frozen=True)
class MeasuredTime:
    """Time that a run would take on this machine, from some of its steps."""

    seconds: float
    of_what: str
    """Part of the run that takes that long: so many steps, or so many trials."""
    by: str = "a few steps"
    """Part of the run that was done to find out."""


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

    def record_events(self, events: Sequence[Event]) -> None:
        """Record what has happened in the run, and show its measurements."""
        self.recorder.record_events(self.run_id, events)
        for event in events:
            if isinstance(event, MetricEvent):
                self.show(event)

    def mark_drift(self, step: int, differences: Sequence[str]) -> None:
        """Warn that the attempt goes on with something else than before, and tag the run `drift`."""
        for difference in differences:
            logger.warning(f"goes on from step {step:,} although this has changed: {difference}")
        self.recorder.registry.annotations.tag(self.run_id, ["drift"])

    def refuse_if_superseded(self) -> None:
        """Raise RunStoppedError when this attempt has been superseded."""
        if self.superseded.is_set():
            raise superseded(self.run_id)


class Kind(ABC, Generic[S, R]):
    """A kind of run, for specs of the class S and with results of the class R.

    Errors in every method are those that a person can mend (`OWN_ERRORS`); their messages name
    the field, its value and the remedy.
    """

    spec: type[S]
    products: frozenset[Product] = frozenset()
    """Products that later stages of a pipeline can take from a run of this kind."""

    @property
    def name(self) -> str:
        """The word after `kind:` in a spec."""
        return str(self.spec.model_fields["kind"].default)

    def check(self, spec: S, inputs: Resolved) -> None:
        """Refuse a spec that cannot run, as far as that is known before anything starts.

        The caller has seen already that the spec's text files, models and tokenizers exist, and that each `@stage`
        makes what its field needs.
        """

    def facts(self, spec: S, inputs: Resolved) -> Iterator[Fact]:
        """Yield the lines of a plan that only this kind knows: steps, trials, parameters, memory.

        The kind's name, the text that is read, the disk and the resources are told by the caller.
        """
        yield from ()

    def disk(self, spec: S, inputs: Resolved) -> Iterator[DiskUse]:
        """Yield what a run writes to the storage, at its largest, as far as that is known before it starts."""
        yield from ()

    def measure_time(self, spec: S, inputs: Resolved) -> MeasuredTime | None:
        """Do a small part of a run on this machine's CPU, and return how long all would take.

        In place of what an earlier stage will make stand random weights of its size, and a tokenizer of the first text.
        Returns None where a run takes a GPU, has steps that take long, or reads what only an earlier run decides.
        Takes seconds; writes nothing.
        """
        return None

    def recorded_time(self, spec: S, registry: Registry) -> MeasuredTime | None:
        """Return how long a run takes by what recorded runs like it took; None where there are none."""
        return None

    def resources(self, spec: S) -> Resources:
        """Return the resources that a run takes of the cluster: one CPU, unless the kind says otherwise."""
        return Resources.of_one_process()

    def check_resume(self, spec: S, run_folder: str) -> None:
        """Check, before anything starts, that an attempt without drift can go on from what a run's folder has.

        What takes long to find out is left to the attempt itself. Raises: CheckpointError, naming what has changed.
        """

    @abstractmethod
    def run(self, spec: S, inputs: Resolved, context: RunContext) -> R:
        """Carry the spec out on the connected Ray and return its result.

        `spec` names no `@stage` any more. Measurements go to `context.recorder` while the run works.

        Raises: the work's own errors; RunStoppedError when a later attempt has superseded this one.
        """

    @abstractmethod
    def record(self, result: R, run_id: str, recorder: Recorder) -> RunOutcome:
        """Write a result's scores, data and models to the registry; return what stands in the run's own row.

        The result may be written a second time, which changes nothing.
        """

    def ending(self, run: RunRecord, registry: Registry) -> Iterator[str]:
        """Yield words for a person on the result of a run that has completed; the first line stands by itself."""
        yield f"completed after {duration(run.seconds or 0.0)}"

    def input_identity(self, spec: S, inputs: Resolved) -> list[Any]:
        """Return plain values that change when any file that the spec reads does.

        A completed stage is used again only where these, and the spec's fingerprint, are the same. The steps of
        snapshots are among them: they do not change a model, and yet a stage without them cannot stand for one with.
        """
        files = [file for source in text_sources_of(spec) for file in find_files(source)]
        asked = task_of(spec)
        tasks = [] if asked is None else [inputs.task(asked)]
        snapshot_steps = sorted(self.snapshot_steps(spec))
        return [
            *([file.path, file.num_bytes, file.version] for file in files),
            *([split, task.fingerprint(split)] for task in tasks for split in task.splits),
            *(inputs.content_digest(field, name) for field, name in inputs.names_of(spec)),
            *([["snapshots", snapshot_steps]] if snapshot_steps else []),
        ]

    def model_configs(self, spec: S, inputs: Resolved) -> Iterator[BertConfig | None]:
        """Yield the configuration of each model that a run may leave; None for one that only the run decides."""
        yield from ()

    def vocab_size(self, spec: S, inputs: Resolved) -> int | None:
        """Return the size of the vocabulary that a run leaves; None where only the run decides."""
        return None

    def tokenizer_like(self, spec: S, inputs: Resolved) -> Tokenizer | None:
        """Return a tokenizer that cuts text about as that of a run will, to measure with; None where nothing tells."""
        return None

    def snapshot_steps(self, spec: S) -> tuple[int, ...]:
        """Return the steps after which a run keeps its model, beside the one that it leaves at its end."""
        return ()


AnyKind = Kind[Any, Any]
