"""The files for `ray up`: whole by Ray's own rules, at the versions tested, closed to the world; its hosts stopped.

Alone: .venv/bin/pytest tests/orchestrator/cluster/test_cluster_files.py
"""

import os
import re
import stat
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from orchestrator.base.errors import ClusterError, InputError
from orchestrator.cli.entry import run_command_line
from orchestrator.cluster.administration import read_hosts
from orchestrator.cluster.capacity import check_processes, check_resources, nodes_of
from orchestrator.kinds.preflight import needed_resources
from orchestrator.specs.loading import load_spec

ROOT = Path(__file__).parents[3]
CLOUD_FILES = ["cluster.yaml", "deploy/cluster.gcp.yaml"]
CLUSTER_FILES = [*CLOUD_FILES, "cluster.local.yaml"]


def load(name: str) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load((ROOT / name).read_text())
    return config


def commands(config: dict[str, Any]) -> str:
    return "\n".join(line for kind, lines in config.items() if kind.endswith("_commands") for line in lines)


def start_commands(config: dict[str, Any]) -> list[str]:
    lines = [*config["head_start_ray_commands"], *config["worker_start_ray_commands"]]
    return [line for line in lines if "ray start" in line]


@pytest.mark.parametrize("name", CLUSTER_FILES)
def test_a_cluster_file_is_whole_by_rays_own_schema(name: str) -> None:
    prepared = prepare_config(load(name))
    validate_config(prepared)
    assert prepared["head_node_type"] in prepared["available_node_types"]
    assert len(prepared["available_node_types"]) >= 1


@pytest.mark.parametrize("name", CLUSTER_FILES)
def test_versions_are_those_of_the_constraints(name: str) -> None:
    pins = dict(re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    named = dict(re.findall(r'"(ray|torch)(?:\[[\w,]+\])?==([\w.]+)"', commands(load(name))))
    assert named == {"ray": pins["ray"], "torch": pins["torch"]}
    installs = [line for line in commands(load(name)).splitlines() if "pip install" in line]
    assert all("-c ~/lab/constraints.txt" in line for line in installs)


@pytest.mark.parametrize("name", CLUSTER_FILES)
def test_every_node_asks_for_the_token(name: str) -> None:
    config = load(name)
    assert "export RAY_AUTH_MODE=token" in commands(config)
    assert all(line.startswith(". ~/.profile && ") for line in start_commands(config))
    assert len(start_commands(config)) == 2
    assert any(target.endswith(".ray/auth_token") for target in config["file_mounts"])
    assert "chmod 600 ~/.ray/auth_token" in commands(config)


@pytest.mark.parametrize("name", CLUSTER_FILES)
def test_many_files_may_be_opened_but_no_more_than_the_host_allows(name: str) -> None:
    for line in start_commands(load(name)):
        prefix = line.removeprefix(". ~/.profile && ").partition("ray start")[0]
        asked = ["bash", "-ec", f"ulimit -Sn 100; ulimit -Hn 200; {prefix} ulimit -n"]
        assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == "200\n"


@pytest.mark.parametrize("name", CLUSTER_FILES)
def test_what_trains_is_seen_in_the_dashboard_and_git_and_data_are_not_copied(name: str) -> None:
    assert {".git", ".venv", "data"} <= set(load(name)["rsync_exclude"])
    assert "export RAY_USAGE_STATS_ENABLED=0 RAY_TRAIN_ENABLE_STATE_TRACKING=1" in commands(load(name))


@pytest.mark.parametrize(("name", "extra"), [("cluster.yaml", "aws"), ("deploy/cluster.gcp.yaml", "gcp")])
def test_the_head_of_a_cloud_has_its_client_library(name: str, extra: str) -> None:
    """Ray's provider needs it to start workers; Ray itself does not bring it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (library,) = (re.split("[><=]", requirement)[0] for requirement in project[extra])
    assert f"\n{library}==" in (ROOT / "constraints.txt").read_text()
    assert any(f",{extra}]" in line for line in load(name)["head_setup_commands"])


@pytest.mark.parametrize("name", CLOUD_FILES)
def test_a_rebooted_node_mounts_the_storage(name: str, tmp_path: Path) -> None:
    table = tmp_path / "fstab"
    table.write_text("UUID=1 / ext4 defaults 0 1\nold.server:/ /mnt/lab nfs4 defaults 0 0\n")
    (written,) = [line for line in load(name)["setup_commands"] if "/etc/fstab" in line]
    (mounted,) = [line for line in load(name)["setup_commands"] if "sudo mount " in line]
    assert load(name)["setup_commands"].index(written) < load(name)["setup_commands"].index(mounted)
    for _ in range(2):
        as_user = written.replace("sudo ", "").replace("/etc/fstab", str(table))
        subprocess.run(["bash", "-c", as_user], check=True, capture_output=True)
    root, storage = table.read_text().splitlines()
    assert root == "UUID=1 / ext4 defaults 0 1"
    _, folder, kind, options, *_ = storage.split()
    assert (folder, kind) == ("/mnt/lab", "nfs4")
    assert {"hard", "_netdev", "nofail"} <= set(options.split(","))
    assert f"ORCHESTRATOR_STORAGE={folder}/" in commands(load(name))
    assert f"sudo mount {folder})" in mounted


@pytest.mark.parametrize("name", CLUSTER_FILES)
def test_a_file_with_its_options_taken_is_whole_too(name: str) -> None:
    text = (ROOT / name).read_text()
    taken, count = re.subn(r"(?m)^  # - ", "  - ", text)
    assert count == text.count("# OPTION")
    config = yaml.safe_load(taken)
    validate_config(prepare_config(config))
    assert len(config["head_start_ray_commands"]) == 2 + count


def test_the_key_that_is_copied_to_the_head_opens_this_cluster_alone() -> None:
    key = load("cluster.local.yaml")["auth"]["ssh_private_key"]
    assert key == "~/.ssh/bert-lab"
    assert f"-f {key}" in (ROOT / "cluster.local.yaml").read_text(), "nobody is told how to make it"
    assert "ssh_private_key" not in load("cluster.yaml")["auth"], "Ray makes one of its own"


@pytest.mark.parametrize("name", CLOUD_FILES)
def test_the_cluster_is_as_large_as_its_example_asks(name: str) -> None:
    base = load_spec(ROOT / "experiments" / "pretrain_base.yaml")
    gpu_node = load(name)["available_node_types"]["gpu"]
    nodes = nodes_of(load(name))
    assert gpu_node["min_workers"] == 0, "nothing costs while nothing runs"
    there = {name: len(nodes) * count for name, count in gpu_node["resources"].items()}
    needs = needed_resources(base, there)
    (processes,) = needs.processes
    check_processes([processes], nodes)
    with pytest.raises(ClusterError, match="the cluster has room for"):
        check_processes([processes], nodes[1:])
    check_resources(needs.total, there)


@pytest.mark.parametrize("name", CLUSTER_FILES)
def test_the_dashboard_stays_on_loopback_and_storage_is_shared(name: str) -> None:
    text = commands(load(name))
    assert "--dashboard-host=127.0.0.1" in text
    assert "ORCHESTRATOR_STORAGE=" in text
    assert "password" not in text.lower()


def test_only_ssh_from_one_address_is_let_in() -> None:
    (rule,) = load("cluster.yaml")["provider"]["security_group"]["IpPermissions"]
    assert (rule["FromPort"], rule["ToPort"]) == (22, 22)
    assert all(source["CidrIp"].endswith("/32") for source in rule["IpRanges"])


@pytest.mark.parametrize("name", ["README.md", *CLUSTER_FILES])
@pytest.mark.heavy
def test_the_documented_token_is_private_from_the_start(name: str, tmp_path: Path) -> None:
    line = re.compile(r"^[# ]*(.*ray get-auth-token --generate.*?)(?:  .*)?$", re.MULTILINE)
    (command,) = line.findall((ROOT / name).read_text())
    folder = Path(sys.executable).parent
    environment = {"HOME": str(tmp_path), "PATH": f"{folder}:{os.environ['PATH']}", "RAY_USAGE_STATS_ENABLED": "0"}
    subprocess.run(["bash", "-c", f"umask 022; {command}"], env=environment, check=True, capture_output=True)
    assert stat.S_IMODE((tmp_path / ".ray" / "auth_token").stat().st_mode) == 0o600
    assert "chmod" not in command, "it could be read before"


FILE = str(ROOT / "cluster.local.yaml")
SSH = """\
#!/bin/bash
# The host is the word before the last one; one without a file of its name does not answer.
host=${@: -2:1}
echo "$host" >> "$HOME/asked"
[ -e "$HOME/$host" ] || { echo "ssh: connect to host ${host#*@} port 22: Connection timed out" >&2; exit 255; }
exit "$(cat "$HOME/$host")"
"""


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder with a stand-in for ssh, and a file for each host that answers: the status of its `ray stop`."""
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for number in (10, 11, 12):
        (tmp_path / f"lab@192.0.2.{number}").write_text("0")
    return tmp_path


def test_hosts_are_those_of_the_file_and_reached_as_it_says() -> None:
    head, *workers = read_hosts(FILE)
    assert head[-3:] == ["-i", str(Path("~/.ssh/bert-lab").expanduser()), "lab@192.0.2.10"]
    assert [worker[-1] for worker in workers] == ["lab@192.0.2.11", "lab@192.0.2.12"]


def test_the_head_is_stopped_before_its_workers(hosts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["cluster", "down", FILE]) == 0
    asked = (hosts / "asked").read_text().split()
    assert (asked[0], sorted(asked[1:])) == ("lab@192.0.2.10", ["lab@192.0.2.11", "lab@192.0.2.12"])
    assert capsys.readouterr().out.count("stopped") == 3


def test_hosts_that_cannot_be_stopped_are_named_and_the_others_are_stopped(
    hosts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (hosts / "lab@192.0.2.11").unlink()
    (hosts / "lab@192.0.2.12").write_text("127")
    assert run_command_line(["cluster", "down", FILE]) == 5
    out, err = capsys.readouterr()
    assert "192.0.2.10  head    stopped" in out
    assert "192.0.2.11, 192.0.2.12" in err
    assert "Connection timed out" in err


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (None, "read"),
        ("a: [", "YAML"),
        ("just text", "provider"),
        ("provider: local", "provider"),
        ("provider: {type: aws}", "ray down "),
        ("provider: {type: local, head_ip: 192.0.2.10, worker_ips: []}", "'auth'"),
        ("{provider: {type: local, worker_ips: []}, auth: {ssh_user: lab}}", "'head_ip'"),
    ],
)
def test_a_file_that_lists_no_hosts_is_refused(text: str | None, names: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError, match=r"cluster\.yaml") as refused:
        read_hosts(str(file))
    assert names in str(refused.value)
