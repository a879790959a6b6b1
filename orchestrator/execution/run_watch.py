"""Watch of a run that another process carries out: what a terminal shows of it, as that process's own does."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.execution.waiting import age_s, progress_line
from orchestrator.progress import Progress
from orchestrator.progress.run_views import StageView
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry

if TYPE_CHECKING:
    from orchestrator.execution.recorded_views import RecordedView


class RunWatch:
    """Shows how far a run is; of a pipeline the stage that is at work."""

    def __init__(self, registry: Registry, progress: Progress) -> None:
        self._registry, self._progress = registry, progress
        self._watched: tuple[str, int] | None = None
        """Run and attempt that is shown."""
        self._view: RecordedView | None = None
        self._began_at = 0.0
        """Monotonic time at which the attempt that is shown began."""
        self._is_drawn = False

    def look(self, record: RunRecord, stages: Sequence[RunRecord]) -> None:
        """Show what a run is at.

        Args:
            stages: those of a pipeline, the newest first.
        """
        at_work = next((stage for stage in stages if not stage.state.is_final), record)
        if self._watched != (at_work.id, at_work.attempt):
            self._begin(record, at_work)
        view = None if self._view is None else self._view.read()
        if view is None:
            self._progress.status(progress_line(self._registry, at_work))
            return
        if not self._is_drawn:
            self._progress.clear()  # of the status line before it
        self._is_drawn = True
        self._progress.show(view, self._began_at)

    def _begin(self, record: RunRecord, at_work: RunRecord) -> None:
        # Whoever follows a run that has ended needs no view, nor what it imports.
        from orchestrator.execution.recorded_views import recorded_view

        view = recorded_view(self._registry, at_work)
        begun = [attempt.started_at for attempt in self._registry.attempts(at_work.id)]
        self._view, self._is_drawn = view, False
        self._began_at = time.monotonic() - age_s(begun[-1] if begun else None)
        self._progress.at_stage(_stage_view(record, at_work))
        self._watched = (at_work.id, at_work.attempt)  # last: where the registry is away, all of it is tried again


def _stage_view(record: RunRecord, at_work: RunRecord) -> StageView | None:
    """The stage of a pipeline; None where the run is none."""
    names, name = list(record.spec.get("stages") or ()), at_work.name.rpartition("/")[2]
    return StageView(names.index(name) + 1, len(names), name) if name in names else None
