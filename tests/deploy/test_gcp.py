"""The file for `ray up` on Google Cloud: whole by Google's rules, and closed.

What it has in common with the other cluster files: tests/orchestrator/cluster/test_cluster_files.py.

No cloud is reached: Ray's own provider does its work against stand-ins that answer for Google's services.

Alone: .venv/bin/pytest tests/deploy/test_gcp.py
"""

import json
import re
import shlex
import stat
from importlib.resources import files
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from ray.autoscaler._private.gcp import config as gcp_provider
from ray.autoscaler._private.gcp.node import GCPCompute
from ray.autoscaler._private.util import prepare_config
from ray.autoscaler.tags import TAG_RAY_NODE_NAME

from tests.deploy.recipes import DEPLOY, read_yaml

FILE = DEPLOY / "cluster.gcp.yaml"
TEXT = FILE.read_text("utf-8")
(CONFIG,) = read_yaml(FILE)
SCHEMAS = json.loads((files("googleapiclient") / "discovery_cache/documents/compute.v1.json").read_text("utf-8"))[
    "schemas"
]
"""Google's own description of what Compute Engine accepts, as its client library brings it."""

_TYPES = {"string": str, "boolean": bool, "integer": int, "number": (int, float)}


def wrong_in(value: Any, schema: dict[str, Any], place: str) -> list[str]:
    """Problems of a request, each with its place: fields that Compute Engine would refuse or ignore."""
    if "$ref" in schema:
        schema = SCHEMAS[schema["$ref"]]
    if schema["type"] == "array":
        if not isinstance(value, list):
            return [f"{place} is no list"]
        return [each for i, item in enumerate(value) for each in wrong_in(item, schema["items"], f"{place}[{i}]")]
    if schema["type"] == "object":
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        found = [f"{place}.{name} is unknown" for name in value if name not in known and others is None]
        return found + [
            each
            for name, item in value.items()
            if name in known or others is not None
            for each in wrong_in(item, known.get(name, others), f"{place}.{name}")
        ]
    expected = int if schema.get("format") in ("int64", "uint64") else _TYPES[schema["type"]]
    if not isinstance(value, expected):
        return [f"{place} is no {schema['type']}"]
    return [f"{place} is none of {schema['enum']}"] if "enum" in schema and value not in schema["enum"] else []


@pytest.fixture
def bootstrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The configuration as Ray's provider completes it before the first machine is started."""
    monkeypatch.setenv("HOME", str(tmp_path))
    resources, accounts, compute = MagicMock(), MagicMock(), MagicMock()
    resources.projects().get().execute.return_value = {"projectId": "my-project", "lifecycleState": "ACTIVE"}
    resources.projects().getIamPolicy().execute.return_value = {"bindings": []}
    accounts.projects().serviceAccounts().get().execute.return_value = {
        "email": "ray@my-project.iam.gserviceaccount.com",
        "projectId": "my-project",
    }
    compute.projects().get().execute.return_value = {"name": "my-project", "commonInstanceMetadata": {}}
    compute.globalOperations().get().execute.return_value = {"status": "DONE"}
    compute.subnetworks().list.side_effect = AssertionError("a subnetwork of another network would be taken")
    monkeypatch.setattr(
        gcp_provider, "construct_clients_from_provider_config", lambda _: (resources, accounts, compute, None)
    )
    completed: dict[str, Any] = gcp_provider.bootstrap_gcp(prepare_config(CONFIG))
    return completed


def commands(config: dict[str, Any]) -> str:
    return "\n".join(line for kind, lines in config.items() if kind.endswith("_commands") for line in lines)


def documented_firewall_rules() -> list[dict[str, str]]:
    """Options of the commands in the file's head that make rules, by their names."""
    head = re.sub(r"\\(?: +# CHANGE.*)?\n# *", "", TEXT.partition("cluster_name:")[0])
    lines = re.findall(r"^# +(gcloud compute firewall-rules create .*?)(?:  +# .*)?$", head, re.MULTILINE)
    return [dict(re.findall(r"--([\w-]+)=(\S+)", line)) for line in lines]


def test_rays_provider_takes_the_file_and_makes_a_private_key(bootstrapped: dict[str, Any]) -> None:
    key = Path(bootstrapped["auth"]["ssh_private_key"])
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


@pytest.mark.parametrize("node_type", CONFIG["available_node_types"])
def test_what_ray_asks_of_google_is_what_google_knows(node_type: str, bootstrapped: dict[str, Any]) -> None:
    google = MagicMock()
    provider = bootstrapped["provider"]
    machines = GCPCompute(google, provider["project_id"], provider["availability_zone"], bootstrapped["cluster_name"])
    node_config = bootstrapped["available_node_types"][node_type]["node_config"]
    machines.create_instance(node_config, {TAG_RAY_NODE_NAME: f"ray-bert-lab-{node_type}"}, wait_for_operation=False)
    (call,) = google.instances().insert.call_args_list
    body = call.kwargs["body"]
    assert body["machineType"].startswith(f"zones/{CONFIG['provider']['availability_zone']}/machineTypes/")
    assert wrong_in(body, {"$ref": "Instance"}, "Instance") == []


def test_every_machine_is_in_the_closed_network() -> None:
    tags = [node["node_config"]["tags"]["items"] for node in CONFIG["available_node_types"].values()]
    networks = {
        interface["subnetwork"].rpartition("/")[2]
        for node in CONFIG["available_node_types"].values()
        for interface in node["node_config"]["networkInterfaces"]
    }
    assert tags == [["bert-lab"], ["bert-lab"]]
    assert networks == {"bert-lab"}


def test_the_documented_firewall_lets_in_ssh_from_one_address_and_the_nodes() -> None:
    ssh, nodes = documented_firewall_rules()
    assert ssh == {
        "network": "bert-lab",
        "allow": "tcp:22",
        "source-ranges": "203.0.113.7/32",
        "target-tags": "bert-lab",
    }
    assert nodes == {
        "network": "bert-lab",
        "allow": "tcp,udp,icmp",
        "source-tags": "bert-lab",
        "target-tags": "bert-lab",
    }


@pytest.mark.parametrize("line", [line for line in commands(CONFIG).splitlines() if "# CHANGE" not in line])
def test_a_command_is_one_that_a_shell_can_read(line: str) -> None:
    assert shlex.split(line)
