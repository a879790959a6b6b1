"""Results of a run of the GPU benchmark: rows of stages, written as JSON and as Markdown after every row."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bert_core.checkpoints.manifest import atomic_write_text

Value = str | int | float | bool | None
Row = Mapping[str, Value]

RESULTS = Path(__file__).parents[1] / "results"
"""Folder of the results that are kept."""
NOT_REACHED = "not reached: the time was up"
"""Outcome of a case that the time did not reach."""
DONE = "done"
"""Outcome of a stage that came to its end."""


def is_reached(row: Row) -> bool:
    return NOT_REACHED not in row.values()


@dataclass
class StageRecord:
    """Rows of one stage, and how it ended."""

    title: str
    rows: list[dict[str, Value]] = field(default_factory=list)
    seconds: float = 0.0
    ended: str = "was interrupted"
    """Outcome of the stage: `done`, or what stopped it."""
    made_with: str = ""
    """Code that measured the rows; see `Report.made_with`."""

    @property
    def is_complete(self) -> bool:
        return self.ended == DONE and all(map(is_reached, self.rows))

    @property
    def num_failed(self) -> int:
        return sum(row.get("ok") is False for row in self.rows)


@dataclass
class Report:
    """All stages of a run, and the two files that they are written to."""

    path: Path
    """The files without their endings."""
    command: str
    stages: dict[str, StageRecord] = field(default_factory=dict)
    made_with: str = ""
    """Text that is the same where two runs would measure the same: of code, packages and text."""
    earlier: dict[str, StageRecord] = field(default_factory=dict)
    """Stages of an earlier run that was made with the same, whose cases need not be measured again."""

    @classmethod
    def open(cls, path: Path, command: str, made_with: str = "") -> "Report":
        """Begin a report; stages of an earlier run of the same card and day are kept until they are run again."""
        report = cls(path, command, made_with=made_with)
        if report.json_path.exists():
            found = json.loads(report.json_path.read_text(encoding="utf-8"))
            report.stages = {name: StageRecord(**stage) for name, stage in found["stages"].items()}
        report.earlier = {name: stage for name, stage in report.stages.items() if stage.made_with == made_with}
        return report

    @property
    def json_path(self) -> Path:
        """The file for programs."""
        return self.path.with_name(self.path.name + ".json")

    @property
    def markdown_path(self) -> Path:
        """The file for people."""
        return self.path.with_name(self.path.name + ".md")

    def rows(self, stage: str, **wanted: Value) -> list[dict[str, Value]]:
        """Find the rows of a stage that have these values."""
        return _find(self.stages, stage, wanted)

    def earlier_rows(self, stage: str, **wanted: Value) -> list[dict[str, Value]]:
        """Find the rows with these values that an earlier run has, where it was made with the same."""
        return _find(self.earlier, stage, wanted)

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        content = {"command": self.command, "stages": {name: asdict(stage) for name, stage in self.stages.items()}}
        atomic_write_text(self.json_path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        atomic_write_text(self.markdown_path, self.markdown())

    def markdown(self) -> str:
        parts = [f"# {self.path.name}", f"    {self.command}"]
        for name, stage in self.stages.items():
            parts.append(f"## {name}\n\n{stage.title}\n\n{stage.ended}, {stage.seconds:.0f} s")
            parts.append(table(stage.rows))
        return "\n\n".join(part for part in parts if part) + "\n"


def _find(stages: Mapping[str, StageRecord], stage: str, wanted: Row) -> list[dict[str, Value]]:
    record = stages.get(stage, StageRecord(""))
    return [row for row in record.rows if all(row.get(name) == value for name, value in wanted.items())]


def table(rows: Iterable[Row]) -> str:
    """Write rows as one Markdown table, with every column that any of them has."""
    rows = list(rows)
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [names, ["---"] * len(names), *([cell(row.get(name)) for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if rows else ""


def cell(value: Value) -> str:
    """Write a value for a table: numbers with four digits, nothing as a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    return value.replace("|", "/").replace("\n", " ")
