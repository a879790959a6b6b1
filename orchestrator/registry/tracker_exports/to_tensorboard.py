"""Event files of TensorBoard, by tensorboardX: scalars by step, parameters for its HParams page, texts.

A run has a folder of its own, called by its id, and a trial one in that of its sweep.
"""

import json
import logging
import math
from pathlib import Path

from tensorboardX import SummaryWriter
from tensorboardX.summary import hparams

from orchestrator.registry.tracker_exports.exported_run import ExportedRun

logging.getLogger("tensorboardX.x2num").setLevel(logging.ERROR)  # it warns of every NaN, which a history may hold


def write_run(run: ExportedRun, folder: Path) -> None:
    """Write the event file of a run anew."""
    place = folder / (run.record.parent_id or "") / run.record.id
    for old in place.glob("events.out.tfevents.*"):
        old.unlink()
    writer = SummaryWriter(str(place))
    begun = (run.record.started_at or run.record.created_at).timestamp()  # a history here has steps, and no times
    try:
        for one in run.measurements:
            writer.add_scalar(one.name, one.value, one.step, walltime=begun)
        _write_parameters(writer, run)
        about = {"id": run.record.id, "name": run.title, "kind": run.record.kind, "state": str(run.record.state)}
        about |= {"tags": ", ".join(run.tags)}
        writer.add_text("run", _as_code(json.dumps(about, indent=2, ensure_ascii=False)), 0)
        writer.add_text("spec", _as_code(json.dumps(dict(run.record.spec), indent=2, ensure_ascii=False)), 0)
        for number, note in enumerate(run.notes, 1):
            writer.add_text(f"note/{number}", _as_code(note), 0)
    finally:
        writer.close()


def _write_parameters(writer: SummaryWriter, run: ExportedRun) -> None:
    values = {path: value for path, value in run.parameters.items() if isinstance(value, bool | int | float | str)}
    finite = {name: value for name, value in run.result.items() if math.isfinite(value)}
    for part in hparams(values, finite):
        writer.file_writer.add_summary(part)
    for name, value in finite.items():
        writer.add_scalar(name, value, 0)  # what the HParams page shows


def _as_code(text: str) -> str:
    """Text as a block of code in Markdown, which nothing in it leaves."""
    return "\n".join(f"    {line}" for line in text.splitlines())
