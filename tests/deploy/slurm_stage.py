"""A stage for the Slurm recipe: programs that stand for Slurm, Ray and the orchestrator, and write down their calls.

Each is a few lines of shell in a folder that comes first in PATH; Python is the real one, with a module called `ray`
that counts the nodes that were started, up to `FAKE_NODES`.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.deploy.recipes import DEPLOY
from tests.waiting import PATIENCE_S, wait_until

SCRIPT = DEPLOY / "slurm" / "lab.sbatch"

_WRITE_DOWN = """#!/bin/bash
# One write, since programs run at the same time.
printf '%s\\n' "${0##*/} $*" >> "$STAGE/calls"
"""

_PROGRAMS = {
    # Runs what follows its options, as the node would, and hands SIGTERM on.
    "srun": """
while [[ "$1" == --* ]]; do shift; done
trap 'echo "srun ended" >> "$STAGE/calls"; kill -TERM $!' TERM
"$@" &
wait $!
wait $!
""",
    # Runs until it is told to end.
    "ray": """
[ "$1" = start ] || exit 0
trap 'kill $!; exit' TERM
env > "$STAGE/environment of ray"
sleep infinity &
wait $!
""",
    # Behaves as FAKE_RUN says: `ends STATUS`, or `waits STATUS` for SIGTERM and leaves with that status, `saves STATUS`
    # a second later.
    "orchestrator": """
env > "$STAGE/environment of orchestrator"
[ "$1" != run ] || echo 7f3a5c
read -r manner status <<< "$FAKE_RUN"
if [ "$manner" != ends ]; then
    sleep infinity &
    trap 'echo "orchestrator asked to end" >> "$STAGE/calls"; kill $!' TERM
    echo > "$STAGE/waiting"
    wait $!
    wait $!
    [ "$manner" != saves ] || sleep 1
fi
exit "$status"
""",
    "scontrol": "",
    "ip": """
echo '2: eth0    inet 127.0.0.1/8 brd 127.255.255.255 scope global eth0'
""",
}

_RAY_MODULE = """
import os


def init(address, **options):
    if os.environ["FAKE_NODES"] == "-1":
        raise RuntimeError("no head at " + address)


def nodes():
    with open(os.environ["STAGE"] + "/calls") as calls:
        started = sum(line.startswith("ray start") for line in calls)
    return [{"Alive": True}] * min(started, int(os.environ["FAKE_NODES"]))
"""


class Stage:
    """One Slurm job on stage, from `sbatch` to its end; several in turn share its folder, as requeued ones do."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lab = folder / "lab"
        self._programs = folder / "programs"
        modules = folder / "modules"
        for made in (self.lab, self._programs, modules):
            made.mkdir()
        for name, text in _PROGRAMS.items():
            (self._programs / name).write_text(_WRITE_DOWN + text)
            (self._programs / name).chmod(0o755)
        (self._programs / "python").symlink_to(sys.executable)
        (modules / "ray.py").write_text(_RAY_MODULE)
        self.environment = {
            "PATH": f"{self._programs}:/usr/bin:/bin",
            "PYTHONPATH": str(modules),
            "HOME": str(folder),
            "STAGE": str(folder),
            "BERT_LAB": str(self.lab),
            "BERT_LAB_VENV": str(folder / "no-such-place"),
            "BERT_LAB_TEMP": str(folder),
            "FAKE_NODES": "2",
            "FAKE_RUN": "ends 0",
            "SLURM_JOB_ID": "4711",
            "SLURM_JOB_NUM_NODES": "2",
            "SLURM_CPUS_PER_TASK": "8",
            "SLURM_MEM_PER_NODE": "1000",
            "SLURMD_NODENAME": "node1",
        }

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the script as Slurm does."""
        (self.folder / "waiting").unlink(missing_ok=True)
        return subprocess.Popen(
            ["bash", str(SCRIPT), *arguments],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def finish(self, job: subprocess.Popen[str]) -> tuple[int, str]:
        """Wait for the script's end; its status and what it said. Nothing that it started may outlive it."""
        try:
            _, said = job.communicate(timeout=PATIENCE_S)
        finally:
            left = self.end_processes(job)
        assert not left, f"processes outlived the script: {left}"
        return job.returncode, said

    def end_processes(self, job: subprocess.Popen[str]) -> list[str]:
        """End what the script left behind, as Slurm does at the end of a job; the names of these processes."""
        left = dict(_processes_of(job.pid))
        for number in left:
            os.kill(number, signal.SIGKILL)
        return list(left.values())

    def play(self, *arguments: str) -> tuple[int, str]:
        """Play the script from its beginning to its end, undisturbed."""
        return self.finish(self.begin(*arguments))

    def wait_for_run(self) -> None:
        """Until the orchestrator on stage waits to be told to end."""
        wait_until((self.folder / "waiting").exists, "the orchestrator was not started")

    def interrupt(self, number: int, run: str, *arguments: str) -> tuple[int, str]:
        """Play the script up to the run, which behaves as it is told, send it a signal, and play on to the end."""
        self.environment["FAKE_RUN"] = run
        job = self.begin(*arguments)
        self.wait_for_run()
        os.kill(job.pid, number)
        return self.finish(job)

    def calls(self, *names: str) -> list[str]:
        """Calls so far, in order; those of the named programs alone where there are names."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [line for line in lines if not names or line.split()[0] in names]

    def environment_of(self, program: str) -> dict[str, str]:
        """The environment that a program was given."""
        lines = (self.folder / f"environment of {program}").read_text().splitlines()
        return dict(line.partition("=")[::2] for line in lines)


def _processes_of(session: int) -> Iterator[tuple[int, str]]:
    """Numbers and names of a session's processes; those that have ended and wait for their parent are none."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, fields = entry.read_text().partition("(")[2].rpartition(") ")
        except OSError:  # it has just ended
            continue
        state, _, _, its_session = fields.split()[:4]
        if int(its_session) == session and state != "Z":
            yield int(entry.parent.name), name
