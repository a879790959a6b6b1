"""Stand-ins for what a run is handed: a recorder and a status line that only write down what they are told."""

import threading
from dataclasses import dataclass, field
from typing import Any, cast

from orchestrator.kinds.base import RunContext
from orchestrator.progress import Progress
from orchestrator.progress.run_views import RunView
from orchestrator.registry.recorder import Recorder
from orchestrator.run_states import RunState
from orchestrator.settings import Settings


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

    def show(self, view: RunView) -> None:
        self.views.append(view)

    def tell_pipe(self, line: str) -> None:
        self.shown.append(line)

    def trial_states(self, run_id: str) -> dict[str, RunState]:
        """States of a sweep's trials in a registry that has missed all of them but those `known`."""
        return self.known

    def model_folders(self, run_id: str) -> set[str]:
        return set()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith(("record_", "drop_")):
            raise AttributeError(name)
        return lambda *arguments: self.recorded.append((name, arguments))


def context_of(settings: Settings, book: Notebook) -> RunContext:
    """The context of a first attempt, which tells everything to the notebook."""
    return RunContext(
        run_id="r1",
        attempt=1,
        run_folder=f"{settings.storage}/runs/r1",
        settings=settings,
        recorder=cast(Recorder, book),
        progress=cast(Progress, book),
        superseded=threading.Event(),
    )
