"""Stand-ins for what a run is handed: a recorder and a status line that only write down what they are told; runs."""

import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, cast

from orchestrator.base.console import Progress
from orchestrator.base.console.run_views import RunView
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.kinds import resolved_inputs
from orchestrator.kinds.base import AnyKind, RunContext
from orchestrator.registry.recorder import Recorder
from orchestrator.specs import Spec
from orchestrator.specs.loading import spec_values


@dataclass
class Notebook:
    """Status lines and views that were shown, and calls of the recorder by method."""

    shown: list[str] = field(default_factory=list)
    views: list[RunView] = field(default_factory=list)
    recorded: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    given_up: threading.Event = field(default_factory=threading.Event)
    known: dict[str, RunState] = field(default_factory=dict)

    def status(self, line: str) -> None:
        self.shown.append(line)

    def in_stage(self, stage: str) -> AbstractContextManager[None]:
        return nullcontext()

    def show(self, view: RunView) -> None:
        self.views.append(view)

    def record_events(self, *arguments: Any) -> None:
        self.recorded.append(("record_events", arguments))

    @property
    def registry(self) -> "_Part":
        return _Part(self)


@dataclass
class _Part:
    """Stands for the registry, which has missed all of a sweep's trials but those `known`, and for a part of it."""

    book: Notebook
    path: str = ""

    def __getattr__(self, name: str) -> "_Part":
        return _Part(self.book, f"{self.path}.{name}".removeprefix("."))

    def __call__(self, *arguments: Any) -> Any:
        answers: dict[str, Any] = {"trials.states": self.book.known, "models.of_run": []}
        if self.path not in answers:
            self.book.recorded.append((self.path, arguments))
        return answers.get(self.path)


def context_of(settings: Settings, book: Notebook, **changes: Any) -> RunContext:
    """The context of a first attempt, which tells everything to the notebook; fields of it can be changed."""
    context = RunContext(
        run_id="r1",
        attempt=1,
        run_folder=f"{settings.storage}/runs/r1",
        settings=settings,
        recorder=cast(Recorder, book),
        progress=cast(Progress, book),
        superseded=threading.Event(),
    )
    return replace(context, **changes)


def carry_out(kind: AnyKind, spec: Spec, settings: Settings, recorder: Recorder) -> str:
    """Run a spec and record the run and its result; returns its id."""
    run = recorder.start(spec_values(spec), "f", metric="accuracy")
    folder = f"{settings.storage}/runs/{run.id}"
    context = context_of(settings, Notebook(), run_id=run.id, run_folder=folder, recorder=recorder)
    result = kind.run(spec, resolved_inputs(spec, settings), context)
    recorder.complete(run.id, kind.record(result, run.id, recorder))
    return run.id
