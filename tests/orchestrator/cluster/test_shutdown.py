"""The hosts that `orchestrator cluster down` stops, and what it says of those that it cannot; `ssh` is a stand-in.

Alone: .venv/bin/pytest tests/orchestrator/cluster/test_shutdown.py
"""

from pathlib import Path

import pytest

from orchestrator.cli.entry import run_command_line
from orchestrator.cluster.shutdown import read_hosts, stop_hosts
from orchestrator.errors import InputError

ROOT = Path(__file__).parents[3]
SSH = """\
#!/bin/bash
# `host` is the word before the last one; a host without a file of its name does not answer.
host=${@: -2:1}
echo "$host" >> "$HOME/asked"
[ -e "$HOME/$host" ] || { echo "ssh: connect to host ${host#*@} port 22: Connection timed out" >&2; exit 255; }
[[ ${@: -1} == pgrep* ]] || { [ -e "$HOME/no-python" ] && echo "python: command not found" >&2 && exit 127; exit 0; }
exit "$(cat "$HOME/$host")"
"""


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder with a stand-in for ssh, and a file for each host that answers: what its pgrep returns."""
    (tmp_path / "ssh").write_text(SSH)
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for number in (10, 11, 12):
        (tmp_path / f"lab@192.0.2.{number}").write_text("1")
    return tmp_path


def test_hosts_are_those_of_the_file_and_reached_as_it_says() -> None:
    head, *workers = read_hosts(str(ROOT / "cluster.local.yaml"))
    assert (head.address, head.role) == ("192.0.2.10", "head")
    assert [worker.address for worker in workers] == ["192.0.2.11", "192.0.2.12"]
    assert head.login[-3:] == ("-i", str(Path("~/.ssh/bert-lab").expanduser()), "lab@192.0.2.10")


def test_the_head_is_stopped_before_its_workers(hosts: Path) -> None:
    stopped = stop_hosts(read_hosts(str(ROOT / "cluster.local.yaml")))
    assert [each.problem for each in stopped] == ["", "", ""]
    assert (hosts / "asked").read_text().splitlines()[:2] == ["lab@192.0.2.10"] * 2


def test_a_host_that_does_not_answer_is_named_and_the_others_are_stopped(
    hosts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (hosts / "lab@192.0.2.11").unlink()
    assert run_command_line(["cluster", "down", str(ROOT / "cluster.local.yaml")]) == 5
    out, err = capsys.readouterr()
    assert "192.0.2.12  worker  stopped" in out
    assert "Ray may still run on 192.0.2.11: ssh: connect to host 192.0.2.11 port 22: Connection timed out" in err
    assert "when ssh reaches each host: orchestrator cluster down" in err


def test_a_ray_that_does_not_end_is_told(hosts: Path) -> None:
    (hosts / "lab@192.0.2.10").write_text("0")
    head, *_ = stop_hosts(read_hosts(str(ROOT / "cluster.local.yaml")))
    assert head.problem == "Ray's processes do not end"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "cannot be read"),
        ("a: [", "is not YAML"),
        ("just text", "does not list machines of your own"),
        ("provider: {type: aws}", "ray down "),
        ("provider: {type: local, head_ip: 192.0.2.10, worker_ips: []}", "lacks 'auth'"),
        ("{provider: {type: local, worker_ips: []}, auth: {ssh_user: lab}}", "lacks 'head_ip'"),
    ],
)
def test_a_file_that_lists_no_hosts_is_refused(text: str | None, says: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InputError, match=r"cluster\.yaml") as refused:
        read_hosts(str(file))
    assert says in str(refused.value)


def test_a_host_whose_monitor_could_not_be_ended_is_not_stopped(hosts: Path) -> None:
    """Between two attempts of the monitor no raylet runs."""
    (hosts / "no-python").touch()
    stopped = stop_hosts(read_hosts(str(ROOT / "cluster.local.yaml")))
    assert [each.problem for each in stopped] == ["python: command not found"] * 3


def test_a_provider_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("provider: local\n")
    with pytest.raises(InputError, match="does not list machines of your own"):
        read_hosts(str(tmp_path / "c.yaml"))
