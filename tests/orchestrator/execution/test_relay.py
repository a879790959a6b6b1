"""The relay: a command's streams, status and file as marked lines of one log, and read from it again.

Alone: .venv/bin/pytest tests/orchestrator/execution/test_relay.py
"""

import base64
import json
import os
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import orchestrator.execution.relay
from orchestrator.execution.relay import FrameReader, relay_command
from orchestrator.settings import API_ADDRESS_VARIABLE

MARK = "5ca1ab1e"


def relayed(
    monkeypatch: pytest.MonkeyPatch, program: str, *, terminals: dict[str, tuple[int, int]] | None = None,
    files: Sequence[str] = (), returned: str | None = None,
) -> tuple[int, dict[str, bytes]]:  # fmt: skip
    """Status and frames, joined by their kinds, of a Python program in the command line's place."""
    monkeypatch.setattr(orchestrator.execution.relay, "_COMMAND_LINE", (sys.executable, "-c"))
    lines: list[bytes] = []
    status = relay_command(
        MARK, [program], terminals=terminals or {}, files=files, returned=returned,
        write=lines.append,
    )  # fmt: skip
    found: dict[str, bytes] = {}
    for kind, data in FrameReader(MARK).read(b"".join(lines).decode("ascii")):
        found[kind] = found.get(kind, b"") + data
    return status, found


def test_both_streams_and_the_status_come_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import sys; print('data ä'); print('a word', file=sys.stderr); print(sys.stdout.isatty()); sys.exit(3)"
    status, found = relayed(monkeypatch, program)
    assert status == 3
    assert found == {"out": "data ä\nFalse\n".encode(), "err": b"a word\n", "exit": b"3"}


def test_output_of_any_bytes_and_length_arrives_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 400)"
    assert relayed(monkeypatch, program)[1]["out"] == bytes(range(256)) * 400


def test_a_terminal_here_is_a_terminal_of_that_size_there(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import os, sys; print(sys.stdout.isatty(), sys.stderr.isatty(), *os.get_terminal_size(1))"
    status, found = relayed(monkeypatch, program, terminals={"out": (123, 45)})
    assert (status, found["out"]) == (0, b"True False 123 45\n")


def test_a_command_whose_asker_has_gone_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orchestrator.execution.relay, "_COMMAND_LINE", (sys.executable, "-c"))
    lines: list[bytes] = []
    program = "import time; time.sleep(600)"
    assert relay_command(MARK, [program], terminals={}, lease_s=0.5, write=lines.append) > 128
    assert [kind for kind, _ in FrameReader(MARK).read(b"".join(lines).decode())] == ["begin", "exit"]


def test_a_command_goes_on_while_its_time_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line takes twenty seconds of the clock, and the command is given thirty."""
    monkeypatch.setattr(orchestrator.execution.relay, "_COMMAND_LINE", (sys.executable, "-u", "-c"))
    now = [time.time()]
    monkeypatch.setattr(orchestrator.execution.relay, "time", SimpleNamespace(time=lambda: now[0]))
    reader, leases, heard = FrameReader(MARK), list[Path](), list[bytes]()

    def renew(line: bytes) -> None:
        for kind, data in reader.read(line.decode()):
            if kind == "begin":
                leases.append(Path(json.loads(data)["lease"]))
            elif kind == "out":
                heard.append(data)
                now[0] += 20
                os.utime(leases[0], (now[0], now[0]))

    program = "import os, time\nfor number in range(8): os.write(1, b'x'); time.sleep(0.05)"
    assert relay_command(MARK, [program], terminals={}, lease_s=30.0, write=renew) == 0
    assert b"".join(heard) == b"x" * 8


def test_files_are_at_hand_and_a_written_one_goes_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text("kind: x")
    program = "open('made.csv', 'wb').write(open('spec.yaml', 'rb').read() * 3000)"
    status, found = relayed(monkeypatch, program, files=["spec.yaml"], returned="made.csv")
    assert (status, found["file"]) == (0, b"kind: x" * 3000)
    assert [path.name for path in tmp_path.iterdir()] == ["spec.yaml"]


def test_a_file_that_was_not_written_does_not_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "file" not in relayed(monkeypatch, "raise SystemExit(2)", returned="made.csv")[1]


def test_a_command_is_not_sent_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(API_ADDRESS_VARIABLE, "http://head:8265")
    program = f"import os; print(os.environ.get('{API_ADDRESS_VARIABLE}'))"
    assert relayed(monkeypatch, program)[1]["out"] == b"None\n"


def test_a_command_that_a_signal_ends_has_the_status_of_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    assert relayed(monkeypatch, "import os; os.kill(os.getpid(), 9)")[0] == 137


def test_what_it_leaves_running_does_not_hold_its_end_up(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid)"
    status, found = relayed(monkeypatch, program)
    os.kill(int(found["out"]), 9)
    assert status == 0


def test_an_interruption_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orchestrator.execution.relay, "_COMMAND_LINE", (sys.executable, "-u", "-c"))
    pids: list[int] = []

    def interrupt(line: bytes) -> None:
        pids.append(int(base64.b64decode(line.split()[2])))
        raise KeyboardInterrupt

    program = "import os, time; print(os.getpid()); time.sleep(600)"
    with pytest.raises(KeyboardInterrupt):
        relay_command(MARK, [program], terminals={}, write=interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


@given(st.lists(st.integers(0, 400), max_size=6))
def test_frames_are_found_wherever_the_log_is_cut_and_whatever_stands_between(cuts: list[int]) -> None:
    log = (
        f"Running entrypoint for job x: orchestrator relay {MARK} --out 80x24 -- runs list\n"
        f"[state-dump] NodeManager:\n{MARK} out {base64.b64encode(b'one').decode()}\n"
        f"a line of somebody else's without an end {MARK} err {base64.b64encode(b'two').decode()}\n"
        f"{MARK} out\nother {MARK} exit nothing!\n{MARK} exit {base64.b64encode(b'0').decode()}\n"
    )
    ends = sorted({min(cut, len(log)) for cut in cuts} | {0, len(log)})
    reader = FrameReader(MARK)
    found = [frame for start, end in pairwise(ends) for frame in reader.read(log[start:end])]
    assert found == [("out", b"one"), ("err", b"two"), ("exit", b"0")]
