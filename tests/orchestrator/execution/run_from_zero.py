"""A pretraining on a cluster whose autoscaler has started nothing yet, and a spec that no node type can hold. Says as
JSON what was there before and after, what was refused, and what the run's driver told.

python -m tests.orchestrator.execution.run_from_zero FOLDER
"""

import json
import logging
import sys
from functools import partial
from pathlib import Path

import ray

from orchestrator.errors import ClusterError
from orchestrator.execution.runner import run_spec
from orchestrator.settings import Settings
from tests.orchestrator.execution.autoscaling_cluster import autoscaling_cluster
from tests.orchestrator.pretraining.moves_on_cluster import Lines
from tests.orchestrator.pretraining.small_run import write_spec

NODE_TYPES = {
    "small": {"resources": {"CPU": 3}, "max_workers": 2},
    "with_gpu": {"resources": {"CPU": 3, "GPU": 1}, "max_workers": 2},
}


def num_nodes() -> int:
    """Number of nodes that are up."""
    return sum(node["Alive"] for node in ray.nodes())


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    lines = Lines()
    logging.getLogger("orchestrator").setLevel(logging.INFO)
    logging.getLogger("orchestrator").addHandler(lines)
    with autoscaling_cluster(folder, NODE_TYPES, max_workers=2) as cluster:
        settings = Settings.from_options(home=str(folder / "home"), address=cluster.address, environ={})
        found: dict[str, object] = {"before": num_nodes()}
        asked = partial(write_spec, folder, 20, num_workers=2, device="cpu")
        try:
            run_spec(asked(cpus_per_worker=4.0), settings=settings)
        except ClusterError as error:
            found["refused"] = str(error)
        state = run_spec(asked(cpus_per_worker=2.0), settings=settings).state  # a node holds one such worker
        found |= {"state": state, "after": num_nodes(), "lines": lines.texts}
        print(json.dumps(found))
