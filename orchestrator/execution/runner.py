"""Runner of specs: the record around a run, a Ray for it, and stages that use one another's results.

    spec ─► checked (nothing started, nothing recorded) ─► Ray ─► run recorded ─► its kind's run ─► result recorded

A failure after the run is recorded is recorded on it; an interruption leaves it STOPPED, to be resumed.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from orchestrator.cluster.addresses import names_no_cluster
from orchestrator.cluster.capacity import check_processes, check_resources, cluster_resources, local_resources
from orchestrator.cluster.connection import connect
from orchestrator.cluster.head_watch import LAST_PATIENCE_S, watch_head
from orchestrator.errors import RegistryUnavailableError, SpecError
from orchestrator.execution.origin import save_origin, working_at_origin
from orchestrator.execution.refusals import check_run_folder, check_storage, refuse_if_alive
from orchestrator.execution.run_log import logged_run
from orchestrator.execution.stopping import StopWatch
from orchestrator.kinds import kind_of, resolved_inputs
from orchestrator.kinds.base import RunContext
from orchestrator.kinds.resolved import Resolved
from orchestrator.planning.checks import check_inputs
from orchestrator.planning.disk import check_disk
from orchestrator.planning.plan import PlanRow, needed_resources, plan_rows, unused_gpu_notes
from orchestrator.progress import show_progress
from orchestrator.registry.recorder import Recorder, RunOutcome, retry_while_unavailable
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.run_states import RunState
from orchestrator.settings import Settings
from orchestrator.specs import PipelineSpec, Spec
from orchestrator.specs.execution_overrides import execution_changes, override_execution
from orchestrator.specs.loading import load_spec, parse_spec, spec_values
from orchestrator.specs.overrides import Overrides
from orchestrator.specs.parts import task_of
from orchestrator.specs.pipeline import stages_of
from orchestrator.specs.references import resolve_references
from orchestrator.storage import exists, join

logger = logging.getLogger(__name__)


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
    inputs = resolved_inputs(spec, settings)
    check_inputs(spec, inputs)
    check_storage(settings.storage)
    check_disk(spec, inputs)
    with _session(spec, inputs) as session:
        return session.start(spec, on_started=on_started)


def resume_run(
    run_id: str,
    overrides: Overrides = (),
    *,
    settings: Settings,
    allow_drift: bool = False,
    on_started: Callable[[str], None] = lambda run_id: None,
) -> RunRecord:
    """Go on with a run that did not complete, from its last checkpoint; a completed one is left as it is.

    Args:
        overrides: execution fields that this attempt changes; the run's recorded spec stays.
        allow_drift: whether to go on although data, tokenizer, models or versions have changed; the run is tagged.

    Raises: InputError while the run's driver is alive or where its folder is gone, beside what `run_spec` raises.
    """
    with Registry(settings.registry, read_only=True) as registry:
        record = registry.run(run_id)
        if record.parent_id is not None:
            record = registry.run(record.parent_id)
        if record.state == RunState.COMPLETED:
            logger.info(f"run {record.id} has completed; there is nothing to resume")
            on_started(record.id)
            return record
        refuse_if_alive(record)
        check_run_folder(record, registry)
    spec = override_execution(parse_spec(record.spec), overrides)
    on_started(record.id)
    with (
        working_at_origin(record.storage_path, settings) as there,
        _session(spec, resolved_inputs(spec, there), allow_drift=allow_drift) as session,
    ):
        return session.resume(record, spec)


def plan_spec(spec: Spec, *, settings: Settings) -> list[PlanRow]:
    """Plan of a spec: what it does and takes. Nothing is started; input that is not there is refused."""
    inputs = resolved_inputs(spec, settings)
    check_inputs(spec, inputs)
    return plan_rows(spec, inputs)


def check_room(spec: Spec, settings: Settings) -> None:
    """Check that the storage, and the cluster at `settings.address` or else this machine, have room for a spec.

    No local Ray is started. Raises: InputError for a disk that is too small; ClusterError, naming what is missing.
    """
    check_disk(spec, resolved_inputs(spec, settings))
    if names_no_cluster(settings):
        here = local_resources(_needed_cpus(spec))
        _check_room(spec, settings, here, [here])
        _say_unused_gpus(spec, here)
        return
    with connect(settings):
        _check_room(spec, settings)
        _say_unused_gpus(spec, cluster_resources())


def _say_unused_gpus(spec: Spec, have: Mapping[str, float]) -> None:
    for note in unused_gpu_notes(spec, have):
        logger.warning(note)


@dataclass(frozen=True)
class _Session:
    """A connected Ray, an open registry, and the inputs of the spec that is carried out."""

    inputs: Resolved
    registry: Registry
    recorder: Recorder
    stop_watch: StopWatch
    allow_drift: bool = False
    """Whether runs may go on although what they read has changed since their last attempt."""

    @property
    def settings(self) -> Settings:
        return self.inputs.settings

    def start(
        self, spec: Spec, tags: Sequence[str] = (), on_started: Callable[[str], None] = lambda run_id: None
    ) -> RunRecord:
        """Record a new run and carry it out."""
        spec = retry_while_unavailable(partial(self.inputs.pin, spec))
        values = spec_values(spec) | {"tags": [*spec.tags, *tags]}
        run_id = uuid4().hex[:12]
        folder = join(self.settings.storage, "runs", run_id)
        task = task_of(spec)
        metric = None if task is None else self.inputs.task(task).metric
        record = self.recorder.start(values, spec.fingerprint(), metric=metric, storage_path=folder, run_id=run_id)
        on_started(run_id)
        return self._carry_out(record, spec)

    def resume(self, record: RunRecord, spec: Spec) -> RunRecord:
        """Make another attempt at a run."""
        return self._carry_out(self.recorder.resume(record.id), spec)

    def _carry_out(self, record: RunRecord, spec: Spec) -> RunRecord:
        run_folder = record.storage_path or join(self.settings.storage, "runs", record.id)
        try:
            with (
                self.recorder.heartbeating(record.id) as superseded,
                show_progress() as progress,
                logged_run(run_folder),
                self.stop_watch.heeding(record, run_folder),
            ):
                save_origin(run_folder, spec)
                logger.info(f"run {record.id} ({record.kind} {record.name}, attempt {record.attempt})")
                for change in execution_changes(parse_spec(record.spec), spec):
                    logger.info(f"this attempt changes {change}")
                context = RunContext(
                    record.id,
                    record.attempt,
                    run_folder,
                    self.settings,
                    self.recorder,
                    progress,
                    superseded,
                    self.allow_drift,
                )
                work = self._run_stages if isinstance(spec, PipelineSpec) else self._run_kind
                record_result = work(spec, context)
                context.refuse_if_superseded()
            self.recorder.complete(record.id, record_result())
        except BaseException as error:
            with suppress(RegistryUnavailableError):  # the run will read LOST; why it ended is said all the same
                self.recorder.fail(record.id, error)
            raise
        return self.recorder.read_run(record.id)

    def _run_kind(self, spec: Spec, context: RunContext) -> Callable[[], RunOutcome]:
        """Carry out a spec of any kind; returns the function that writes its result."""
        kind = kind_of(spec)
        result = kind.run(spec, self.inputs, context)
        return lambda: kind.record(result, context.run_id, self.recorder)

    def _run_stages(self, spec: Spec, context: RunContext) -> Callable[[], RunOutcome]:
        """Carry out a pipeline's stages in order; each is a run, tagged with the pipeline's id and its inputs' digest.

        A pipeline has no result to write: its stages have theirs.
        """
        outputs: dict[str, str] = {}
        for name, asked in stages_of(spec).items():
            ready = resolve_references(asked, outputs).named(f"{spec.name}/{name}")
            key = retry_while_unavailable(partial(self._stage_key, ready))
            record = self._stage(ready, f"inputs:{key}", context)
            outputs[name] = self._output(record)
            self.inputs.drop_examples()
        return RunOutcome

    def _stage(self, spec: Spec, key: str, context: RunContext) -> RunRecord:
        tags = (f"pipeline:{context.run_id}", key)
        for run_id in self._newest(f"tag = '{key}' and state = '{RunState.COMPLETED}'"):
            record = self.recorder.read_run(run_id)
            if exists(record.model_folder or self._output(record)):
                logger.info(f"{spec.name}: run {run_id} did this already")
                retry_while_unavailable(partial(self.registry.tag, record.id, tags[0]))
                return record
        for run_id in self._newest(f"tag = '{key}' and tag = '{tags[0]}' and state != '{RunState.COMPLETED}'"):
            return self.resume(self.recorder.read_run(run_id), spec)
        return self.start(spec, tags)

    def _newest(self, query: str) -> list[str]:
        """Id of the newest run that a query selects, or none."""
        return list(retry_while_unavailable(lambda: self.registry.runs(query, sort="-created_at", limit=1))["id"])

    def _output(self, record: RunRecord) -> str:
        """Name of a result in later stages: a model with its version, else the folder of a tokenizer or token store."""
        for model in retry_while_unavailable(lambda: self.registry.models.of_run(record.id)):
            return model.label
        if record.model_folder:
            return record.model_folder
        data = retry_while_unavailable(lambda: self.registry.datasets.frame(record.id))
        paths = [str(path) for path in data["path"]]
        return paths[0] if paths else record.storage_path or ""

    def _stage_key(self, spec: Spec) -> str:
        """Digest of what decides a stage's result: the spec's fingerprint and the identity of every file it reads."""
        text = json.dumps([spec.fingerprint(), kind_of(spec).input_identity(spec, self.inputs)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]


@contextmanager
def _session(spec: Spec, inputs: Resolved, *, allow_drift: bool = False) -> Iterator[_Session]:
    settings = inputs.settings
    with show_progress(), Registry(settings.registry) as registry:
        registry.open()  # a registry that cannot be reached now is refused; later on it is waited for
        with connect(settings, num_cpus=_needed_cpus(spec)):
            _check_room(spec, settings)
            recorder = Recorder(registry)
            stop_watch = StopWatch(recorder, partial(watch_head, patience_s=LAST_PATIENCE_S))
            yield _Session(inputs, registry, recorder, stop_watch, allow_drift)


def _needed_cpus(spec: Spec) -> float:
    """CPUs that a spec takes, wherever it runs."""
    return needed_resources(spec, {}).total.get("CPU", 0.0)


def _check_room(
    spec: Spec,
    settings: Settings,
    have: Mapping[str, float] | None = None,
    nodes: Sequence[Mapping[str, float]] | None = None,
) -> None:
    place = "this machine" if names_no_cluster(settings) else "the cluster"
    have = cluster_resources() if have is None else have
    needs = needed_resources(spec, have)
    check_resources(needs.total, have, place)
    check_processes(needs.processes, nodes, place)
