"""A session: a connected Ray and an open registry, in which runs are carried out, and stages use one another's results.

    run recorded ─► its kind's run ─► result recorded

A failure after the run is recorded is recorded on it; an interruption leaves it STOPPED, to be resumed.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from orchestrator.cluster.administration import RunGauges
from orchestrator.cluster.connection import connect, most_cpus, names_no_cluster
from orchestrator.cluster.shortage import LAST_PATIENCE_S, watch_head
from orchestrator.errors import InputError, NotFoundError, RegistryError
from orchestrator.execution.jobs import own_job_id
from orchestrator.execution.metering import metered
from orchestrator.execution.origin import save_origin
from orchestrator.execution.room import check_connected_room, needed_cpus
from orchestrator.execution.run_log import logged_run
from orchestrator.execution.stopping import StopWatch
from orchestrator.kinds import kind_of
from orchestrator.kinds.base import RunContext
from orchestrator.kinds.resolved import Resolved
from orchestrator.progress import UNDER_WAY, show_progress
from orchestrator.progress.run_views import StageView
from orchestrator.provenance.capture import capture
from orchestrator.registry.database import retry_while_unavailable
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.registry.tables import INPUTS, PIPELINE
from orchestrator.run_states import RunState, new_run_id
from orchestrator.settings import Settings
from orchestrator.specs import PipelineSpec, Spec, SweepSpec
from orchestrator.specs.execution_overrides import adds_points, execution_changes
from orchestrator.specs.loading import parse_spec, spec_values
from orchestrator.specs.pipeline import stages_of
from orchestrator.specs.references import resolve_references
from orchestrator.specs.task import task_of
from orchestrator.storage import exists, join

logger = logging.getLogger(__name__)
_MOST_LOOKED_AT = 10
"""Earlier runs of a pipeline's stage whose files are looked for."""


@dataclass(frozen=True)
class Session:
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
        self,
        spec: Spec,
        tags: Sequence[str] = (),
        *,
        run_id: str | None = None,
        on_started: Callable[[str], None] = lambda run_id: None,
    ) -> RunRecord:
        """Record a new run and carry it out; where its id was drawn before, that is `run_id`.

        Raises: InputError for an id that a run has already, beside what its kind raises.
        """
        if run_id is not None:
            self._refuse_taken(run_id)
        spec = retry_while_unavailable(partial(self.inputs.pin, spec))
        values = spec_values(spec) | {"tags": [*spec.tags, *tags]}
        run_id = run_id or new_run_id()
        folder = join(self.settings.storage, "runs", run_id)
        task = task_of(spec)
        metric = None if task is None else self.inputs.task(task).metric
        record = self.recorder.start(values, spec.fingerprint(), metric=metric, storage_path=folder, run_id=run_id)
        on_started(run_id)
        return self._carry_out(record, spec)

    def _refuse_taken(self, run_id: str) -> None:
        """Check that there is no run of an id: a job that Ray starts twice is not to make a second attempt of it."""
        with suppress(NotFoundError):
            record = self.recorder.registry.run(run_id)
            raise InputError(f"run {record.id} is there already; go on with it: orchestrator resume {record.id}")

    def resume(self, record: RunRecord, spec: Spec) -> RunRecord:
        """Make another attempt at a run, of a sweep also with more points than it had.

        Raises: InputError where an attempt has begun since the record was read.
        """
        before = parse_spec(record.spec)
        if isinstance(spec, SweepSpec) and adds_points(before, spec):
            remark = f"attempt {record.attempt + 1} adds points: trials {record.spec['trials']} → {spec.trials}"
            values = {**record.spec, "trials": spec.trials}
            self.recorder.registry.lifecycle.reopen(record.id, values, spec.fingerprint())
            self.recorder.registry.annotations.note(record.id, remark)
            logger.info(remark)
        return self._carry_out(self.recorder.resume(record.id, after=record.attempt), spec)

    def _carry_out(self, record: RunRecord, spec: Spec) -> RunRecord:
        run_folder = record.folder(self.settings.storage)
        try:
            with (
                self.recorder.heartbeating(record.id) as superseded,
                show_progress() as progress,
                logged_run(run_folder),
            ):
                with self.stop_watch.heeding(record, run_folder):
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
                        RunGauges(record.id, record.name).show,
                    )
                    work = self._run_stages if isinstance(spec, PipelineSpec) else self._run_kind
                    cpus = most_cpus(self.settings)
                    with metered(record, spec, self.registry, self.stop_watch, most_cpus=cpus):
                        record_result = work(spec, context)
                context.refuse_if_superseded()
                self.recorder.complete(record.id, record_result())
                for line in ending_lines(record.id, self.registry):
                    logger.info(line)
        except BaseException as error:
            try:
                self.recorder.fail(record.id, error)
            except (RegistryError, NotFoundError) as trouble:  # the run will read LOST
                logger.warning(f"how run {record.id} ended is not recorded: {trouble}")
            raise
        return self.recorder.registry.run(record.id)

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
        stages = stages_of(spec)
        for number, (name, asked) in enumerate(stages.items(), start=1):
            ready = resolve_references(asked, outputs).named(f"{spec.name}/{name}")
            with context.progress.in_stage(StageView(number, len(stages), name)):
                key = retry_while_unavailable(partial(self._stage_key, ready))
                record = self._stage(ready, f"{INPUTS}{key}", context)
            outputs[name] = self._output(record)
            self.inputs.drop_examples()
        return RunOutcome

    def _stage(self, spec: Spec, key: str, context: RunContext) -> RunRecord:
        tags = (f"{PIPELINE}{context.run_id}", key)
        # More than one is looked at: files of a newer one, as of a run merged from elsewhere, may be out of reach here.
        for run_id in self._newest(f"tag = '{key}' and state = '{RunState.COMPLETED}'", _MOST_LOOKED_AT):
            record = self.recorder.registry.run(run_id)
            if exists(record.model_folder or self._output(record)):
                logger.info(f"{spec.name}: run {run_id} did this already")
                self.recorder.registry.annotations.tag(record.id, [tags[0]], reserved=True)
                return record
        for run_id in self._newest(f"tag = '{key}' and tag = '{tags[0]}' and state != '{RunState.COMPLETED}'"):
            return self.resume(self.recorder.registry.run(run_id), spec)
        return self.start(spec, tags)

    def _newest(self, query: str, limit: int = 1) -> list[str]:
        """Ids of the newest runs that a query selects, so many at most."""
        return self.recorder.registry.run_ids(query)[:limit]

    def _output(self, record: RunRecord) -> str:
        """Name of a result in later stages: a model with its version, else the folder of a tokenizer or token store."""
        for model in self.recorder.registry.models.of_run(record.id):
            return model.label
        if record.model_folder:
            return record.model_folder
        paths = self.recorder.registry.datasets.table(record.id).values("path")
        return str(paths[0]) if paths else record.storage_path or ""

    def _stage_key(self, spec: Spec) -> str:
        """Digest of what decides a stage's result: the spec's fingerprint and the identity of every file it reads."""
        text = json.dumps([spec.fingerprint(), kind_of(spec).input_identity(spec, self.inputs)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:20]


@contextmanager
def open_session(
    spec: Spec, inputs: Resolved, *, overrides: Sequence[str] = (), allow_drift: bool = False
) -> Iterator[Session]:
    """Open the registry, connect to Ray or start one, and check that it has room for the spec; all ends with the block.

    Args:
        overrides: KEY=VALUE words as they were typed, for the record.

    Raises: RegistryError, ClusterError.
    """
    settings = inputs.settings
    with show_progress(), Registry(settings.registry) as registry:
        registry.open()  # a registry that cannot be reached now is refused; later on it is waited for
        is_local = names_no_cluster(settings)
        where = "starting Ray on this machine" if is_local else f"connecting to Ray at {settings.address}"
        logger.info(where, extra=UNDER_WAY)
        with connect(settings, num_cpus=needed_cpus(spec)):
            check_connected_room(spec, settings)
            recorder = Recorder(registry, own_job_id(), capture(overrides))
            stop_watch = StopWatch(recorder, partial(watch_head, patience_s=LAST_PATIENCE_S))
            yield Session(inputs, registry, recorder, stop_watch, allow_drift)


def ending_lines(run_id: str, registry: Registry) -> list[str]:
    """Lines for a person on the result of a completed run; of a pipeline one for each stage.

    The run is complete without them: what goes wrong here costs the lines alone.
    """
    try:
        record = registry.run(run_id)
        spec = parse_spec(record.spec)
        if not isinstance(spec, PipelineSpec):
            return list(kind_of(spec).ending(record, registry))
        stages = registry.stages(run_id)
    except Exception as error:  # whatever is wrong with its words, the run has completed
        return [f"the result cannot be shown: {error}"]
    return [
        f"{stage.name.rpartition('/')[2]}: {line}"
        for stage in reversed(stages)
        for line in ending_lines(stage.id, registry)[:1]
    ]
