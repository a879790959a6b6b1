"""A cluster of a head without CPUs, whose autoscaler starts nodes on this machine when work asks for them.

Ray's own `AutoscalingCluster` is not used: Ray's wheel lacks the file that it reads, and it ends every Ray there is.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import ray
import yaml
from ray.cluster_utils import Cluster

from tests.orchestrator.execution.slow_nodes import SlowNodes

_EMPTY_LISTS = (
    *("cluster_synced_files", "rsync_exclude", "rsync_filter", "initialization_commands", "setup_commands"),
    *("head_setup_commands", "worker_setup_commands", "head_start_ray_commands", "worker_start_ray_commands"),
)
_HEAD_TYPE = "ray.head.default"
"""Type of the head that Ray's provider of pretended nodes takes for granted."""


@contextmanager
def autoscaling_cluster(folder: Path, node_types: Mapping[str, Any], max_workers: int) -> Iterator[Cluster]:
    """Start a head with the first version of Ray's autoscaler, as the cluster files do, and connect to it."""
    host, port = ray.util.get_node_ip_address(), _free_port()
    config = {
        "cluster_name": "pretended",
        "max_workers": max_workers,
        "idle_timeout_minutes": 5,
        "upscaling_speed": 20,
        "provider": {
            "type": "external",
            "module": f"{SlowNodes.__module__}.{SlowNodes.__name__}",
            "gcs_address": f"{host}:{port}",
            "launch_multiple": True,
            "use_node_id_as_ip": True,  # all nodes have the address of this machine
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
        },
        "head_node_type": _HEAD_TYPE,
        "available_node_types": {
            _HEAD_TYPE: {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            **{name: {"node_config": {}, "min_workers": 0, **values} for name, values in node_types.items()},
        },
        "auth": {},
        "docker": {},
        "file_mounts": {},
        **{name: [] for name in _EMPTY_LISTS},
    }
    file = folder / "cluster.yaml"
    file.write_text(yaml.safe_dump(config))
    os.environ |= {"RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1", "RAY_enable_autoscaler_v2": "0"}
    os.environ["PYTHONPATH"] = str(Path(__file__).parents[3])  # the autoscaler imports the provider
    head = {"num_cpus": 0, "gcs_server_port": port, "autoscaling_config": str(file)}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    (monitor,) = (started.process.pid for started in cluster.head_node.all_processes["monitor"])
    try:
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR", namespace="orchestrator")
        yield cluster
    finally:
        ray.shutdown()
        nodes = psutil.Process(monitor).children(recursive=True)  # they would outlive their head
        cluster.shutdown()
        for process in nodes:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])
