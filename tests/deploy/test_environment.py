"""Environment of nodes, that of runs on one's own machine whatever recipe starts them; the guide to the recipes.

Alone: .venv/bin/pytest tests/deploy/test_environment.py
"""

import re
import shlex

import pytest

from orchestrator.cluster.connection import CLUSTER_DRIVER, DRIVER, MEMORY
from tests.deploy.recipes import DEPLOY, ROOT, cluster_specs

RAY_UP_FILES = ("cluster.yaml", "cluster.local.yaml", "deploy/cluster.gcp.yaml")
SHELLS = (*RAY_UP_FILES, "deploy/slurm/lab.sbatch", "deploy/Dockerfile")
LOST_HOST = re.compile("RAY_(?:health_check|grpc_client_keepalive)_[a-z_]+")
"""Variables by which a lost host, or a lost head, is found."""
GUIDE = (DEPLOY / "README.md").read_text("utf-8")


def assigned(name: str) -> dict[str, set[str]]:
    """All values that a file with lines of shell gives to each variable; what is commented out does not count."""
    lines = [line for line in (ROOT / name).read_text("utf-8").splitlines() if not line.lstrip().startswith("#")]
    found: dict[str, set[str]] = {}
    for variable, value in re.findall(r"\b([A-Za-z_]+)=([^\s'\"]+)", "\n".join(lines)):
        found.setdefault(variable, set()).add(value)
    return found


def lost_host(values: dict[str, set[str]]) -> dict[str, set[str]]:
    return {variable: found for variable, found in values.items() if LOST_HOST.fullmatch(variable)}


@pytest.mark.parametrize("name", SHELLS)
def test_processes_that_train_keep_memory_as_on_a_machine_of_ones_own(name: str) -> None:
    """Pods have it from the image."""
    values = assigned(name)
    assert {variable: values.get(variable) for variable in MEMORY} == {name: {value} for name, value in MEMORY.items()}


@pytest.mark.parametrize("name", SHELLS)
def test_a_variable_of_drivers_has_no_second_value(name: str) -> None:
    values, drivers = assigned(name), DRIVER | CLUSTER_DRIVER
    assert values["RAY_USAGE_STATS_ENABLED"] == {drivers["RAY_USAGE_STATS_ENABLED"]}
    assert all(values.get(variable, {value}) == {value} for variable, value in drivers.items())


@pytest.mark.parametrize("name", [name for name in SHELLS if name != "deploy/Dockerfile"])
def test_a_lost_host_is_found_in_the_same_time(name: str) -> None:
    found = lost_host(assigned(name))
    assert len(found) == 5
    assert found == lost_host(assigned("cluster.yaml"))


@pytest.mark.parametrize("kind", cluster_specs())
def test_a_lost_pod_is_found_in_the_same_time(kind: str) -> None:
    spec, expected = cluster_specs()[kind], lost_host(assigned("cluster.yaml"))
    of_workers = {name: value for name, value in expected.items() if "keepalive" in name}
    for group, wanted in ((spec["headGroupSpec"], expected), (spec["workerGroupSpecs"][0], of_workers)):
        variables = group["template"]["spec"]["containers"][0]["env"]
        assert lost_host({item["name"]: {item["value"]} for item in variables}) == wanted


def test_every_recipe_is_compared() -> None:
    recipes = {str(path.relative_to(ROOT)) for path in [*ROOT.glob("cluster*.yaml"), *DEPLOY.rglob("*.*")]}
    pods = {name for name in recipes if "kuberay/" in name}
    kept_up = {name for name in recipes if "systemd/" in name}
    assert recipes - pods - kept_up - {"deploy/README.md"} == {*SHELLS} - {"deploy/Dockerfile"}


def test_every_recipe_is_in_the_guide() -> None:
    recipes = [str(path.relative_to(DEPLOY)) for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".md"]
    named = GUIDE.replace("deploy/", "")
    assert not [name for name in recipes if name not in named]


@pytest.mark.parametrize("command", re.findall(r"^    (.+)$", GUIDE, re.MULTILINE))
def test_a_command_names_files_that_are_there(command: str) -> None:
    words = shlex.split(command, comments=True)
    named = [word for word in words if word.startswith(("deploy/", "experiments/")) or word == "constraints.txt"]
    assert words
    assert not [name for name in named if not (ROOT / name).exists()]
