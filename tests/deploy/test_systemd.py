"""Script and unit that keep a host's Ray up; `ray` and `pgrep` are stand-ins.

Alone: .venv/bin/pytest tests/deploy/test_systemd.py
"""

import configparser
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S, wait_until

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
RAY = """\
#!/bin/bash
echo "$*" >> ~/said
case "$*" in stop) num=0 ;; *--head*) num=2 ;; *) num=1 ;; esac
echo $num > ~/running
"""
PGREP = """\
#!/bin/bash
cat ~/running
touch ~/asked
"""


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Home of a host on which no Ray runs."""
    for name, text in (("ray", RAY), ("pgrep", PGREP), ("sleep", "#!/bin/bash\n/bin/sleep 0.05\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    (tmp_path / ".profile").write_text('PATH="$HOME:$PATH"\n')
    (tmp_path / "running").write_text("0\n")
    return tmp_path


@contextmanager
def kept_up(host: Path, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(
        [FOLDER / "ray-node.sh", *options], env={"HOME": str(host), "PATH": "/usr/bin:/bin"}
    ) as keeper:
        try:
            yield keeper
        finally:
            keeper.kill()


@pytest.mark.parametrize(("options", "num"), [(["--head", "--port=6379"], "2"), (["--address=192.0.2.10:6379"], "1")])
def test_a_node_is_started_and_its_end_ends_the_keeper(host: Path, options: list[str], num: str) -> None:
    with kept_up(host, *options) as keeper:
        wait_until(lambda: (host / "running").read_text().strip() == num, "the node is not started")
        assert keeper.poll() is None
        (host / "running").write_text("0\n")
        assert keeper.wait(PATIENCE_S) == 1
    assert (host / "said").read_text().splitlines() == ["stop", f"start --disable-usage-stats {' '.join(options)}"]


def test_a_node_that_runs_is_left_alone(host: Path) -> None:
    (host / "running").write_text("1\n")
    with kept_up(host, "--address=192.0.2.10:6379") as keeper:
        wait_until(lambda: (host / "asked").exists(), "nobody asks whether it runs")
        (host / "running").write_text("0\n")
        assert keeper.wait(PATIENCE_S) == 1
    assert not (host / "said").exists()


def test_the_unit_begins_the_keeper_again_and_at_boot() -> None:
    unit = configparser.RawConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(FOLDER / "ray-node.service")
    assert unit["Service"]["ExecStart"].split()[0] == f"%h/lab/deploy/systemd/{(FOLDER / 'ray-node.sh').name}"
    assert unit["Service"]["Restart"] == "always"
    assert unit["Install"]["WantedBy"] == "default.target"
