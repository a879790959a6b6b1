"""A training of two workers whose nodes are lost one after the other, until only the head is left. Then the same
training undisturbed. Says as JSON on which nodes the workers were, what the driver told, and the digests at the end.

python -m tests.orchestrator.pretraining.moves_on_cluster FOLDER
"""

import json
import logging
import os
import sys
from pathlib import Path

import ray
from ray._private.state import actors
from ray.cluster_utils import Cluster

from orchestrator.base.results import Event, MetricEvent
from orchestrator.pretraining.launch import _train
from tests.orchestrator.pretraining.small_run import final_digests, make_job

STEPS, LOGGED_EVERY = 1000, 10
EXECUTION = {
    "num_workers": 2,
    "placement": "spread",
    "data_cpus": 0.5,
    "log_every_steps": LOGGED_EVERY,
    "evaluate_every_steps": STEPS,
    "checkpoint_every_steps": 10,
}


class Moves:
    """What befalls the nodes, step by step: each time that workers on other nodes have trained, the next."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.names = {cluster.head_node.node_id: "head"}
        self.first, self.second = (cluster.add_node(num_cpus=3) for _ in range(2))
        self.names |= {self.first.node_id: "first", self.second.node_id: "second"}
        self.groups: list[list[str]] = []
        self.step, self.begun_at = 0, 0

    def on_event(self, event: Event) -> None:
        """Note how far the training is."""
        if isinstance(event, MetricEvent):
            self.step = event.step

    def on_wait(self) -> None:
        """Note where the workers are; the first group loses the second node, the second group the first."""
        places = sorted(
            self.names[actor["Address"]["NodeID"]]
            for actor in actors().values()
            if actor["ActorClassName"].endswith("RayTrainWorker") and actor["State"] == "ALIVE"
        )
        if len(places) == 2 and places not in self.groups:
            self.groups.append(places)
            self.begun_at = self.step
        if self.step < self.begun_at + 2 * LOGGED_EVERY or places != self.groups[-1]:  # beyond what was told before
            return
        self.begun_at = STEPS
        if len(self.groups) == 1:
            self.cluster.remove_node(self.second, allow_graceful=False)
        elif len(self.groups) == 2:
            self.cluster.remove_node(self.first, allow_graceful=False)


class Lines(logging.Handler):
    """Log records of the driver, as text."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    # A group that waits for a node that has just gone is to be placed anew soon.
    os.environ["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = "15"
    lines = Lines()
    logging.getLogger("orchestrator").setLevel(logging.INFO)
    logging.getLogger("orchestrator").addHandler(lines)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 3})
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        moves = Moves(cluster)
        moved, straight = (make_job(folder / name, steps=STEPS, execution=EXECUTION) for name in ("moved", "straight"))
        _train(moved, moves.on_event, moves.on_wait)
        _train(straight, lambda event: None, lambda: None)
        found = {
            "groups": moves.groups,
            "lines": lines.texts,
            "digests": [final_digests(folder / name, STEPS) for name in ("moved", "straight")],
        }
        print(json.dumps(found))
    finally:
        ray.shutdown()
        cluster.shutdown()
