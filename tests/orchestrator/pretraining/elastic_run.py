"""Driver of an elastic run on a cluster, and of the same run with one worker; says how both went.

python -m tests.orchestrator.pretraining.elastic_run FOLDER ADDRESS
"""

import json
import os
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import ray.train

from orchestrator.base.settings import Settings
from orchestrator.execution.attempt_files import LOG_FILE
from orchestrator.execution.runner import run_spec
from orchestrator.kinds import pretrain
from orchestrator.pretraining.batch_trace import TRACE_VARIABLE, read_trace
from orchestrator.pretraining.step import label_loss
from orchestrator.registry import Registry
from tests.orchestrator.pretraining.small_run import write_spec

STEPS, CHECKPOINT_EVERY = 300, 60
STEP_S = 0.1
"""Time that a step takes at least, so that a node finds a run that still trains."""


def slow_loss(*arguments: Any) -> Any:
    """The loss of the labels, after a while."""
    threading.Event().wait(STEP_S)
    return label_loss(*arguments)


def carry_out(folder: Path, address: str, num_workers: object) -> dict[str, Any]:
    """Carry a run out; returns its state, its workers, the digests of its batches, and its log."""
    settings = Settings.from_options(home=str(folder / "home"), address=address, environ={})
    every = {"checkpoint_every_steps": CHECKPOINT_EVERY, "log_every_steps": 20}
    spec = write_spec(folder, STEPS, num_workers=num_workers, **every)
    # Batches that neither 2 nor 3 workers share equally.
    record = run_spec(spec.model_copy(update={"global_batch_size": 7}), settings=settings)
    trace = Path(os.environ[TRACE_VARIABLE])
    batches = read_trace(trace)
    trace.rename(folder / f"trace-of-{record.id}")
    with Registry(settings.registry) as registry:
        workers = [group for attempt in registry.attempts(record.id) for group in attempt.workers or ()]
    log = Path(f"{record.storage_path}/{LOG_FILE}").read_text()
    return {"state": record.state, "workers": workers, "batches": batches, "log": log}


def main(folder: Path, address: str) -> None:
    straight = carry_out(folder, address, 1)
    ray.train.ScalingConfig = partial(ray.train.ScalingConfig, elastic_resize_monitor_interval_s=5.0)
    build_request = pretrain.build_request
    pretrain.build_request = lambda *given: replace(build_request(*given), loss=slow_loss)
    elastic = carry_out(folder, address, {"min": 1, "max": 3})
    print(json.dumps({"straight": straight, "elastic": elastic}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
