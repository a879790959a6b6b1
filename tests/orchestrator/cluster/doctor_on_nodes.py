"""The doctor on a cluster of two nodes of this machine, all of whose CPUs are taken; then on one node that is frozen.

python -m tests.orchestrator.cluster.doctor_on_nodes STORAGE
"""

import json
import os
import signal
import sys
from dataclasses import asdict

import ray
from ray.cluster_utils import Cluster

from orchestrator.cluster.doctor import ExaminedNode, examine_nodes
from orchestrator.settings import Settings
from tests.waiting import PATIENCE_S

IMPATIENT_S = 3.0


def told(nodes: list[ExaminedNode]) -> str:
    """One line of what was found."""
    return json.dumps([asdict(node) | {"state": node.state} for node in nodes])


if __name__ == "__main__":
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        second = cluster.add_node(num_cpus=1)
        settings = Settings.from_options(storage=sys.argv[1], address=cluster.address, environ={})
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        ray.get(ray.util.placement_group([{"CPU": 1}] * 2).ready())
        print(told(examine_nodes(settings, PATIENCE_S)))
        (raylet,) = (started.process.pid for started in second.all_processes["raylet"])
        os.kill(raylet, signal.SIGSTOP)
        print(told(examine_nodes(settings, IMPATIENT_S)))
        os.kill(raylet, signal.SIGCONT)
    finally:
        ray.shutdown()
        cluster.shutdown()
