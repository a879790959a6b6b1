"""Real runs as child processes of the command line, each with a Ray of its own: started, killed, resumed.

They share a home, so that text is tokenized once, and have nothing to do with the registry and storage of a person.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import ClusterError, RunFailedError
from orchestrator.pretraining.batch_trace import HOLD_VARIABLE, TRACE_VARIABLE
from orchestrator.settings import ADDRESS_VARIABLE, HOME_VARIABLE, REGISTRY_VARIABLE, STORAGE_VARIABLE, Settings
from orchestrator.specs import Spec
from orchestrator.specs.loading import spec_values

_COMMAND_LINE = (sys.executable, "-c", "from orchestrator.cli import main; main()")
_POLL_S = 0.05
_TRIES = 3
"""Number of times that a command is tried whose Ray does not start, as on a machine that is too busy."""
_OF_A_PERSON = (HOME_VARIABLE, STORAGE_VARIABLE, REGISTRY_VARIABLE, ADDRESS_VARIABLE, "RAY_AUTH_", "RAY_JOB_")
"""Beginnings of the variables that would lead a child to a person's registry, storage or cluster."""
_DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""Variable by which cuBLAS gives the same bits again; kernels of torch are asked for by the workers."""


@dataclass(frozen=True)
class ChildRun:
    """A run that has ended well, after one attempt or several."""

    run_id: str
    trace: Path
    """Folder of the batches that it consumed, where it pretrains."""


@dataclass(frozen=True)
class ChildRuns:
    """Runs in one home, which this makes."""

    home: Path

    @property
    def settings(self) -> Settings:
        """Settings by which the runs are found: home, registry, storage."""
        return Settings.from_options(home=str(self.home), environ={})

    def run(self, name: str, spec: Spec) -> ChildRun:
        """Carry out a spec without interruption. Raises: RunFailedError, naming the log."""
        return ChildRun(self._complete(name, "run", self._write(name, spec)), self._trace(name))

    def run_killed(
        self,
        name: str,
        spec: Spec,
        is_time: Callable[[Path, str], bool],
        hold_after: int | None = None,
        overrides: Sequence[str] = (),
    ) -> ChildRun:
        """Carry out a spec, kill all its processes by SIGKILL when it is time, and resume it.

        Args:
            is_time: asked again and again, with the run's trace and its id, whether to kill now.
            hold_after: number of steps after which pretraining waits for that.
            overrides: execution fields that it is resumed with, as `resume` takes them.

        Raises: RunFailedError, naming the log; also where the run ended before it was time.
        """
        hold = {} if hold_after is None else {HOLD_VARIABLE: str(hold_after)}
        path = self._write(name, spec)
        for _ in range(_TRIES):
            with self._start(name, "run", path, **hold) as child:
                run_id = _first_line(child)
                while child.poll() is None:
                    if is_time(self._trace(name), run_id):
                        break
                    time.sleep(_POLL_S)
            if child.returncode == -signal.SIGKILL:
                return ChildRun(self._complete(name, "resume", run_id, *overrides), self._trace(name))
            if child.returncode != ClusterError.exit_status:
                break
        raise RunFailedError(
            f"the run ended with status {child.returncode} before it could be killed{self._reason(name)}; "
            "if it completed, make it longer: more --steps, recipe.epochs or recipe.evaluations_per_epoch"
        )

    def _complete(self, name: str, *arguments: str) -> str:
        """Wait for a command to end well; returns the run's id, which it prints first. Raises: RunFailedError."""
        for _ in range(_TRIES):
            with self._start(name, *arguments) as child:
                run_id = _first_line(child)
                child.wait()
            if child.returncode == 0:
                return run_id
            if child.returncode != ClusterError.exit_status:
                break
        raise RunFailedError(f"a run of the comparison failed{self._reason(name)}")

    def _write(self, name: str, spec: Spec) -> str:
        path = self.home / "specs" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(spec_values(spec)), encoding="utf-8")  # JSON is YAML
        return str(path)

    @contextmanager
    def _start(self, name: str, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
        """Start a command; at the end of the block it is killed with all that it started, if it still runs."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(_OF_A_PERSON)}
        environment |= {**_DETERMINISTIC, **variables, TRACE_VARIABLE: str(self._trace(name))}
        command = [*_COMMAND_LINE, "--home", str(self.home), *arguments]
        with (
            self._log(name).open("a", encoding="utf-8") as log,
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, start_new_session=True
            ) as child,
        ):
            try:
                yield child
            finally:
                _kill(child)

    def _reason(self, name: str) -> str:
        lines = self._log(name).read_text(encoding="utf-8", errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "no message")
        return f": {last} (its messages: {self._log(name)})"

    def _log(self, name: str) -> Path:
        return self.home / f"{name}.log"

    def _trace(self, name: str) -> Path:
        return self.home / "traces" / name


def _first_line(child: "subprocess.Popen[str]") -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def _kill(child: "subprocess.Popen[str]") -> None:
    """Send SIGKILL to a command and to all processes below it, its Ray's too, which have groups of their own."""
    if child.poll() is not None:
        return
    below = _descendants(child.pid)
    for process in (child.pid, *below):
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    child.wait()


def _descendants(process: int) -> list[int]:
    """Return the processes below a process; none without /proc, where those of Ray end when they miss the driver."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended since
            _, _, rest = path.read_text().rpartition(")")
            children.setdefault(int(rest.split()[1]), []).append(int(path.parent.name))
    found = list(children.get(process, ()))
    for each in found:  # grows while it is read
        found += children.get(each, ())
    return found
