"""One run as other trackers take it: parameters, measurements by step, tags and notes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry


@dataclass(frozen=True)
class Measurement:
    """One value of a measurement; NaN where it was no number."""

    name: str
    """Name with its split: `train/loss`."""
    step: int
    value: float


@dataclass(frozen=True)
class ExportedRun:
    """A run or a trial."""

    record: RunRecord
    parameters: Mapping[str, Any]
    tags: Sequence[str]
    notes: Sequence[str]
    measurements: Sequence[Measurement]
    """Measurements in the order of their steps."""
    result: Mapping[str, float]
    """Latest value of each measurement, the kept model's where there is one."""

    @property
    def title(self) -> str:
        """Name that tells runs apart: a trial's has its number."""
        number = "" if self.record.number is None else f" trial {self.record.number}"
        return f"{self.record.name}{number}"

    def renamed(self, new_name: Callable[[str], str]) -> Self:
        """The same run with other names of its parameters and measurements."""
        return replace(
            self,
            parameters={new_name(path): value for path, value in self.parameters.items()},
            measurements=[replace(one, name=new_name(one.name)) for one in self.measurements],
        )


def load_runs(registry: Registry, run_ids: Iterable[str], *, where: str = "") -> list[ExportedRun]:
    """Runs by the beginnings of their ids, each with its trials; a query's runs where no ids are given.

    Raises: NotFoundError; InputError for a query with an error.
    """
    wanted: dict[str, None] = {}
    for run_id in [registry.run(prefix).id for prefix in run_ids] or registry.run_table(where).values("id"):
        wanted[run_id] = None
        wanted |= dict.fromkeys(str(row["id"]) for row in registry.trials.table(run_id).records)
    records = [registry.run(run_id) for run_id in wanted]
    refusals = registry.test_refusals(wanted)
    runs_first = sorted(records, key=lambda record: record.parent_id is not None)
    return [_load(registry, record, refusals.get(record.id)) for record in runs_first]


def _load(registry: Registry, record: RunRecord, refusal: str | None) -> ExportedRun:
    """Load what is exported of a run; that its test score is refused, and why, is a note."""
    refused = [] if refusal is None else [f"The test score is refused: {refusal}."]
    history = registry.metrics.history_table(record.id).records
    points = [
        Measurement(f"{row['split']}/{row['name']}", row["step"], row["value"])
        for row in sorted(history, key=lambda row: row["step"])
    ]
    return ExportedRun(
        record,
        registry.parameters(record.id),
        registry.tags(record.id),
        [*refused, *(note.text for note in registry.annotations.notes(record.id))],
        points,
        registry.metrics.latest(record.id),
    )
