"""Gauges of a run: its newest measurements, for Prometheus and the boards that read it.

Ray exports them on the node of the run's driver as `ray_bert_NAME`, with the labels `run`, `name` and `split`. They are
values of the whole run, over all its workers, so there is no label for a rank.
"""

import re
from functools import cache
from typing import TYPE_CHECKING

from orchestrator.results import MetricEvent

if TYPE_CHECKING:
    from ray.util.metrics import Gauge

PREFIX = "bert_"
LABELS = ("run", "name", "split")


class RunGauges:
    """Gauges of one run of the connected Ray, which keep their last values until its driver ends."""

    def __init__(self, run_id: str, name: str) -> None:
        self._labels = {"run": run_id, "name": name}

    def show(self, event: MetricEvent) -> None:
        """Set the gauges of all measurements of an event, and that of its step."""
        for name, value in {**event.values, "step": event.step}.items():
            _gauge(name).set(float(value), {**self._labels, "split": event.split})


@cache
def _gauge(measurement: str) -> "Gauge":
    """The process's gauge for measurements of a name, whichever run they are of."""
    from ray.util.metrics import Gauge

    name = PREFIX + re.sub(r"\W", "_", measurement)
    return Gauge(name, description=f"{measurement} of a run, as last measured", tag_keys=LABELS)
