"""Comparison of an uninterrupted run with killed and resumed ones, and with other numbers of workers.

| kind | killed | compared |
| --- | --- | --- |
| pretraining, and a distillation on a corpus | after K of 2 K steps | batches, weights, optimizer |
| the same with another number of workers | never | batches |
| the same, resumed with another number of workers | after K of 2 K steps | batches |
| a distillation on a task | after its first checkpoint | scores, weights, predictions |
| a sweep | after its first trial, or a trial's first checkpoint | scores of all trials, weights, predictions |

Batches are compared by digests of the tokens, masks and labels of each example, in the order of the global batch. The
runs are child processes of the command line, each with a Ray of its own. They share a home, so that text is tokenized
once, and have nothing to do with the registry and storage of a person.
"""

import hashlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil

from orchestrator.base.console import counted
from orchestrator.base.errors import ClusterError, RunFailedError, SpecError
from orchestrator.base.metric_names import is_of_the_machine
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import ADDRESS_VARIABLE, HOME_VARIABLE, REGISTRY_VARIABLE, STORAGE_VARIABLE, Settings
from orchestrator.kinds import kind_of, resolved_inputs
from orchestrator.pretraining.batch_trace import HOLD_VARIABLE, TRACE_VARIABLE, combine_digests, num_holding, read_trace
from orchestrator.registry import Registry
from orchestrator.registry.fields import RUN_COLUMNS
from orchestrator.specs import PretrainSpec, Spec
from orchestrator.specs.loading import apply_override, parse_overrides, spec_values
from orchestrator.specs.pretrain import pretraining_of
from orchestrator.specs.references import replace_names
from orchestrator.specs.validation import validate_document
from orchestrator.specs.yaml_text import YamlDocument
from orchestrator.storage import digest_file, join
from orchestrator.training.checkpoints import POINTER, Checkpoints

logger = logging.getLogger(__name__)
_COMMAND_LINE = (sys.executable, "-c", "from orchestrator.cli import main; main()")
_POLL_S = 0.05
_TRIES = 3
"""Number of times that a command is tried whose Ray does not start, as on a machine that is too busy."""
_OF_A_PERSON = (HOME_VARIABLE, STORAGE_VARIABLE, REGISTRY_VARIABLE, ADDRESS_VARIABLE, "RAY_AUTH_", "RAY_JOB_")
"""Beginnings of the variables that would lead a child to a person's registry, storage or cluster."""
_DETERMINISTIC = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
"""Variable by which cuBLAS gives the same bits again; kernels of torch are asked for by the workers."""
BATCHES = "batches"
"""Name of what does not depend on the number of workers."""
_OF_THE_CLOCK = set(RUN_COLUMNS) - {"number", "seed", "state"}
Outcome = dict[str, str]
"""Digests by the name of what they are of."""


@dataclass(frozen=True)
class ChildRuns:
    """Runs in one home, each with a name by which its messages and batches are found there."""

    home: Path

    @property
    def settings(self) -> Settings:
        """Settings by which the runs are found: home, registry, storage."""
        return Settings.from_options(home=str(self.home), environ={})

    def trace(self, name: str) -> Path:
        """Folder of the batches that a run has consumed, where it pretrains."""
        return self.home / "traces" / name

    def run(self, name: str, spec: Spec) -> str:
        """Carry out a spec without interruption; returns the run's id. Raises: RunFailedError, naming the log."""
        return self._complete(name, "run", self._write(name, spec))

    def run_killed(
        self,
        name: str,
        spec: Spec,
        is_time: Callable[[str], bool],
        hold_after: int | None = None,
        overrides: Sequence[str] = (),
    ) -> str:
        """Carry out a spec, kill all its processes by SIGKILL when it is time, and resume it; returns the run's id.

        Args:
            is_time: asked again and again, with the run's id, whether to kill now.
            hold_after: number of steps after which pretraining waits for that.
            overrides: execution fields that it is resumed with, as `resume` takes them.

        Raises: RunFailedError, naming the log; also where the run ended before it was time.
        """
        hold = {} if hold_after is None else {HOLD_VARIABLE: str(hold_after)}
        run_id, status = self._carry_out(name, "run", self._write(name, spec), is_time=is_time, **hold)
        if status == -signal.SIGKILL:
            return self._complete(name, "resume", run_id, *overrides)
        raise RunFailedError(
            f"the run ended with status {status} before it could be killed; see {self._log(name)}. "
            "If it completed, make it longer: more --steps, recipe.epochs or recipe.evaluations_per_epoch"
        )

    def _complete(self, name: str, *arguments: str) -> str:
        run_id, status = self._carry_out(name, *arguments)
        if status:
            raise RunFailedError(f"a run of the comparison failed with status {status}; see {self._log(name)}")
        return run_id

    def _carry_out(
        self, name: str, *arguments: str, is_time: Callable[[str], bool] = lambda run_id: False, **variables: str
    ) -> tuple[str, int]:
        """Start a command, again where Ray does not start, and wait for its end, or kill it when it is time.

        Returns: the run's id, which the command prints first, and the exit status.
        """
        environment = {key: value for key, value in os.environ.items() if not key.startswith(_OF_A_PERSON)}
        environment |= {**_DETERMINISTIC, **variables, TRACE_VARIABLE: str(self.trace(name))}
        command = [*_COMMAND_LINE, "--home", str(self.home), *arguments]
        for _ in range(_TRIES):
            with (
                self._log(name).open("a", encoding="utf-8") as log,
                subprocess.Popen(
                    command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, start_new_session=True
                ) as child,
            ):
                assert child.stdout is not None
                try:
                    run_id = child.stdout.readline().strip()
                    while child.poll() is None and not is_time(run_id):
                        time.sleep(_POLL_S)
                finally:
                    _kill(child)
            if child.returncode != ClusterError.exit_status:
                break
        return run_id, child.returncode

    def _write(self, name: str, spec: Spec) -> str:
        path = self.home / "specs" / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(spec_values(spec)), encoding="utf-8")  # JSON is YAML
        return str(path)

    def _log(self, name: str) -> Path:
        return self.home / f"{name}.log"


def _kill(child: "subprocess.Popen[str]") -> None:
    """Send SIGKILL to a command, where it still runs, and to all processes below it: Ray's have groups of their own."""
    if child.poll() is None:
        below = psutil.Process(child.pid).children(recursive=True)
        child.kill()
        for process in below:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def pretraining_outcome(runs: ChildRuns, name: str, run_id: str, num_steps: int) -> Outcome:
    """Digests of a pretraining: batches in their order, then weights and optimizer after the last step."""
    with Registry(runs.settings.registry) as registry:
        folder = registry.run(run_id).folder(runs.settings.storage)
    newest, batches = Checkpoints(folder).newest_first()[0], read_trace(runs.trace(name))
    missing = [step for step in range(1, num_steps + 1) if step not in batches]
    return {
        BATCHES: f"no batch for step {missing[0]}" if missing else combine_digests(batches.values()),
        "weights": digest_file(join(newest.path, "model.safetensors")),
        "optimizer": digest_file(join(newest.path, "optimizer.safetensors")),
    }


def task_outcome(runs: ChildRuns, run_id: str) -> Outcome:
    """Digests of a sweep or a distillation on a task: scores of each trial, the model's weights, its predictions."""
    with Registry(runs.settings.registry) as registry:
        record = registry.run(run_id)
        rows = [*registry.trials.table(run_id).records, registry.metrics.latest(run_id)]
    scores = json.dumps([_reproducible(row) for row in rows], sort_keys=True)
    outcome = {"scores": hashlib.sha256(scores.encode()).hexdigest()}
    if record.model_folder is not None:
        outcome["weights"] = digest_file(join(record.model_folder, "model.safetensors"))
    if record.predictions_path is not None:
        outcome["predictions"] = digest_file(record.predictions_path)
    return outcome


def _reproducible(row: Mapping[str, Any]) -> dict[str, str]:
    """Scores, parameters, number, seed and state of a trial: what no clock is part of."""
    named = row.items()
    return {name: str(value) for name, value in named if name not in _OF_THE_CLOCK and not is_of_the_machine(name)}


@dataclass(frozen=True)
class Comparison:
    """Comparison of one thing that two runs consumed or left."""

    run: str
    """Name of the run that is compared with the uninterrupted one."""
    what: str
    equal: bool
    straight: str
    """Digest of the uninterrupted run."""
    other: str


def verify_resume(
    spec: Spec, settings: Settings, *, num_steps: int = 5, worker_counts: Sequence[int] = ()
) -> list[Comparison]:
    """Carry a spec out several times on this machine, and compare; where something differs, the runs are kept.

    Args:
        settings: names of models and tokenizers are looked up by them; the runs lie in a new folder of their home.
        num_steps: K: a pretraining is shortened to 2 K steps.
        worker_counts: further numbers of workers to compare; one other than the spec's when left out.

    Raises: SpecError for a kind that is not resumed in its midst; InputErrors of the spec; RunFailedError.
    """
    kind = kind_of(spec)
    if not kind.resumes_midway:
        raise SpecError(
            f"verify-resume compares runs of kind pretrain, distill and sweep, and this is of kind {spec.kind}; "
            "give it the spec of one stage"
        )
    pretraining = pretraining_of(spec)
    for count in worker_counts:
        if pretraining is not None and pretraining.smallest_batch < count:
            raise SpecError(
                f"--workers {count}: global_batch_size {pretraining.smallest_batch} cannot be shared by "
                f"{counted(count, 'worker')}; give a smaller number"
            )
    inputs = resolved_inputs(spec, settings)
    kind.preflight(spec, inputs)
    named = replace_names(spec, inputs.folder)  # the children have another registry
    home = settings.home.absolute() / "verify" / uuid4().hex[:8]
    home.mkdir(parents=True)
    runs = ChildRuns(home)
    if pretraining is None:
        comparisons = list(_compare_task(named, runs))
    else:
        path = "" if pretraining is spec else "pretraining."
        comparisons = list(_compare_pretraining(named, path, pretraining, runs, num_steps, worker_counts))
    if all(comparison.equal for comparison in comparisons):
        shutil.rmtree(home, ignore_errors=True)
    else:
        logger.warning(f"a run that was killed or shared differs; the runs are kept in {home}")
    return comparisons


def _compare_pretraining(
    spec: Spec, path: str, pretraining: PretrainSpec, runs: ChildRuns, num_steps: int, worker_counts: Sequence[int]
) -> Iterator[Comparison]:
    """Compare runs of twice the steps, with a checkpoint in the middle.

    Of a range of workers the fewest are taken, since bits are compared.

    Args:
        path: of the section that pretrains, with a dot at its end.
    """
    num_workers, total = pretraining.execution.min_workers, 2 * num_steps
    execution: dict[str, object] = {
        "num_workers": num_workers,
        "checkpoint_every_steps": num_steps,
        "checkpoint_every_minutes": None,
        "evaluate_every_steps": num_steps,
        "snapshot_steps": [],
        "snapshot_optimizer": False,
    }
    values: dict[str, object] = {"steps": total, "init_step": None, "average_steps": []}
    values |= {f"execution.{name}": value for name, value in execution.items()}
    short = _with_values(spec, {f"{path}{name}": value for name, value in values.items()})

    def straight(name: str, asked: Spec, count: int) -> Outcome:
        logger.info(f"{total} steps without interruption, {counted(count, 'worker')}")
        return pretraining_outcome(runs, name, runs.run(name, asked), total)

    def killed(name: str, *overrides: str) -> Outcome:
        logger.info(f"{num_steps} steps, kill -9, and {num_steps} more {' '.join(overrides)}")
        run_id = runs.run_killed(
            name, short, lambda run_id: num_holding(runs.trace(name)) == num_workers, num_steps, overrides
        )
        return pretraining_outcome(runs, name, run_id, total)

    wanted, run = straight("straight", short, num_workers), f"killed after step {num_steps}, resumed"
    yield from _compared(run, wanted, killed("killed"))
    others = [count for count in (1, 2) if count <= pretraining.smallest_batch and count != num_workers]
    for count in worker_counts or others[:1]:
        workers, override = counted(count, "worker"), f"{path}execution.num_workers={count}"
        other = _with_values(short, {f"{path}execution.num_workers": count})
        yield from _compared(workers, wanted, straight(f"workers-{count}", other, count), [BATCHES])
        outcome = killed(f"killed-workers-{count}", override)
        yield from _compared(f"{run} with {workers}", wanted, outcome, [BATCHES])


def _with_values(spec: Spec, values: Mapping[str, object]) -> Spec:
    """The spec with other values at some dotted paths. Raises: SpecError where they do not go together."""
    document = YamlDocument(spec_values(spec), {})
    for key, value, place in parse_overrides(values):
        apply_override(document, key, value, place)
    return validate_document(document)


def _compare_task(spec: Spec, runs: ChildRuns) -> Iterator[Comparison]:
    logger.info("the run without interruption")
    straight = task_outcome(runs, runs.run("straight", spec))
    logger.info("the run again: kill -9 when there is something to go on from, and resumed")
    killed = runs.run_killed("killed", spec, lambda run_id: _can_go_on(run_id, runs.settings))
    yield from _compared("killed, resumed", straight, task_outcome(runs, killed))


def _can_go_on(run_id: str, settings: Settings) -> bool:
    """Whether a run on a task has left a checkpoint, or an ended trial."""
    if any((Path(settings.storage) / "runs" / run_id).rglob(POINTER)):
        return True
    with Registry(settings.registry) as registry:
        return RunState.COMPLETED in registry.trials.table(run_id).values("state")


def _compared(run: str, straight: Outcome, other: Outcome, names: Iterable[str] = ()) -> Iterator[Comparison]:
    """Yield a comparison for each thing of these names; for each that either run has when left out."""
    for what in names or {**straight, **other}:
        mine, theirs = straight.get(what, "none"), other.get(what, "none")
        yield Comparison(run, what, mine == theirs, mine, theirs)
