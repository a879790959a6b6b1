"""The files for KubeRay: whole by the schemas of Kubernetes and of the operator, closed, and of the tested versions.

Alone: .venv/bin/pytest tests/deploy/test_kuberay.py
"""

import copy
import shlex
from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from orchestrator.cluster.capacity import Node, check_processes
from orchestrator.kinds.preflight import needed_resources
from orchestrator.specs.loading import load_spec
from tests.deploy.recipes import PINS, ROOT, cluster_specs, containers, kubernetes_object, pod_templates

KUBERNETES_VERSION = "1.34"
"""Version of Kubernetes whose schemas are asked; the fields used here are older."""

TEMPLATES = dict(pod_templates())
CLUSTERS = cluster_specs()

_TEXT, _WHOLE, _YES_OR_NO, _OBJECT = ({"type": kind} for kind in ("string", "integer", "boolean", "object"))


def _fields(required: str, **fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": required.split(), "additionalProperties": False}


_TEXTS = {"type": "object", "additionalProperties": _TEXT}
_HEAD_GROUP = {"rayStartParams": _TEXTS, "labels": _TEXTS, "template": _OBJECT}
_WORKER_COUNTS = dict.fromkeys(("replicas", "minReplicas", "maxReplicas", "idleTimeoutSeconds"), _WHOLE)
CLUSTER_SPEC = _fields(
    # The operator itself asks for rayVersion where there is a token.
    "headGroupSpec rayVersion",
    rayVersion=_TEXT,
    authOptions=_fields("", mode={"enum": ["disabled", "token"]}, secretName=_TEXT),
    enableInTreeAutoscaling=_YES_OR_NO,
    autoscalerOptions=_fields(
        "", version={"enum": ["v1", "v2"]}, idleTimeoutSeconds=_WHOLE, resources=_OBJECT, securityContext=_OBJECT
    ),
    headGroupSpec=_fields("template", **_HEAD_GROUP),
    workerGroupSpecs={
        "type": "array",
        "items": _fields(
            "groupName minReplicas maxReplicas template", groupName=_TEXT, **_WORKER_COUNTS, **_HEAD_GROUP
        ),
    },
)
JOB_SPEC = _fields(
    "rayClusterSpec entrypoint",
    entrypoint=_TEXT,
    submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]},
    metadata=_TEXTS,
    submitterPodTemplate=_OBJECT,
    shutdownAfterJobFinishes=_YES_OR_NO,
    rayClusterSpec=CLUSTER_SPEC,
    **dict.fromkeys(("backoffLimit", "preRunningDeadlineSeconds", "ttlSecondsAfterFinished"), _WHOLE),
)
"""Fields of RayCluster and RayJob that the files here use, by the definitions of KubeRay 1.7.0, which are no package; a
field that is not listed is refused: look it up in the operator's version before adding it."""


def check_pod(template: dict[str, Any]) -> None:
    pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "checked"}, "template": template}
    kubernetes_validate.validate(pod, KUBERNETES_VERSION, strict=True)


@pytest.mark.parametrize("kind", ["PersistentVolumeClaim", "NetworkPolicy"])
def test_an_object_of_kubernetes_is_whole_by_its_schema(kind: str) -> None:
    checked_with = kubernetes_validate.validate(kubernetes_object(kind), KUBERNETES_VERSION, strict=True)
    assert checked_with == KUBERNETES_VERSION


@pytest.mark.parametrize("role", TEMPLATES)
def test_a_pod_is_whole_by_the_schema_of_kubernetes(role: str) -> None:
    check_pod(TEMPLATES[role])
    broken = copy.deepcopy(TEMPLATES[role])
    broken["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(kubernetes_validate.ValidationError, match="volumeMount"):
        check_pod(broken)


@pytest.mark.parametrize(("kind", "schema"), [("RayCluster", CLUSTER_SPEC), ("RayJob", JOB_SPEC)])
def test_an_object_of_kuberay_has_fields_of_the_operators_version_alone(kind: str, schema: dict[str, Any]) -> None:
    written = kubernetes_object(kind)
    assert written["apiVersion"] == "ray.io/v1"
    jsonschema.validate(written["spec"], schema)
    with pytest.raises(jsonschema.ValidationError, match="replica"):
        jsonschema.validate({**written["spec"], "replica": 1}, schema)


def test_both_files_have_the_same_cluster() -> None:
    """But for the workers at the start: a job is submitted when those are up."""
    cluster, job = (copy.deepcopy(CLUSTERS[kind]) for kind in ("RayCluster", "RayJob"))
    assert [group.pop("replicas") for group in cluster["workerGroupSpecs"]] == [0]
    assert [group.pop("replicas") for group in job["workerGroupSpecs"]] == [4]
    assert cluster == job


@pytest.mark.parametrize("kind", CLUSTERS)
def test_ray_is_the_tested_version_and_asks_for_its_token(kind: str) -> None:
    assert CLUSTERS[kind]["rayVersion"] == PINS["ray"]
    assert CLUSTERS[kind]["authOptions"] == {"mode": "token"}


def test_a_job_starts_with_the_workers_that_its_run_asks_for() -> None:
    (group,) = CLUSTERS["RayJob"]["workerGroupSpecs"]
    limits = group["template"]["spec"]["containers"][0]["resources"]["limits"]
    node, count = {"CPU": float(limits["cpu"]), "GPU": float(limits["nvidia.com/gpu"])}, group["replicas"]
    words = shlex.split(kubernetes_object("RayJob")["spec"]["entrypoint"])
    assert words[:2] == ["orchestrator", "run"]
    assert words[3:5] == ["--address", "auto"]
    spec = load_spec(ROOT / words[2].removeprefix("/opt/lab/"), words[5:])
    (processes,) = needed_resources(spec, {name: count * each for name, each in node.items()}).processes
    check_processes([processes], [Node(node)] * count)
    assert processes.count == count


@pytest.mark.parametrize("role", TEMPLATES)
def test_no_container_is_root_or_may_become_it(role: str) -> None:
    assert TEMPLATES[role]["spec"]["securityContext"]["runAsNonRoot"]
    for container in containers(TEMPLATES[role]):
        context = container["securityContext"]
        assert not context["allowPrivilegeEscalation"]
        assert context["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.parametrize("role", TEMPLATES)
def test_no_environment_has_a_secret(role: str) -> None:
    """The operator adds the token's variable, by reference; the registry's URL is a file."""
    values = {item["name"]: item["value"] for one in containers(TEMPLATES[role]) for item in one.get("env", ())}
    assert not [name for name in values if "TOKEN" in name or "PASSWORD" in name]
    assert not [value for value in values.values() if "://" in value]


@pytest.mark.parametrize("kind", CLUSTERS)
def test_the_registrys_url_is_a_file_of_its_owner_alone(kind: str) -> None:
    head = CLUSTERS[kind]["headGroupSpec"]["template"]["spec"]
    (copied,) = head["initContainers"]
    assert copied["command"] == ["install", "-m", "0600", "/secret/registry-url", "/run/lab/registry-url"]
    environment = {item["name"]: item["value"] for item in head["containers"][0]["env"]}
    assert environment["ORCHESTRATOR_REGISTRY"] == f"file:{copied['command'][-1]}"


@pytest.mark.parametrize("role", [role for role in TEMPLATES if "submitter" not in role])
def test_storage_is_one_claim_that_many_nodes_mount(role: str) -> None:
    claim = kubernetes_object("PersistentVolumeClaim")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    pod = TEMPLATES[role]["spec"]
    claims = {volume["name"]: volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"][:1]}
    assert list(claims.values()) == [claim["metadata"]["name"]]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    environment = {item["name"]: item["value"] for item in pod["containers"][0]["env"]}
    assert environment["ORCHESTRATOR_STORAGE"].startswith(mounts[next(iter(claims))] + "/")


@pytest.mark.parametrize("role", TEMPLATES)
def test_the_policy_closes_every_pod_and_lets_in_the_operator_at_the_dashboard(role: str) -> None:
    policy = kubernetes_object("NetworkPolicy")["spec"]
    label = policy["podSelector"]["matchLabels"]
    assert label.items() <= TEMPLATES[role]["metadata"]["labels"].items()
    own, operator = policy["ingress"]
    assert own["from"] == [{"podSelector": {"matchLabels": label}}]
    assert [port["port"] for port in operator["ports"]] == [8265]
    assert policy["policyTypes"] == ["Ingress"]


@pytest.mark.parametrize("kind", CLUSTERS)
def test_nothing_is_opened_to_the_world(kind: str) -> None:
    assert not {"serviceType", "enableIngress", "headService"} & CLUSTERS[kind]["headGroupSpec"].keys()
    ports = [port for _, template in pod_templates() for one in containers(template) for port in one.get("ports", ())]
    assert not [port for port in ports if "hostPort" in port]


@pytest.mark.parametrize("kind", CLUSTERS)
def test_gpu_workers_scale_from_none_and_are_limited_to_what_they_ask_for(kind: str) -> None:
    spec = CLUSTERS[kind]
    (group,) = spec["workerGroupSpecs"]
    assert group["minReplicas"] == 0
    for template in (group["template"], spec["headGroupSpec"]["template"]):
        resources = template["spec"]["containers"][0]["resources"]
        assert resources["limits"] == resources["requests"]
    assert group["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_neither_a_pod_nor_a_job_is_started_again() -> None:
    """A container that came back alone would be a node that nobody knows, and a job another run."""
    groups = [group for spec in CLUSTERS.values() for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"])]
    assert {group["template"]["spec"]["restartPolicy"] for group in groups} == {"Never"}
    assert kubernetes_object("RayJob")["spec"]["backoffLimit"] == 0
