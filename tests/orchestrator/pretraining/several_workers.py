"""One of several training workers in plain processes, joined by gloo; the first may be killed after a checkpoint.

python -m tests.orchestrator.pretraining.several_workers FOLDER RANK '{"num_workers": 3, "attempt": 1, "kill_at": 10}'
"""

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

from orchestrator.pretraining import step as step_module
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.gradient_buckets import GradientBuckets
from orchestrator.results import CheckpointEvent, Event
from tests.orchestrator.pretraining.pair_of_workers import leave, meet
from tests.orchestrator.pretraining.small_run import make_job, run

BUCKET_BYTES = 8_000
"""So small that the model has several buckets."""

if __name__ == "__main__":
    folder, rank, order = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    num_workers, attempt = order["num_workers"], order["attempt"]
    meet(folder, rank, num_workers, f"meeting-{attempt}")
    step_module.GradientBuckets = partial(GradientBuckets, bucket_bytes=BUCKET_BYTES)  # type: ignore[misc,assignment]

    def emit(event: Event) -> None:
        if isinstance(event, CheckpointEvent) and event.step == order.get("kill_at"):
            os.kill(os.getpid(), signal.SIGKILL)

    execution = {"num_workers": num_workers, "checkpoint_every_steps": 5, "log_every_steps": 2}
    job = make_job(folder, attempt, **{"execution": execution, **order.get("changes", {})})
    run(job, emit, Worker(rank, num_workers))
    leave()
