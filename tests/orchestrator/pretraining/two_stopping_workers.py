"""One of two training workers in plain processes, of which the first may be asked to stop; says whether it completed.

python -m tests.orchestrator.pretraining.two_stopping_workers FOLDER RANK '[STOP_AFTER, ATTEMPT]'
"""

import json
import sys
from pathlib import Path

from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.loop import TrainingLoop
from tests.orchestrator.pretraining.pair_of_workers import leave, meet
from tests.orchestrator.pretraining.small_run import make_job

if __name__ == "__main__":
    folder, rank, (stop_after, attempt) = Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3])
    meet(folder, rank)
    job = make_job(folder, attempt, execution={"num_workers": 2, "log_every_steps": 6})
    loop = TrainingLoop(
        job, Worker(rank, 2), lambda event: None, note_step=lambda step: rank == 0 and step == stop_after
    )
    steps = job.spec.steps
    print(json.dumps(loop.train(lambda first: job.stream.batches(range(first, steps), rank, 2))))
    leave()
