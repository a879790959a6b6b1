"""Runner of specs: checks before anything starts, and the run from then on.

spec ─► preflight (nothing started, nothing recorded) ─► Ray ─► controller ─► attempt
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator.base.console import UNDER_WAY, show_progress
from orchestrator.base.errors import InputError, SpecError
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.cluster.capacity import Node, cluster_resources, logical_cpus
from orchestrator.cluster.connection import connect, names_no_cluster
from orchestrator.cluster.head_watch import LAST_PATIENCE_S, watch_head
from orchestrator.execution.attempt import RunController, StopRequestWatcher, hours_reached
from orchestrator.execution.attempt_files import has_died_here
from orchestrator.execution.jobs import own_job_id
from orchestrator.execution.launch_folder import working_in_launch_folder
from orchestrator.kinds import kind_of, resolved_inputs
from orchestrator.kinds.plan import PlanRow, plan_rows
from orchestrator.kinds.preflight import (
    check_capacity,
    check_disk,
    check_storage,
    check_writable,
    needed_cpus,
    warn_of_unused_gpus,
)
from orchestrator.kinds.resolved import Resolved
from orchestrator.provenance.capture import capture
from orchestrator.registry.recorder import Recorder
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.registry.tables import PIPELINE
from orchestrator.specs import Spec
from orchestrator.specs.execution_overrides import adds_points, override_execution
from orchestrator.specs.loading import Overrides, load_spec, override_words, parse_spec
from orchestrator.specs.references import SpecT, replace_texts
from orchestrator.storage import exists
from orchestrator.storage.hub import is_hub, pin
from orchestrator.storage.uris import is_local

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
    return run_spec(loaded, settings=settings, overrides=override_words(overrides))


def run_spec(
    spec: Spec,
    *,
    settings: Settings,
    run_id: str | None = None,
    overrides: Sequence[str] = (),
    on_started: Callable[[str], None] = lambda run_id: None,
) -> RunRecord:
    """Carry out a spec as a new run; `on_started` is told its id as soon as it is recorded.

    Args:
        run_id: of the new run, where it was drawn before; an id that a recorded run has is refused.
        overrides: KEY=VALUE words that are in the spec already, for the record.
    """
    logger.info("checking what the spec names", extra=UNDER_WAY)
    spec = _pin_uris(spec)
    inputs = resolved_inputs(spec, settings)
    kind_of(spec).preflight(spec, inputs)
    check_storage(spec, inputs)
    inputs.fetch(spec)
    with open_controller(spec, inputs, overrides=overrides) as controller:
        return controller.start(spec, run_id=run_id, on_started=on_started)


def resume_run(
    run_id: str,
    overrides: Overrides = (),
    *,
    settings: Settings,
    allow_drift: bool = False,
    on_started: Callable[[str], None] = lambda run_id: None,
) -> RunRecord:
    """Go on with a run that did not complete, from its last checkpoint, or with a sweep that is to have more points.

    Without overrides a completed run is left as it is.

    Args:
        overrides: execution fields that this attempt changes, while the run's recorded spec stays; or more `trials`.
        allow_drift: whether to go on although data, tokenizer, models or versions have changed; the run is tagged.

    Raises: InputError while the run's driver is alive or where its folder is gone, beside what `run_spec` raises.
    """
    record, spec = _run_to_resume(run_id, overrides, settings)
    on_started(record.id)
    if spec is None:
        return record
    with _ready_to_resume(record, spec, settings, allow_drift) as inputs:
        check_disk(spec, inputs, _left(record, settings))
        inputs.fetch(spec)
        words = override_words(overrides)
        with open_controller(spec, inputs, overrides=words, allow_drift=allow_drift) as controller:
            return controller.resume(record, spec)


def check_resume(run_id: str, overrides: Overrides = (), *, settings: Settings, allow_drift: bool = False) -> RunRecord:
    """Check that a run can go on here, as `resume_run` would, and that there is room for it; nothing is started.

    Only a run with nothing left to do reads COMPLETED. Raises: as `resume_run`.
    """
    record, spec = _run_to_resume(run_id, overrides, settings)
    if spec is not None:
        with _ready_to_resume(record, spec, settings, allow_drift) as inputs:
            check_storage_and_capacity(spec, inputs, _left(record, settings))
        return replace(record, state=RunState.STOPPED)
    return record


def _left(record: RunRecord, settings: Settings) -> list[str]:
    """Folders that a run, or a pipeline and its stages that did not complete, have left."""
    with Registry(settings.registry, read_only=True) as registry:
        stages = registry.stages(record.id)
    runs = [record, *(stage for stage in stages if stage.state != RunState.COMPLETED)]
    return [run.storage_path for run in runs if run.storage_path is not None]


@contextmanager
def _ready_to_resume(record: RunRecord, spec: Spec, settings: Settings, allow_drift: bool) -> Iterator[Resolved]:
    """Work in the folder that a run was started in, once its inputs are seen not to have changed; yields them."""
    with working_in_launch_folder(record.storage_path, settings) as there:
        if record.storage_path is not None and not allow_drift:
            kind_of(spec).check_resume(spec, record.storage_path)
        yield resolved_inputs(spec, there)


def _run_to_resume(run_id: str, overrides: Overrides, settings: Settings) -> tuple[RunRecord, Spec | None]:
    """The run that an id means, a trial's sweep included, and the spec of its next attempt; None: it has completed.

    Raises: InputError for a run that cannot go on now, and for overrides that no attempt can follow.
    """
    with Registry(settings.registry, read_only=True) as registry:
        record = registry.run(run_id)
        if record.parent_id is not None:
            record = registry.run(record.parent_id)
        more = "; a sweep takes more points: trials=N" if record.kind == "sweep" else ""
        if record.state == RunState.COMPLETED and not overrides:
            logger.info(f"run {record.id} has completed; there is nothing to resume{more}")
            return record, None
        recorded = parse_spec(record.spec)
        spec = override_execution(recorded, overrides)
        if adds_points(recorded, spec):
            if any(tag.startswith(PIPELINE) for tag in registry.annotations.tags(record.id)):
                raise InputError(
                    f"trials: run {record.id} is a stage of a pipeline, whose later stages use its result; raise "
                    "trials there, and run the pipeline"
                )
            kind_of(spec).check_more_points(recorded, spec)
        elif record.state == RunState.COMPLETED:
            raise InputError(f"run {record.id} has completed, and nothing can be changed any more{more}")
        _refuse_if_alive(record)
        _check_run_folder(record, registry)
    if (reached := hours_reached(record, spec, record.seconds or 0.0)) is not None:
        raise InputError(f"run {record.id} cannot go on: {reached}")
    return record, spec


def _refuse_if_alive(record: RunRecord) -> None:
    """Refuse a second driver beside one that lives: they would work against each other. Raises: InputError."""
    if record.state.has_driver and not has_died_here(record):
        raise InputError(
            f"run {record.id} is still {record.state.lower()} on {record.host}, process {record.pid}; "
            f"wait for it, or end it with `orchestrator stop {record.id}`, then resume"
        )


def _check_run_folder(record: RunRecord, registry: Registry) -> None:
    """Check that a run to go on with has what it left in its folder, and that it can be written. Raises: InputError.

    A run that ended before it had left checkpoints, trials or stages begins anew, with or without a folder.
    """
    folder = record.storage_path
    if folder is None:
        return
    if is_local(folder) and not exists(folder):
        checkpoints, stages = registry.checkpoints.of_run(record.id), registry.stages(record.id)
        if checkpoints or stages or registry.trials.table(record.id).records:
            raise InputError(
                f"run {record.id} goes on from {folder}, which is not there; mount that storage again, or start a new "
                "run"
            )
    check_writable(folder, f"{folder}, where run {record.id} lies,", "mount it writable, then resume")


@contextmanager
def open_controller(
    spec: Spec, inputs: Resolved, *, overrides: Sequence[str] = (), allow_drift: bool = False
) -> Iterator[RunController]:
    """Open the registry, connect to Ray or start one, and check that it has what the spec takes; all ends with the
    block.

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
            check_capacity(spec, settings)
            recorder = Recorder(registry, own_job_id(), capture(overrides))
            watcher = StopRequestWatcher(recorder, partial(watch_head, patience_s=LAST_PATIENCE_S))
            yield RunController(inputs, registry, recorder, watcher, allow_drift)


def plan_spec(spec: Spec, inputs: Resolved) -> list[PlanRow]:
    """Plan of a spec: what it does and takes. Nothing is started; input that is not there is refused."""
    logger.info("checking what the spec names", extra=UNDER_WAY)
    spec = _pin_uris(spec)
    kind_of(spec).preflight(spec, inputs)
    return plan_rows(spec, inputs, with_time=True)


def _pin_uris(spec: SpecT) -> SpecT:
    """Put commits in the place of the hub's branches, for files as well: what is planned is what runs."""
    return replace_texts(spec, lambda field, text: pin(text) if is_hub(text) else text)


def check_storage_and_capacity(spec: Spec, inputs: Resolved, left: Sequence[str] = ()) -> None:
    """Check that the storage, and the cluster that the settings name or else this machine, have what a spec takes.

    No local Ray is started.

    Args:
        left: folders of earlier attempts at the run.

    Raises: InputError for a disk that is too small or cannot be written; ClusterError, naming what is missing.
    """
    settings = inputs.settings
    check_storage(spec, inputs, left)
    if names_no_cluster(settings):
        import torch

        here = {"CPU": float(logical_cpus(needed_cpus(spec))), "GPU": float(torch.cuda.device_count())}
        check_capacity(spec, settings, here, [Node(here)])
        warn_of_unused_gpus(spec, here)
        return
    with connect(settings):
        check_capacity(spec, settings)
        warn_of_unused_gpus(spec, cluster_resources())
