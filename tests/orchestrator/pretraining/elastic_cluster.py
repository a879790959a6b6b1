"""A cluster of one machine that a node joins and leaves while a run trains, and the driver of that run beside it.

python -m tests.orchestrator.pretraining.elastic_cluster FOLDER
"""

import os
import subprocess
import sys
from pathlib import Path

from ray.cluster_utils import Cluster

from orchestrator.pretraining.batch_trace import TRACE_VARIABLE
from tests.waiting import PATIENCE_S, wait_until

STORE_BYTES = 100 << 20


def num_steps_of(num_workers: int, trace: Path) -> int:
    """Number of steps that a group of so many workers has begun."""
    texts = [path.read_text() for path in trace.glob("attempt-1/rank-0.jsonl")]
    return sum(text.count(f'"num_workers": {num_workers},') for text in texts)


def main(folder: Path) -> None:
    """Add a node once some steps of a narrow group have ended, and take it away once some of a wider one have."""
    trace = folder / "trace"
    os.environ |= {TRACE_VARIABLE: str(trace), "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "30"}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "object_store_memory": STORE_BYTES})
    try:
        cluster.add_node(num_cpus=2, object_store_memory=STORE_BYTES)
        command = [sys.executable, "-m", "tests.orchestrator.pretraining.elastic_run", str(folder), cluster.address]
        with subprocess.Popen(command) as driver:
            try:
                wait_until(lambda: num_steps_of(2, trace) >= 10, "no group of 2 has trained")
                node = cluster.add_node(num_cpus=2, object_store_memory=STORE_BYTES)
                wait_until(lambda: num_steps_of(3, trace) >= 70, "no group of 3 has trained")
                cluster.remove_node(node, allow_graceful=False)
                driver.wait(PATIENCE_S)
            finally:
                driver.kill()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
