"""A driver on a cluster of a head without CPUs and a node, that starts 8 event queues and says where they live.

python -m tests.orchestrator.training.queues_on_cluster
"""

import json

import ray
from ray.cluster_utils import Cluster

from orchestrator.training.event_queue import launch_event_queue


def node_of(queue: object) -> str:
    """Node of the process that this runs in."""
    return str(ray.get_runtime_context().get_node_id())


if __name__ == "__main__":
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        queues = [launch_event_queue() for _ in range(8)]
        places = ray.get([queue.__ray_call__.remote(node_of) for queue in queues])
        print(json.dumps({"driver": node_of(None), "queues": places}))
    finally:
        ray.shutdown()
        cluster.shutdown()
