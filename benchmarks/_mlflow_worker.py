"""MLflow's side of `registry_writing.py`, run by a Python in which MLflow is installed; it need not be the project's.

Arguments: the database's URL, and the clock: `cpu` or `wall`. Reads what to do from its standard input, a word and a
number a line, and answers each with the seconds it took.
"""

import os
import sys
import tempfile
import time

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"

from mlflow import __version__
from mlflow.entities import Metric, Param, RunStatus
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

NUM_PARAMETERS = 20


def main() -> None:
    url, clock = sys.argv[1], time.perf_counter if sys.argv[2] == "wall" else time.process_time
    with tempfile.TemporaryDirectory() as folder:
        store = SqlAlchemyStore(url, folder)
        experiment = store.create_experiment("bench")
        run = new_run(store, experiment)
        step, now = 0, int(1e3 * time.time())
        print(__version__, flush=True)
        for line in sys.stdin:
            word, number = line.split()
            begun = clock()
            if word == "points":
                for _ in range(int(number)):
                    step += 1
                    store.log_metric(run, Metric("loss", 1 / step, now, step))
            elif word.startswith("batch"):
                size = int(word.removeprefix("batch"))
                for _ in range(int(number) // size):
                    store.log_batch(run, [Metric("loss", 1.0, now, step + i) for i in range(1, 1 + size)], [], [])
                    step += size
            elif word == "trials":
                for _ in range(int(number)):
                    trial = new_run(store, experiment)
                    store.log_batch(trial, [], [Param(f"p{i}", "0.5") for i in range(NUM_PARAMETERS)], [])
                    for report in range(3):
                        store.log_metric(trial, Metric("f1", 0.5, now, report))
                    store.update_run_info(trial, RunStatus.FINISHED, now, "bench")
            print(clock() - begun, flush=True)


def new_run(store: SqlAlchemyStore, experiment: str) -> str:
    run_id: str = store.create_run(experiment, "bench", 0, [], "bench").info.run_id
    return run_id


if __name__ == "__main__":
    main()
