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

import jsonschema
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


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """Google's schema as a JSON Schema that refuses what Compute Engine would refuse or ignore."""
    if "$ref" in schema:
        return {"$ref": f"#/$defs/{schema['$ref']}"}
    if schema["type"] == "any":
        return {}
    found = {"type": "integer" if schema.get("format") in ("int64", "uint64") else schema["type"]}
    found |= {"enum": schema["enum"]} if "enum" in schema else {}
    if schema["type"] == "array":
        found["items"] = strict(schema["items"])
    if schema["type"] == "object":
        found["properties"] = {name: strict(each) for name, each in schema.get("properties", {}).items()}
        others = schema.get("additionalProperties")
        found["additionalProperties"] = strict(others) if others else False
    return found


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
    definitions = {name: strict(each) for name, each in SCHEMAS.items()}
    instance = jsonschema.Draft202012Validator({"$ref": "#/$defs/Instance", "$defs": definitions})
    instance.validate(body)
    assert not instance.is_valid(body | {"machineSize": 1})


def test_every_machine_is_in_the_closed_network() -> None:
    for node in CONFIG["available_node_types"].values():
        assert node["node_config"]["tags"]["items"] == ["bert-lab"]
        interfaces = node["node_config"]["networkInterfaces"]
        assert {interface["subnetwork"].rpartition("/")[2] for interface in interfaces} == {"bert-lab"}


def test_the_documented_firewall_lets_in_ssh_from_one_address_and_the_nodes() -> None:
    head = re.sub(r"\\(?: +# CHANGE.*)?\n# *", "", TEXT.partition("cluster_name:")[0])
    lines = re.findall(r"^# +(gcloud compute firewall-rules create .*?)(?:  +# .*)?$", head, re.MULTILINE)
    ssh, nodes = (dict(re.findall(r"--([\w-]+)=(\S+)", line)) for line in lines)
    both = {"network": "bert-lab", "target-tags": "bert-lab"}
    assert ssh == both | {"allow": "tcp:22", "source-ranges": "203.0.113.7/32"}
    assert nodes == both | {"allow": "tcp,udp,icmp", "source-tags": "bert-lab"}


@pytest.mark.parametrize("line", [line for line in commands(CONFIG).splitlines() if "# CHANGE" not in line])
def test_a_command_is_one_that_a_shell_can_read(line: str) -> None:
    assert shlex.split(line)
