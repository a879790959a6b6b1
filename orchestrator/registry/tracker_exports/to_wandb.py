"""Offline runs of Weights & Biases, written by its own library: nothing is sent before somebody runs `wandb sync`."""

import os
from collections import defaultdict
from pathlib import Path

import wandb

from orchestrator.registry.tracker_exports.exported_run import ExportedRun


def write_run(run: ExportedRun, folder: Path) -> None:
    """Write a run; W&B knows it by its id here, so that syncing twice makes no second one."""
    settings = wandb.Settings(
        mode="offline", silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True,
        x_disable_meta=True, x_disable_machine_info=True,
    )  # fmt: skip
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    made = wandb.init(
        project=run.record.experiment[:128] or "orchestrator",
        id=run.record.id,
        name=run.title[:128],
        group=run.record.parent_id,
        job_type=run.record.kind,
        tags=[tag[:64] for tag in run.tags if tag],
        notes="\n\n".join(run.notes) or None,
        config=dict(run.parameters),
        dir=str(folder),
        settings=settings,
    )
    steps: dict[int, dict[str, float]] = defaultdict(dict)
    for one in run.measurements:
        steps[one.step][one.name] = one.value
    for step, values in sorted(steps.items()):
        made.log(values, step=step)
    for name, value in run.result.items():
        made.summary[name.replace(".", "/")] = value
    made.finish(exit_code=0 if run.record.state == "COMPLETED" else 1)


def close() -> None:
    """End W&B's own process, which writes the files; until then the last records may be missing."""
    wandb.teardown()
