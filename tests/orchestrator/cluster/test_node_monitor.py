"""The monitor of a host's Ray node, with a stand-in for `ray` that does with processes what Ray does.

Alone: .venv/bin/pytest tests/orchestrator/cluster/test_node_monitor.py
"""

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from ray.autoscaler._private.constants import RAY_PROCESSES

from orchestrator.cluster import node_monitor
from tests.waiting import PATIENCE_S, wait_until

pytestmark = [
    pytest.mark.runs,
    pytest.mark.skipif(
        not sys.platform.startswith("linux") or not shutil.which("setpriv"),
        reason="Ray's hosts run Linux with util-linux",
    ),
]
RAY = """\
#!/bin/bash
if [ "$1" = stop ]; then
    echo stopped >> "$HOME/stops"
    for process in $(grep -lz "^HOME=$HOME$" /proc/[0-9]*/environ 2> /dev/null); do
        if grep -q monitor.py "${process%environ}cmdline"; then kill "$(basename "${process%/environ}")"; fi
    done
    exit
fi
echo "$SETTING $(ulimit -n) $*" >> "$HOME/starts"
if [ -e "$HOME/refuses" ]; then echo "the head does not answer"; exit 1; fi
setpriv --pdeathsig KILL "$HOME/raylet" 1000 &
echo "Ray runtime started."
wait
exec "$HOME/goes-on" 1000
"""
CRONTAB = """\
#!/bin/bash
if [ -e "$HOME/cron-refuses" ]; then echo "you are not allowed to use this program" >&2; exit 1; fi
if [ "$1" = -l ]; then [ -e "$HOME/table" ] || { echo "no crontab for lab" >&2; exit 1; }; exec cat "$HOME/table"; fi
exec cat > "$HOME/table"
"""


@dataclass
class Host:
    """A home, and a `ray` and a `crontab` that write down what they are asked."""

    home: Path

    def call(
        self, *arguments: str, setting: str = "first", within: tuple[str, ...] = ()
    ) -> "subprocess.CompletedProcess[str]":
        environment = {"HOME": str(self.home), "PATH": f"{self.home}:{os.environ['PATH']}", "SETTING": setting}
        command = [*within, sys.executable, "-P", node_monitor.__file__, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)

    def read(self, name: str) -> list[str]:
        path = self.home / name
        return path.read_text().splitlines() if path.exists() else []

    def processes(self, name: str) -> list[psutil.Process]:
        """Processes of the home's own programs."""
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("HOME") == str(self.home) and name in " ".join(process.cmdline()):
                    found.append(process)
        return found

    def raylet(self) -> psutil.Process:
        wait_until(lambda: len(self.processes("raylet 1000")) == 1, "not one raylet")
        return self.processes("raylet 1000")[0]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    for name, text in {"ray": RAY, "crontab": CRONTAB}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    for name in ("raylet", "goes-on"):
        shutil.copy("/bin/sleep", tmp_path / name)
    (tmp_path / "table").write_text("@daily backup\n")
    host = Host(tmp_path)
    yield host
    for process in host.processes(""):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def as_host(name: str) -> tuple[str, ...]:
    """Words before a command that give it a host name of its own."""
    unshare = ("unshare", "--map-root-user", "--uts")
    if subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("this host gives no process a host name of its own")
    return (*unshare, "sh", "-c", f'echo {name} > /proc/sys/kernel/hostname && exec "$@"', "sh")


def test_a_node_is_started_as_ray_start_would(host: Host) -> None:
    done = host.call("start", "--head", "--port=6379")
    assert done.returncode == 0, done.stderr
    assert "The Ray node runs" in done.stdout
    assert host.read("starts")[0].endswith("start --block --head --port=6379")
    assert (host.home / ".bert-lab" / socket.gethostname() / "node.json").stat().st_mode & 0o077 == 0, (
        "others can read the environment"
    )


def test_a_node_whose_raylet_ends_comes_back(host: Host) -> None:
    host.call("start", "--address=192.0.2.10:6379")
    first = host.raylet()
    first.send_signal(signal.SIGKILL)
    wait_until(lambda: len(host.read("starts")) == 2, "the node does not come back")
    assert host.raylet() != first
    assert len(set(host.read("starts"))) == 1, "it came back otherwise"


def test_a_node_that_was_drained_stays_away_until_its_host_is_gone_or_is_started_again(host: Host) -> None:
    host.call("start", "--address=192.0.2.10:6379")
    folder = host.home / ".bert-lab" / socket.gethostname()
    (folder / "away").write_text(str(time.time() + 3600))
    host.raylet().send_signal(signal.SIGKILL)
    wait_until(lambda: "next attempt in 3" in (folder / "node.log").read_text(), "the node is started at once")
    assert len(host.read("starts")) == 1
    host.call("start", "--address=192.0.2.10:6379")
    assert host.raylet()
    assert not (folder / "away").exists()


def test_a_second_start_replaces_the_first(host: Host) -> None:
    host.call("start", "--address=192.0.2.10:6379")
    first = host.raylet()
    host.call("start", "--address=192.0.2.99:6379")
    assert host.raylet() != first
    assert host.read("starts")[-1].endswith("192.0.2.99:6379")
    assert len(host.processes("node_monitor.py boot")) == 1


def test_a_node_whose_monitor_was_killed_works_on_until_the_next_monitor_ends_it(host: Host) -> None:
    host.call("start", "--address=192.0.2.10:6379")
    (monitor,) = host.processes("node_monitor.py boot")
    left = host.raylet()
    monitor.kill()
    monitor.wait()
    assert left.is_running()
    host.call("start", "--address=192.0.2.10:6379")
    assert host.raylet() != left


def test_a_node_whose_monitor_was_killed_can_be_stopped(host: Host) -> None:
    host.call("start", "--head")
    host.raylet()
    (monitor,) = host.processes("node_monitor.py boot")
    monitor.kill()
    monitor.wait()
    assert host.call("stop").returncode == 0
    assert not host.processes("")


def test_hosts_of_different_names_share_a_home(host: Host) -> None:
    names = ("host1", "host2")
    for name in names:
        done = host.call("start", f"--node={name}", within=as_host(name))
        assert done.returncode == 0, done.stderr
    first, second = (line.split()[-1] for line in host.read("starts"))
    assert (first, second) == ("--node=host1", "--node=host2")
    assert len(host.processes("raylet 1000")) == 2, "the second host has ended the first one's node"
    assert sorted(path.name for path in (host.home / ".bert-lab").iterdir()) == ["host1", "host2"]
    host.call("stop", within=as_host("host1"))
    ended, kept = (host.home / ".bert-lab" / name / "node.json" for name in names)
    assert (ended.exists(), kept.exists()) == (False, True)


def test_a_stopped_node_stays_away(host: Host) -> None:
    host.call("start", "--address=192.0.2.10:6379")
    done = host.call("stop")
    assert done.returncode == 0, "`ray stop` ended the command that called it"
    wait_until(lambda: not host.processes("node_monitor.py"), "the monitor runs on")
    assert not host.processes("raylet")
    assert host.read("stops") == ["stopped"], "what is left of Ray was not stopped"
    assert host.read("table") == ["@daily backup"]
    assert host.call("boot").returncode == 1


def test_stopping_where_nothing_was_started_is_no_error(host: Host) -> None:
    assert host.call("stop").returncode == 0


def test_a_node_that_cannot_start_says_why_and_is_tried_again(host: Host) -> None:
    (host.home / "refuses").touch()
    done = host.call("start", "--address=192.0.2.10:6379")
    assert done.returncode == 1
    assert "the head does not answer" in done.stderr
    assert "did not start; the reason is above. It is tried again: " in done.stderr
    (host.home / "refuses").unlink()
    assert host.raylet()


def test_a_node_is_tried_again_while_ray_is_being_installed(host: Host) -> None:
    (host.home / "ray").rename(host.home / "ray of tomorrow")
    done = host.call("start", "--head")
    assert done.returncode == 1
    assert "No such file or directory: 'ray'" in done.stderr
    (host.home / "ray of tomorrow").rename(host.home / "ray")
    assert host.raylet()


def test_a_monitor_that_ends_meanwhile_is_not_said_to_try_again(host: Host) -> None:
    (host.home / "ray").write_text("#!/bin/bash\nkill -KILL $PPID\n")
    done = host.call("start", "--head")
    assert done.returncode == 1
    assert "did not start; the reason is above. Nobody tries it again: give this command again" in done.stderr


def test_a_host_that_comes_up_starts_the_same_node(host: Host) -> None:
    host.call("start", "--address=192.0.2.10:6379", setting="as started")
    for process in host.processes(""):
        process.kill()
    line = host.read("table")[-1]
    as_cron_does = {"HOME": str(host.home), "PATH": "/usr/bin:/bin"}
    subprocess.run(["sh", "-c", f"{line.removeprefix('@reboot ')} &"], env=as_cron_does, check=True)
    assert host.raylet()
    assert len(host.read("starts")) == 2
    assert len(set(host.read("starts"))) == 1
    assert host.read("starts")[0].startswith("as started")


def test_many_files_may_be_opened_but_no_more_than_the_host_allows(host: Host) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = node_monitor.FILE_LIMIT if hard == resource.RLIM_INFINITY else min(hard, node_monitor.FILE_LIMIT)
    environment = {"HOME": str(host.home), "PATH": f"{host.home}:{os.environ['PATH']}"}
    for limits in ("", "ulimit -Hn 3000;"):
        limited = f"ulimit -Sn 1000; {limits} exec {sys.executable} -P {node_monitor.__file__} start"
        subprocess.run(["bash", "-c", limited], env=environment, check=True, capture_output=True)
    assert [line.split()[0] for line in host.read("starts")] == [str(wanted), "3000"]


def test_ray_stop_ends_the_monitor_too(host: Host) -> None:
    host.call("start", "--head")
    (monitor,) = host.processes("node_monitor.py boot")
    command_line = subprocess.list2cmdline(monitor.cmdline())
    assert [word for word, is_name in RAY_PROCESSES if not is_name and word in command_line] == ["monitor.py"]


def test_usage_is_shown_for_anything_else(host: Host) -> None:
    done = host.call("begin")
    assert done.returncode == 2
    assert "python node_monitor.py start" in done.stderr


def test_a_user_whom_cron_refuses_has_a_node_and_can_stop_it(host: Host) -> None:
    (host.home / "cron-refuses").touch()
    before = host.read("table")
    started = host.call("start", "--head")
    assert started.returncode == 0, started.stderr
    assert "cron refuses this user (you are not allowed to use this program): after a reboot start" in started.stderr
    host.raylet()
    assert host.call("stop").returncode == 0
    wait_until(lambda: not host.processes("raylet 1000"), "the node runs on")
    assert host.read("table") == before
