"""Files that the tests of every recipe read: those of `deploy/`, and the versions that they must agree with."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES_FILES = ("lab.yaml", "raycluster.yaml", "rayjob.yaml")
PINS = dict(re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE))
"""Exact version of each package in constraints.txt."""


@cache
def read_yaml(path: Path) -> list[dict[str, Any]]:
    """The documents of a YAML file, read once; who changes one copies it."""
    return list(yaml.safe_load_all(path.read_text("utf-8")))


def kubernetes_object(kind: str) -> dict[str, Any]:
    """The one object of a kind among the files for Kubernetes."""
    objects = [item for name in KUBERNETES_FILES for item in read_yaml(DEPLOY / "kuberay" / name)]
    (found,) = [item for item in objects if item["kind"] == kind]
    return found


def cluster_specs() -> dict[str, dict[str, Any]]:
    """The two specs of a Ray cluster, by the kind of their object."""
    return {
        "RayCluster": kubernetes_object("RayCluster")["spec"],
        "RayJob": kubernetes_object("RayJob")["spec"]["rayClusterSpec"],
    }


def pod_templates() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every pod template, with the name of its role."""
    yield "RayJob submitter", kubernetes_object("RayJob")["spec"]["submitterPodTemplate"]
    for kind, spec in cluster_specs().items():
        yield f"{kind} head", spec["headGroupSpec"]["template"]
        for group in spec["workerGroupSpecs"]:
            yield f"{kind} {group['groupName']}", group["template"]


def containers(template: dict[str, Any]) -> list[dict[str, Any]]:
    """The containers of a pod template, those that run before the others included."""
    return [*template["spec"].get("initContainers", ()), *template["spec"]["containers"]]
