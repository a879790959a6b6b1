"""Carry specs out: the record around a run, a Ray for it, and stages that use one another's results.

    spec ─► looked over (nothing started, nothing recorded) ─► Ray ─► run recorded ─► stage ─► result recorded

A failure after the run is recorded is recorded on it; an interruption leaves it STOPPED, to be resumed.
"""

import hashlib
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from orchestrator.cluster.addresses import names_no_cluster
from orchestrator.cluster.capacity import check_processes, check_resources, local_resources
from orchestrator.cluster.connection import connect
from orchestrator.errors import InputError, RegistryUnavailableError, SpecError
from orchestrator.execution.recorder import Recorder
from orchestrator.execution.run_log import logged_run
from orchestrator.execution.stages import StageContext, run_stage
from orchestrator.models.resolve import pin_names
from orchestrator.planning.checks import (
    PlanRow,
    check_inputs,
    input_identity,
    needed_processes,
    needed_resources,
    plan_rows,
)
from orchestrator.progress import show_progress
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.results import Result
from orchestrator.settings import Settings
from orchestrator.specs import DistillSpec, EvaluateSpec, PipelineSpec, Spec, SweepSpec
from orchestrator.specs.loading import load_spec, parse_spec, spec_values
from orchestrator.specs.references import resolve_references
from orchestrator.storage import delete, exists, join, write_bytes
from orchestrator.tasks import load_task


def run(
    spec: str | Path | Spec,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    home: str | None = None,
    storage: str | None = None,
    registry: str | None = None,
    address: str | None = None,
) -> RunRecord:
    """Carry out a spec file (or a spec) as a new run and return its record: what `orchestrator run` does.

    Raises: SpecError and other InputErrors, ClusterError, RegistryError; RunFailedError with the run's reason.
    """
    settings = Settings.from_options(home, storage, registry, address)
    if isinstance(spec, Spec) and overrides:
        raise SpecError("overrides go with a spec file; change a spec itself by spec.model_copy(update=…)")
    loaded = spec if isinstance(spec, Spec) else load_spec(spec, overrides)
    return run_spec(loaded, settings=settings)


def run_spec(spec: Spec, *, settings: Settings, on_started: Callable[[str], None] = lambda run_id: None) -> RunRecord:
    """Carry out a spec as a new run; `on_started` is told its id as soon as it is recorded."""
    check_inputs(spec, settings)
    _check_storage(settings.storage)
    with _session(spec, settings) as laboratory:
        return laboratory.start(spec, on_started=on_started)


def resume_run(
    run_id: str, *, settings: Settings, on_started: Callable[[str], None] = lambda run_id: None
) -> RunRecord:
    """Go on with a run that did not complete, from its last checkpoint; a completed one is left as it is.

    Raises: InputError while the run's driver is alive, beside what `run_spec` raises.
    """
    with Registry(settings.registry) as registry:
        record = registry.run(run_id)
        if record.parent_id is not None:
            record = registry.run(record.parent_id)
    on_started(record.id)
    if record.state == "COMPLETED":
        return record
    _refuse_if_alive(record)
    spec = parse_spec(record.spec)
    with _session(spec, settings) as laboratory:
        return laboratory.go_on(record, spec)


def plan_spec(spec: Spec, *, settings: Settings) -> list[PlanRow]:
    """What a spec needs and does, without starting anything; refuses input that is not there."""
    check_inputs(spec, settings)
    return plan_rows(spec, settings)


def check_room(spec: Spec, settings: Settings) -> None:
    """See that the cluster at `settings.address` has room for a spec, or else this machine; no Ray is started on it.

    Raises: ClusterError, naming what is missing.
    """
    if names_no_cluster(settings):
        here = local_resources(needed_resources(spec).get("CPU", 0.0))
        _check_room(spec, settings, here, [here])
        return
    with connect(settings):
        _check_room(spec, settings)


@dataclass(frozen=True)
class _Session:
    """A connected Ray and an open registry."""

    settings: Settings
    registry: Registry
    recorder: Recorder

    def start(
        self, spec: Spec, tags: Sequence[str] = (), on_started: Callable[[str], None] = lambda run_id: None
    ) -> RunRecord:
        """Record a new run and carry it out."""
        spec = pin_names(spec, self.settings)
        values = spec_values(spec) | {"tags": [*spec.tags, *tags]}
        run_id = uuid4().hex[:12]
        folder = join(self.settings.storage, "runs", run_id)
        task = spec.task if isinstance(spec, SweepSpec | DistillSpec | EvaluateSpec) else None
        metric = None if task is None else load_task(task).metric
        record = self.recorder.start(values, spec.fingerprint(), metric=metric, storage_path=folder, run_id=run_id)
        on_started(run_id)
        return self._carry_out(record, spec)

    def go_on(self, record: RunRecord, spec: Spec) -> RunRecord:
        """Another attempt at a run."""
        return self._carry_out(self.recorder.resume(record.id), spec)

    def _carry_out(self, record: RunRecord, spec: Spec) -> RunRecord:
        run_folder = record.storage_path or join(self.settings.storage, "runs", record.id)
        try:
            with (
                self.recorder.heartbeating(record.id) as superseded,
                show_progress() as progress,
                logged_run(run_folder),
            ):
                progress.log(f"run {record.id} ({record.kind} {record.name}, attempt {record.attempt})")
                context = StageContext(
                    record.id, record.attempt, run_folder, self.settings, self.recorder, progress, superseded
                )
                result: Result | None = None
                if isinstance(spec, PipelineSpec):
                    self._pipeline(spec, context)
                else:
                    result = run_stage(spec, context)
                context.refuse_if_superseded()
            self.recorder.result(record.id, result)
        except BaseException as error:
            with suppress(RegistryUnavailableError):  # the run will read LOST; why it ended is said all the same
                self.recorder.failed(record.id, error)
            raise
        return self.registry.run(record.id)

    def _pipeline(self, spec: PipelineSpec, context: StageContext) -> None:
        """Stages in order; each is a run of its own, tagged with the pipeline's id and with what went into it."""
        outputs: dict[str, str] = {}
        for stage, asked in spec.stages.items():
            ready = resolve_references(asked, outputs).named(f"{spec.name}/{stage}")
            key = f"inputs:{_stage_key(ready, self.settings)}"
            record = self._stage(ready, key, context)
            outputs[stage] = self._output(record)

    def _stage(self, spec: Spec, key: str, context: StageContext) -> RunRecord:
        tags = (f"pipeline:{context.run_id}", key)
        completed = self.registry.runs(f"tag = '{key}' and state = 'COMPLETED'", sort="-created_at", limit=1)
        for run_id in completed["id"]:
            record = self.registry.run(run_id)
            if exists(record.model_folder or self._output(record)):
                context.progress.log(f"{spec.name}: run {run_id} did this already")
                self.registry.tag(run_id, tags[0])
                return record
        unfinished = f"tag = '{key}' and tag = '{tags[0]}' and state != 'COMPLETED'"
        for run_id in self.registry.runs(unfinished, sort="-created_at", limit=1)["id"]:
            return self.go_on(self.registry.run(run_id), spec)
        return self.start(spec, tags)

    def _output(self, record: RunRecord) -> str:
        """What later stages use: a model by name and version, else the folder of a tokenizer or a token store."""
        for model in self.registry.models_of(record.id):
            return model.label
        if record.model_folder:
            return record.model_folder
        paths = [str(path) for path in self.registry.datasets(record.id)["path"]]
        return paths[0] if paths else record.storage_path or ""


def _check_storage(storage: str) -> None:
    """See that results can be written. Raises: InputError."""
    probe = join(storage, f".probe-{uuid4().hex[:8]}")
    try:
        write_bytes(probe, b"")
        delete(probe)
    except OSError as error:
        raise InputError(f"--storage {storage} cannot be written: {error.strerror or error}; give another") from error


def _stage_key(spec: Spec, settings: Settings) -> str:
    """Names a stage's result: the spec's fingerprint and the identity of every file it reads."""
    text = json.dumps([spec.fingerprint(), input_identity(spec, settings)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


@contextmanager
def _session(spec: Spec, settings: Settings) -> Iterator[_Session]:
    num_cpus = needed_resources(spec).get("CPU", 0.0)
    with show_progress(), Registry(settings.registry) as registry, connect(settings, num_cpus=num_cpus):
        _check_room(spec, settings)
        yield _Session(settings, registry, Recorder(registry))


def _check_room(
    spec: Spec,
    settings: Settings,
    have: Mapping[str, float] | None = None,
    nodes: Sequence[Mapping[str, float]] | None = None,
) -> None:
    place = "this machine" if names_no_cluster(settings) else "the cluster"
    check_resources(needed_resources(spec), have, place)
    check_processes(needed_processes(spec), nodes, place)


def _refuse_if_alive(record: RunRecord) -> None:
    """Two drivers of one run would work against each other."""
    if record.state != "RUNNING":
        return
    here = record.host == socket.gethostname()
    if here and (record.pid in (None, os.getpid()) or not _is_alive(record.pid)):
        return
    what_to_do = f"end process {record.pid}" if here else "wait until it is shown as LOST, or end it there"
    raise InputError(f"run {record.id} is still running on {record.host}; {what_to_do}, then resume")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
