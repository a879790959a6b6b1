"""Carry specs out: the record around a run, a Ray for it, and stages that use one another's results.

    spec ─► looked over (nothing started, nothing recorded) ─► Ray ─► run recorded ─► stage ─► result recorded

A failure after the run is recorded is recorded on it; an interruption leaves it STOPPED, to be resumed.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from orchestrator.cluster import check_resources, connect
from orchestrator.errors import RunStoppedError
from orchestrator.planning import PlanRow, check_inputs, input_identity, needed_resources, plan_rows
from orchestrator.progress import Progress
from orchestrator.recorder import Recorder
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.results import Result
from orchestrator.run_log import RunLog
from orchestrator.settings import Settings
from orchestrator.specs import PipelineSpec, Spec
from orchestrator.specs.loading import load_spec, parse_spec, spec_values
from orchestrator.specs.references import resolve_references
from orchestrator.stages import StageContext, run_stage
from orchestrator.storage import exists, join


def run(
    spec: str | Path | Spec,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    name: str | None = None,
    home: str | None = None,
    storage: str | None = None,
    registry: str | None = None,
    address: str | None = None,
) -> RunRecord:
    """Carry out a spec file (or a spec) as a new run and return its record: what `orchestrator run` does.

    Raises: SpecError and other InputErrors, ClusterError, RegistryError; RunFailedError with the run's reason.
    """
    settings = Settings.from_options(home, storage, registry, address)
    loaded = spec if isinstance(spec, Spec) else load_spec(spec, overrides)
    return run_spec(loaded, settings=settings, name=name)


def run_spec(spec: Spec, *, settings: Settings, name: str | None = None, progress: Progress | None = None) -> RunRecord:
    """Carry out a spec as a new run."""
    check_inputs(spec, settings)
    with _laboratory(spec, settings, progress) as laboratory:
        return laboratory.registry.run(laboratory.start(spec, name))


def resume_run(run_id: str, *, settings: Settings) -> RunRecord:
    """Go on with a run that did not complete, from its last checkpoint; a completed one is left as it is."""
    with Registry(settings.registry) as registry:
        record = registry.run(run_id)
    if record.state == "COMPLETED":
        return record
    if record.parent_id is not None:
        return resume_run(record.parent_id, settings=settings)
    spec = parse_spec(record.spec)
    with _laboratory(spec, settings, None) as laboratory:
        laboratory.go_on(record, spec)
        return laboratory.registry.run(record.id)


def plan_spec(spec: Spec, *, settings: Settings) -> list[PlanRow]:
    """What a spec needs and does, without starting anything; refuses what could not run."""
    check_inputs(spec, settings)
    return plan_rows(spec, settings)


@dataclass(frozen=True)
class _Laboratory:
    """A connected Ray and an open registry."""

    settings: Settings
    registry: Registry
    recorder: Recorder
    progress: Progress | None

    def start(self, spec: Spec, name: str | None, tags: Sequence[str] = ()) -> str:
        """Record a new run and carry it out; its id."""
        values = spec_values(spec) | {"tags": [*spec.tags, *tags]}
        run_id = uuid4().hex[:12]
        folder = join(self.settings.storage, "runs", run_id)
        record = self.recorder.start(values, spec.fingerprint(), name=name, storage_path=folder, run_id=run_id)
        self._carry_out(record, spec)
        return record.id

    def go_on(self, record: RunRecord, spec: Spec) -> None:
        """Another attempt at a run."""
        self._carry_out(self.recorder.resume(record.id), spec)

    def _carry_out(self, record: RunRecord, spec: Spec) -> None:
        run_folder = record.storage_path or join(self.settings.storage, "runs", record.id)
        try:
            with self.recorder.heartbeating(record.id) as taken_over, _logged(run_folder, self.progress) as progress:
                progress.say(f"run {record.id} ({record.kind} {record.name}, attempt {record.attempt})")
                context = StageContext(record.id, record.attempt, run_folder, self.settings, self.recorder, progress)
                result = self._pipeline(spec, context) if isinstance(spec, PipelineSpec) else run_stage(spec, context)
            if taken_over.is_set():
                raise RunStoppedError(f"another attempt has taken over run {record.id}")
        except BaseException as error:
            self.recorder.failed(record.id, error)
            raise
        if result is None:
            self.registry.finish_run(record.id, "COMPLETED", attempt=record.attempt)
        else:
            self.recorder.result(record.id, result)

    def _pipeline(self, spec: PipelineSpec, context: StageContext) -> Result | None:
        """Stages in order; each is a run of its own, tagged with the pipeline's id and with what went into it."""
        outputs: dict[str, str] = {}
        for stage, asked in spec.stages.items():
            ready = resolve_references(asked, outputs).named(f"{spec.name}/{stage}")
            key = f"inputs:{_stage_key(ready, self.settings)}"
            record = self._stage(ready, key, context)
            outputs[stage] = self._output(record)
        return None

    def _stage(self, spec: Spec, key: str, context: StageContext) -> RunRecord:
        tags = (f"pipeline:{context.run_id}", key)
        completed = self.registry.runs(f"tag = '{key}' and state = 'COMPLETED'", sort="-created_at", limit=1)
        for run_id in completed["id"]:
            record = self.registry.run(run_id)
            if exists(self._output(record)):
                context.progress.say(f"{spec.name}: run {run_id} did this already")
                self.registry.tag(run_id, tags[0])
                return record
        begun = self.registry.runs(f"tag = '{key}' and tag = '{tags[0]}'", sort="-created_at", limit=1)
        for run_id in begun["id"]:
            self.go_on(self.registry.run(run_id), spec)
            return self.registry.run(run_id)
        return self.registry.run(self.start(spec, None, tags))

    def _output(self, record: RunRecord) -> str:
        """What later stages use: a model's folder, else a tokenizer's or a token store's."""
        if record.model_folder:
            return record.model_folder
        paths = [str(path) for path in self.registry.datasets(record.id)["path"]]
        return paths[0] if paths else record.storage_path or ""


def _stage_key(spec: Spec, settings: Settings) -> str:
    """Names a stage's result: the spec's fingerprint and the identity of every file it reads."""
    text = json.dumps([spec.fingerprint(), input_identity(spec, settings)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


@contextmanager
def _logged(run_folder: str, progress: Progress | None) -> Iterator[Progress]:
    """What the run says goes to the terminal and to its log, how it ends too."""
    log = RunLog(run_folder)
    progress = progress or Progress(keep=log.write)
    try:
        yield progress
        log.write("completed")
    except BaseException as error:
        log.write(f"ended: {error or type(error).__name__}")
        raise
    finally:
        progress.close()
        log.close()


@contextmanager
def _laboratory(spec: Spec, settings: Settings, progress: Progress | None) -> Iterator[_Laboratory]:
    needed = needed_resources(spec)
    with ExitStack() as stack:
        registry = stack.enter_context(Registry(settings.registry))
        registry.upgrade()
        stack.enter_context(connect(settings, num_cpus=needed.get("CPU", 0.0)))
        check_resources(needed)
        yield _Laboratory(settings, registry, Recorder(registry), progress)
