"""One of several training workers in plain processes, joined by gloo; the first may be killed, or asked to stop.

python -m tests.orchestrator.pretraining.several_workers FOLDER RANK '{"num_workers": 3, "attempt": 1, "kill_at": 10}'

Prints whether the training is complete. With `"keeps": true` it leaves the losses and the weights that it has.
"""

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch.distributed
from safetensors.torch import save_file

from orchestrator.base.results import CheckpointEvent, Event
from orchestrator.pretraining import step as step_module
from orchestrator.pretraining.batch_trace import traced
from orchestrator.pretraining.collectives import GradientBuckets, Worker
from orchestrator.pretraining.loop import TrainingLoop
from tests.orchestrator.pretraining.small_run import keeping_losses, make_job
from tests.waiting import PATIENCE_S

BUCKET_BYTES = 8_000
"""So small that the model has several buckets."""


def run_group(folder: Path, num_workers: int, attempt: int = 1, **order: Any) -> list[tuple[int, str]]:
    """Train as a group of processes; returns status and output of each, of which the first's count where it is killed.

    Where one has died the others cannot go on: gloo tells them, or they are killed here.
    """
    make_job(folder)  # the store is there before several processes open it
    values = json.dumps({"num_workers": num_workers, "attempt": attempt, **order})
    command = [sys.executable, "-m", __name__, str(folder)]
    errors = subprocess.PIPE if order.get("kill_at") else None
    workers = [
        subprocess.Popen([*command, str(rank), values], stdout=subprocess.PIPE, stderr=errors, text=True)
        for rank in range(num_workers)
    ]
    ended: list[tuple[int, str]] = []
    for worker in workers:
        if ended and ended[0][0]:
            worker.kill()
        output, _ = worker.communicate(timeout=PATIENCE_S)
        ended.append((worker.returncode, output))
    return ended


def leave() -> NoReturn:
    """Wait for the other workers, then end this process at once, as Ray ends a worker's.

    Where torch._dynamo is loaded, torch 2.13 keeps the threads of a group that was destroyed; now and then one of them
    ends the interpreter that closes down beside it with "terminate called without an active exception".
    """
    torch.distributed.barrier()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    folder, rank, order = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    num_workers, attempt = order["num_workers"], order["attempt"]
    meeting = f"file://{folder}/meeting-{attempt}"
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=num_workers)
    step_module.GradientBuckets = partial(GradientBuckets, bucket_bytes=BUCKET_BYTES)  # type: ignore[misc,assignment]
    losses: list[float] = []
    keep = keeping_losses(losses)

    def emit(event: Event) -> None:
        keep(event)
        if isinstance(event, CheckpointEvent) and event.step == order.get("kill_at"):
            os.kill(os.getpid(), signal.SIGKILL)

    execution = {"num_workers": num_workers, "checkpoint_every_steps": 5, "log_every_steps": 2}
    job = make_job(folder, attempt, **{"execution": execution, **order.get("changes", {})})
    worker, steps = Worker(rank, num_workers), job.spec.steps
    loop = TrainingLoop(job, worker, emit, note_step=lambda step: rank == 0 and step == order.get("stop_after"))
    batches = traced(lambda first: job.stream.batches(range(first, steps), rank, num_workers), worker, attempt)
    print(json.dumps(loop.train(batches)))
    if order.get("keeps"):
        (folder / f"rank-{rank}.json").write_text(json.dumps(losses))
        save_file(loop.model.state_dict(), folder / f"rank-{rank}.safetensors")
    leave()
