"""A look at the GPUs of a cluster of two nodes, of which one has a GPU by name alone. Says as JSON what was found.

python -m tests.orchestrator.cluster.cards_on_cluster
"""

import json

import ray
from ray.cluster_utils import Cluster

from orchestrator.cluster.gpus import find_gpu_problem, take_gpus

if __name__ == "__main__":
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        found: dict[str, object] = {"without": find_gpu_problem()}
        cluster.add_node(num_cpus=1, num_gpus=1)
        found |= {
            "refusal": find_gpu_problem(),
            "elsewhere": find_gpu_problem({"zone": "another"}),
            "auto": take_gpus("scoring", "auto"),
            "asked": take_gpus("scoring", 1.0),
        }

        @ray.remote(num_cpus=0, num_gpus=1)
        class Holder:
            """Work of others, which holds the GPU."""

            def is_there(self) -> bool:
                """Whether it has its place."""
                return True

        holder = Holder.remote()
        assert ray.get(holder.is_there.remote())
        print(json.dumps(found | {"taken": find_gpu_problem()}))
    finally:
        ray.shutdown()
        cluster.shutdown()
