"""Monitor of this host's Ray node, which brings the node back whenever it ends; the cluster files start it.

    python node_monitor.py start --head --port=6379     what `ray start` takes; returns when the node runs
    python node_monitor.py stop                         the node ends and stays away
    python node_monitor.py boot                         what cron does when the host comes up: starts as the last time

`ray start --block` ends when a process of the node is killed, and goes on with nothing below it when the raylet ends by
itself, as it does when it counts as dead or has lost the head. The monitor sees both and starts the node again. The
autoscaler does not: to a host whose update has failed once it never comes back.

`ray stop` ends the monitor too: it ends what has `monitor.py` in its command line. So do `ray down`, on the head, and
the first of the cluster files' start commands. A monitor that was killed leaves its node to work unwatched; the next
monitor ends that node before it starts its own, since two of one host would share its CPUs out twice.

Linux. Only the standard library: the file runs by itself, before anything else of the host is sure to work.
"""

import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NoReturn

FOLDER = Path.home() / ".bert-lab" / socket.gethostname()
"""Has what the node is started with, its log, and two locks. Hosts of different names may share a home."""
NODE, LOG = FOLDER / "node.json", FOLDER / "node.log"
MONITOR_LOCK, NODE_LOCK = FOLDER / "monitor.lock", FOLDER / "node.lock"
"""Held by the monitor, and by the `ray start` that it has started; each has the process id of its holder."""
AWAY = FOLDER / "away"
"""Has the Unix time until which the node is not started again, where the host is about to be taken away."""
FILE_LIMIT = 65536
"""Open files that a node may need; less where the host allows no more."""
STEADY_S = 60.0
"""A node that ran so long is started again at once when it ends."""
PAUSE_S, LONGEST_PAUSE_S = 2.0, 30.0
LOOK_S = 1.0
END_S = 10.0
"""Time that a node gets to end by itself."""
STARTED = "Ray runtime started"
"""Words of `ray start` when the node runs."""


def start(arguments: Sequence[str]) -> int:
    """Start a node that is kept running, now and after each boot; returns the exit status."""
    _end_holder(MONITOR_LOCK)
    FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
    LOG.touch(mode=0o600)
    # A host may lose its power here: the file is the old one or the new one.
    written = NODE.with_suffix(".new")
    written.touch(mode=0o600)
    with written.open("w") as file:
        json.dump({"arguments": list(arguments), "environment": dict(os.environ)}, file)
        file.flush()
        os.fsync(file.fileno())
    written.replace(NODE)
    _set_boot_line(f"@reboot {sys.executable} -P {Path(__file__).resolve()} boot > /dev/null 2>&1")
    begin = LOG.stat().st_size
    with LOG.open("ab") as log:
        # The path of this file, not its module's name: `ray stop` looks for it in the command line.
        monitor = subprocess.Popen(
            [sys.executable, "-P", str(Path(__file__).resolve()), "boot"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return _wait_for_the_node(monitor, begin)


def _wait_for_the_node(monitor: "subprocess.Popen[bytes]", begin: int) -> int:
    """Wait for the end of the first attempt, and tell how it went."""
    said = ""
    while STARTED not in said:
        has_ended = monitor.poll() is not None
        if has_ended or "next attempt" in said:
            next_try = "Nobody tries it again: give this command again" if has_ended else f"It is tried again: {LOG}"
            print(f"{said}\nThe Ray node did not start; the reason is above. {next_try}", file=sys.stderr)
            return 1
        time.sleep(LOOK_S)
        said = _said_since(begin)
    print(f"The Ray node runs; process {monitor.pid} brings it back when it ends. Log: {LOG}")
    return 0


def boot() -> int:
    """Start the node as `start` did the last time, again and again, until this process is asked to end."""
    if not NODE.exists():
        print(f"there is no {NODE}: nothing was started on this host before", file=sys.stderr)
        return 1
    node = json.loads(NODE.read_text())
    AWAY.unlink(missing_ok=True)  # the host is back
    raise_file_limit()
    signal.signal(signal.SIGTERM, _leave)
    with MONITOR_LOCK.open("a+") as lock, LOG.open("ab") as log:
        if not _take(lock):
            print("a monitor runs on this host already", file=sys.stderr)
            return 1
        _name_holder(lock, os.getpid())
        _keep_running(["ray", "start", "--block", *node["arguments"]], node["environment"], log)
    return 0


def _keep_running(command: list[str], environment: dict[str, str], log: IO[bytes]) -> None:
    """Run a command as often as it ends; returns when this process is asked to end."""
    pause_s = PAUSE_S
    with suppress(SystemExit):
        while True:
            began = time.monotonic()
            try:
                _run_once(command, environment, log)
            except OSError as error:  # the environment of Python may be just being installed anew
                log.write(f"{error}\n".encode())
            pause_s = PAUSE_S if time.monotonic() - began >= STEADY_S else min(2 * pause_s, LONGEST_PAUSE_S)
            wait_s = max(pause_s, _away_s())
            log.write(f"{time.strftime('%F %T')} the node has ended; next attempt in {wait_s:.0f} s\n".encode())
            log.flush()
            time.sleep(wait_s)


def _away_s() -> float:
    """Time for which the host is to stay away from its cluster."""
    with suppress(OSError, ValueError):
        return float(AWAY.read_text()) - time.time()
    return 0.0


def _run_once(command: list[str], environment: dict[str, str], log: IO[bytes]) -> None:
    """Start the node and wait until it has ended, or its raylet has."""
    _end_holder(NODE_LOCK)
    begin = LOG.stat().st_size
    with NODE_LOCK.open("a+") as lock:
        _take(lock)
        starter = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=[lock.fileno()],  # the lock is the starter's from here on, whatever becomes of this process
        )
        _name_holder(lock, starter.pid)
    try:
        while starter.poll() is None:
            has_started = STARTED in _said_since(begin)
            if has_started and not _has_raylet(starter.pid):
                return
            time.sleep(LOOK_S)
    finally:
        starter.terminate()
        with suppress(subprocess.TimeoutExpired):
            starter.wait(END_S)
        # The kernel ends the node's processes with the one that started them.
        starter.kill()
        starter.wait()


def _said_since(begin: int) -> str:
    """Text of the log from this byte on."""
    with LOG.open("rb") as log:
        log.seek(begin)
        return log.read().decode(errors="replace")


def _has_raylet(starter: int) -> bool:
    """Whether a raylet runs that a process has started."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = status.read_text().partition("(")[2].rpartition(")")
            state, parent = rest.split()[:2]
            if name == "raylet" and state != "Z" and int(parent) == starter:
                return True
    return False


def raise_file_limit() -> None:
    """Let a node open as many files as it may need, or as the host allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILE_LIMIT if hard == resource.RLIM_INFINITY else min(FILE_LIMIT, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def stop() -> NoReturn:
    """End the node and its monitor, now and after the next boot; this process becomes `ray stop`."""
    _end_holder(MONITOR_LOCK)
    _end_holder(NODE_LOCK)
    _set_boot_line("")
    NODE.unlink(missing_ok=True)
    # As a child `ray stop` would end this process, whose command line has `monitor.py`.
    with suppress(FileNotFoundError):
        os.execvp("ray", ["ray", "stop"])
    sys.exit("The node and its monitor have ended. `ray`, to stop what else is left, is not on the PATH")


def _take(lock: IO[str]) -> bool:
    """Lock a file unless another process has; returns whether it is locked here."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _name_holder(lock: IO[str], process: int) -> None:
    """Write into a lock's file who holds it."""
    lock.truncate(0)
    lock.write(str(process))
    lock.flush()


def _end_holder(path: Path) -> None:
    """End the process that holds a lock, where one does, and wait for its end."""
    if not path.exists():
        return
    with path.open("r+") as lock:  # on NFS a lock needs a file that is open for writing
        for end in (signal.SIGTERM, signal.SIGKILL):
            if _take(lock):
                return
            lock.seek(0)
            with suppress(ProcessLookupError, ValueError):
                os.kill(int(lock.read()), end)
            # A monitor needs as long as its node, and then some.
            begun = time.monotonic()
            while time.monotonic() - begun < 2 * END_S and not _take(lock):
                time.sleep(END_S / 100)


def _set_boot_line(line: str) -> None:
    """Write what cron does at boot; the other lines of this user stay."""
    by_hand = "after a reboot start this host's Ray node by hand"
    try:
        table = subprocess.run(["crontab", "-l"], capture_output=True, text=True)
    except FileNotFoundError:
        if line:
            print(f"cron is not installed: {by_hand}", file=sys.stderr)
        return
    if table.returncode and "no crontab" not in table.stderr:  # what is not read must not be replaced
        print(f"cron refuses this user ({table.stderr.strip()}): {by_hand}", file=sys.stderr)
        return
    lines = [other for other in table.stdout.splitlines() if Path(__file__).name not in other] + [line] * bool(line)
    written = subprocess.run(["crontab", "-"], input="".join(f"{each}\n" for each in lines), text=True)
    if written.returncode:
        print(f"cron takes no line for this user: {by_hand}", file=sys.stderr)


def _leave(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def main() -> int:
    """Carry out the command in `argv`; returns the exit status."""
    match sys.argv[1:]:
        case ["start", *arguments]:
            return start(arguments)
        case ["stop"]:
            return stop()
        case ["boot"]:
            return boot()
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
