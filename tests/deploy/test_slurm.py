"""The Slurm recipe: a linted script, and its whole way with programs that stand for Slurm's and Ray's.

Alone: .venv/bin/pytest tests/deploy/test_slurm.py
"""

import os
import re
import shlex
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from click.core import ParameterSource

from tests.deploy.slurm_stage import SCRIPT, Stage
from tests.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.heavy
TEXT = SCRIPT.read_text("utf-8")
OPTIONS = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?", TEXT, re.MULTILINE))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def started_nodes(stage: Stage) -> list[dict[str, str]]:
    """Options of each `ray start`, as Ray's own command line understands them; the head first."""
    from ray.scripts.scripts import start  # a second, which only these tests pay

    found = []
    for call in stage.calls("ray"):
        words = shlex.split(call)
        if words[1] == "start":
            parsed = start.make_context("ray start", words[2:], resilient_parsing=False)
            given = [name for name in parsed.params if parsed.get_parameter_source(name) is ParameterSource.COMMANDLINE]
            found.append({name: str(parsed.params[name]) for name in given})
    return sorted(found, key=lambda options: "head" not in options)


def test_a_shell_can_read_the_script_and_shellcheck_finds_nothing() -> None:
    subprocess.run(["bash", "-n", str(SCRIPT)], check=True)
    shellcheck = Path(sys.executable).parent / "shellcheck"
    found = subprocess.run([str(shellcheck), str(SCRIPT)], capture_output=True, text=True)
    assert (found.returncode, found.stdout) == (0, "")


def test_a_run_ends_well_and_leaves_nothing_behind(stage: Stage) -> None:
    status, said = stage.play("run", "spec.yaml", "execution.num_workers=8")
    assert status == 0, said
    assert stage.calls("orchestrator") == ["orchestrator run spec.yaml execution.num_workers=8"]
    assert stage.calls("srun")[-1].endswith(f"rm -rf {stage.folder}/ray-4711")
    assert not (stage.folder / "ray-4711").exists()
    assert stage.calls("scontrol") == []
    assert not (stage.lab / "slurm/4711/auth_token").exists()


def test_one_ray_starts_on_each_node_with_what_the_job_was_given(stage: Stage) -> None:
    stage.play("run", "spec.yaml")
    steps = [call for call in stage.calls("srun") if "ray start" in call]
    head, others = sorted(steps, key=lambda call: "--nodelist" not in call)
    assert {"--nodes=1", "--ntasks=1", "--nodelist=node1", "--cpus-per-task=8"} <= set(head.split())
    assert {"--nodes=1", "--ntasks=1", "--exclude=node1", "--cpus-per-task=8"} <= set(others.split())
    for node in started_nodes(stage):
        assert node["num_cpus"] == "8"
        assert int(node["memory"]) == 600 << 20
        assert abs(int(node["object_store_memory"]) - (300 << 20)) < 100
        assert node["temp_dir"] == f"{stage.folder}/ray-4711"


def test_one_node_needs_no_others(stage: Stage) -> None:
    stage.environment |= {"SLURM_JOB_NUM_NODES": "1", "FAKE_NODES": "1"}
    assert stage.play("run", "spec.yaml")[0] == 0
    assert len(started_nodes(stage)) == 1


def test_the_dashboard_stays_on_loopback_and_ray_asks_for_a_private_token(stage: Stage) -> None:
    stage.environment["FAKE_RUN"] = "waits 143"
    job = stage.begin("run", "spec.yaml")
    stage.wait_for_run()
    token = stage.lab / "slurm/4711/auth_token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert stat.S_IMODE(token.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((stage.folder / "ray-4711").stat().st_mode) == 0o700, "sockets of Ray lie there"
    secret = token.read_text()
    assert len(secret) == 64
    os.kill(job.pid, signal.SIGTERM)
    stage.finish(job)
    head, _ = started_nodes(stage)
    assert head["dashboard_host"] == "127.0.0.1"
    for program in ("ray", "orchestrator"):
        environment = stage.environment_of(program)
        assert (environment["RAY_AUTH_MODE"], environment["RAY_AUTH_TOKEN_PATH"]) == ("token", str(token))
        assert secret not in environment.values()
    assert not any(secret in call for call in stage.calls())


def test_the_driver_is_told_where_ray_storage_and_record_are(stage: Stage) -> None:
    (stage.lab / "registry-url").write_text("postgresql://…")
    stage.play("run", "spec.yaml")
    environment = stage.environment_of("orchestrator")
    head, other = started_nodes(stage)
    assert environment["RAY_ADDRESS"] == f"{head['node_ip_address']}:{head['port']}" == other["address"]
    assert environment["ORCHESTRATOR_STORAGE"] == str(stage.lab / "storage")
    assert environment["ORCHESTRATOR_REGISTRY"] == f"file:{stage.lab / 'registry-url'}"
    assert environment["GLOO_SOCKET_IFNAME"] == environment["NCCL_SOCKET_IFNAME"] == "eth0"


def test_no_port_that_ray_would_give_to_every_cluster_is_used(stage: Stage) -> None:
    stage.play("run", "spec.yaml")
    for node in started_nodes(stage):
        assert node["min_worker_port"] == node["max_worker_port"] == "0"
        assert node["dashboard_agent_listen_port"] == "0"
    ports = [int(started_nodes(stage)[0][name]) for name in ("port", "dashboard_port", "ray_client_server_port")]
    assert not {6379, 8265, 10001} & set(ports)
    assert len(set(ports)) == 3
    assert all(20000 <= port < 30000 for port in ports), "below the ports that systems give to connections"


@pytest.mark.heavy
def test_ports_of_another_job_are_passed_over(stage: Stage) -> None:
    stage.play("run", "spec.yaml")
    usual = int(started_nodes(stage)[0]["port"])
    (stage.folder / "calls").unlink()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("", usual + 1))
        stage.play("run", "spec.yaml")
    taken = int(started_nodes(stage)[0]["port"])
    assert taken not in range(usual, usual + 3)


def test_near_the_time_limit_the_run_saves_and_the_job_is_queued_again(stage: Stage) -> None:
    assert stage.interrupt(signal.SIGUSR1, "waits 143", "run", "spec.yaml")[0] == 143
    calls = stage.calls()
    assert calls.index("orchestrator asked to end") < calls.index("srun ended"), "Ray is needed until all is saved"
    assert calls[-1] == "scontrol requeue 4711"


@pytest.mark.heavy
def test_a_job_that_was_queued_again_resumes_its_run(stage: Stage) -> None:
    stage.interrupt(signal.SIGUSR1, "waits 143", "run", "spec.yaml", "execution.num_workers=8")
    for _ in range(2):
        stage.environment["FAKE_RUN"] = "ends 0"
        stage.play("run", "spec.yaml", "execution.num_workers=8")
    assert stage.calls("orchestrator")[-2:] == ["orchestrator resume 7f3a5c", "orchestrator resume 7f3a5c"]


@pytest.mark.parametrize(
    ("number", "run", "status"), [(signal.SIGTERM, "waits 143", 143), (signal.SIGUSR1, "waits 1", 1)]
)
def test_a_job_that_is_ended_for_good_or_fails_is_saved_and_not_queued_again(
    stage: Stage, number: int, run: str, status: int
) -> None:
    assert stage.interrupt(number, run, "run", "spec.yaml")[0] == status
    assert "orchestrator asked to end" in stage.calls()
    assert stage.calls("scontrol") == []


@pytest.mark.heavy
def test_who_ends_a_job_that_is_being_saved_does_not_disturb_it(stage: Stage) -> None:
    stage.environment["FAKE_RUN"] = "saves 143"
    job = stage.begin("run", "spec.yaml")
    stage.wait_for_run()
    os.kill(job.pid, signal.SIGUSR1)
    wait_until(lambda: "orchestrator asked to end" in stage.calls(), "the run was not asked to end")
    os.kill(job.pid, signal.SIGTERM)
    stage.finish(job)
    assert stage.calls().count("orchestrator asked to end") == 1


def test_the_runs_own_status_is_the_jobs(stage: Stage) -> None:
    stage.environment["FAKE_RUN"] = "ends 3"
    assert stage.play("run", "spec.yaml")[0] == 3
    assert not any("rm -rf" in call for call in stage.calls("srun")), "Ray's logs are wanted now"


@pytest.mark.parametrize("nodes", ["1", "-1"])
@pytest.mark.heavy
def test_a_cluster_that_does_not_come_ends_the_job(stage: Stage, nodes: str) -> None:
    stage.environment |= {"FAKE_NODES": nodes, "BERT_LAB_START_S": "1"}
    assert stage.play("run", "spec.yaml")[0] == 1
    assert stage.calls("orchestrator") == []


def test_a_job_that_is_ended_while_its_cluster_starts_ends_at_once(stage: Stage) -> None:
    stage.environment["FAKE_NODES"] = "1"
    job = stage.begin("run", "spec.yaml")
    wait_until(lambda: (stage.folder / "environment of ray").exists(), "no Ray was started")
    os.kill(job.pid, signal.SIGTERM)
    assert stage.finish(job)[0] == 143
    assert stage.calls("orchestrator") == []


def test_a_ray_that_does_not_end_holds_nothing_up(stage: Stage) -> None:
    (stage.folder / "programs/srun").write_text(
        "#!/bin/bash\necho ray start >> $STAGE/calls\ntrap '' TERM\nsleep infinity\n"
    )
    stage.environment |= {"BERT_LAB_END_TENTHS": "1", "FAKE_RUN": "waits 143"}
    job = stage.begin("run", "spec.yaml")
    stage.wait_for_run()
    os.kill(job.pid, signal.SIGUSR1)
    assert job.wait(PATIENCE_S) == 143
    assert set(stage.end_processes(job)) == {"sleep"}
    job.communicate()
    assert stage.calls()[-1] == "scontrol requeue 4711"


def test_an_interface_without_address_is_named(stage: Stage) -> None:
    (stage.folder / "programs/ip").write_text("#!/bin/bash\n")
    status, said = stage.play("run", "spec.yaml")
    assert status == 2
    assert "BERT_LAB_INTERFACE" in said


def test_slurm_warns_the_script_alone_in_time_and_may_queue_it_again() -> None:
    assert OPTIONS["signal"] == "B:USR1@300"
    assert "requeue" in OPTIONS
    assert OPTIONS["open-mode"] == "append", "the first attempt's words would be lost"
    assert OPTIONS["ntasks-per-node"] == "1"


@pytest.mark.heavy
def test_a_resume_that_was_queued_again_keeps_its_words(stage: Stage) -> None:
    for _ in range(2):
        stage.play("resume", "7f3a", "execution.num_workers=4")
    assert set(stage.calls("orchestrator")) == {"orchestrator resume 7f3a execution.num_workers=4"}
