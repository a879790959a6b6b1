"""The hosts that `orchestrator cluster down` stops, and what it says of those that it cannot; `ssh` is a stand-in.

Alone: .venv/bin/pytest tests/orchestrator/cluster/test_shutdown.py
"""

from pathlib import Path

import pytest

from orchestrator.cli.entry import run_command_line
from orchestrator.cluster.shutdown import read_hosts
from orchestrator.errors import InputError

ROOT = Path(__file__).parents[3]
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
