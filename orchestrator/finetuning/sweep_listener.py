"""Callbacks by which a sweep tells what its trials do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.progress.run_views import SweepView
from orchestrator.results import MetricEvent, TrialResult, TrialStart


@dataclass(frozen=True)
class SweepListener:
    """Callbacks that the driver calls; each may be called twice for a key."""

    on_trial_started: Callable[[TrialStart], object]
    on_trial_events: Callable[[str, Sequence[MetricEvent]], None]
    on_trial_result: Callable[[TrialResult], None]
    on_progress: Callable[[str], None]
    """Called with a line for a person about a trial: some of its evaluations, and its end."""
    on_view: Callable[[SweepView], None] = lambda view: None
    """Called with what a terminal shows of the sweep, whenever that changes."""
    on_evaluation: Callable[[str], None] = lambda line: None
    """Called with a line about an evaluation, for who sees no view: every two seconds at most."""
    on_warning: Callable[[str], None] = lambda line: None
    """Called with a line for a person about what went wrong in a trial that goes on."""
