"""Runner of specs: what a spec is checked for before anything starts, and its run from then on.

    spec ─► checked (nothing started, nothing recorded) ─► session with a Ray ─► runs

The run itself, its record and the stages of a pipeline are the session's.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.errors import InputError, SpecError
from orchestrator.execution.metering import refuse_if_spent
from orchestrator.execution.origin import working_at_origin
from orchestrator.execution.refusals import check_places, check_run_folder, refuse_if_alive
from orchestrator.execution.room import check_room
from orchestrator.execution.session import open_session
from orchestrator.execution.starting import announced
from orchestrator.finetuning.search_space import build_search
from orchestrator.kinds import kind_of, resolved_inputs
from orchestrator.kinds.resolved import Resolved
from orchestrator.planning.checks import check_inputs
from orchestrator.planning.disk import check_disk
from orchestrator.planning.plan import PlanRow, plan_rows
from orchestrator.progress import UNDER_WAY
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.registry.tables import PIPELINE
from orchestrator.run_states import RunState
from orchestrator.settings import Settings
from orchestrator.specs import PipelineSpec, Spec, SweepSpec
from orchestrator.specs.execution_overrides import adds_points, override_execution
from orchestrator.specs.loading import Overrides, load_spec, override_words, parse_spec
from orchestrator.specs.references import SpecT, replace_texts
from orchestrator.storage.hub import is_hub, pin

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
    check_inputs(spec, inputs)
    check_places(settings)
    check_disk(spec, inputs)
    inputs.fetch(spec)
    with open_session(spec, inputs, overrides=overrides) as session:
        return session.start(spec, run_id=run_id, on_started=on_started)


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
    with announced(run_id, settings):
        record, spec = _run_to_resume(run_id, overrides, settings)
        on_started(record.id)
        if spec is None:
            return record
        with working_at_origin(record.storage_path, settings) as there:
            if not allow_drift:
                _check_drift(record, spec)
            inputs = resolved_inputs(spec, there)
            check_disk(spec, inputs, _left(record, settings))
            inputs.fetch(spec)
            words = override_words(overrides)
            with open_session(spec, inputs, overrides=words, allow_drift=allow_drift) as session:
                return session.resume(record, spec)


def check_resume(run_id: str, overrides: Overrides = (), *, settings: Settings, allow_drift: bool = False) -> RunRecord:
    """Check that a run can go on here, as `resume_run` would, and that there is room for it; nothing is started.

    Only a run with nothing left to do reads COMPLETED. Raises: as `resume_run`.
    """
    record, spec = _run_to_resume(run_id, overrides, settings)
    if spec is not None:
        with working_at_origin(record.storage_path, settings) as there:
            if not allow_drift:
                _check_drift(record, spec)
            check_room(spec, resolved_inputs(spec, there), _left(record, settings))
        return replace(record, state=RunState.STOPPED)
    return record


def _left(record: RunRecord, settings: Settings) -> list[str]:
    """Folders that a run, or a pipeline and its stages, have left."""
    with Registry(settings.registry, read_only=True) as registry:
        runs = [record, *registry.stages(record.id)]
    return [run.storage_path for run in runs if run.storage_path is not None]


def _check_drift(record: RunRecord, spec: Spec) -> None:
    """Check what can be told of a drift before a run is touched; a pipeline's stages find out by themselves."""
    if record.storage_path is not None and not isinstance(spec, PipelineSpec):
        kind_of(spec).check_resume(spec, record.storage_path)


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
            _check_points(record, recorded, spec, registry)
        elif record.state == RunState.COMPLETED:
            raise InputError(f"run {record.id} has completed, and nothing can be changed any more{more}")
        refuse_if_alive(record)
        check_run_folder(record, registry)
    refuse_if_spent(record, spec)
    return record, spec


def _check_points(record: RunRecord, recorded: Spec, spec: Spec, registry: Registry) -> None:
    """Check that a sweep can have more points. Raises: InputError for a stage of a pipeline, and a space used up."""
    assert isinstance(recorded, SweepSpec)
    assert isinstance(spec, SweepSpec)
    if any(tag.startswith(PIPELINE) for tag in registry.annotations.tags(record.id)):
        raise InputError(
            f"trials: run {record.id} is a stage of a pipeline, whose later stages use its result; raise trials there, "
            "and run the pipeline"
        )
    num_points = build_search(recorded).num_points
    if build_search(spec).num_points <= num_points:
        raise InputError(f"trials: the space has no more points than the {num_points} of run {record.id}")


def plan_spec(spec: Spec, inputs: Resolved) -> list[PlanRow]:
    """Plan of a spec: what it does and takes. Nothing is started; input that is not there is refused."""
    logger.info("checking what the spec names", extra=UNDER_WAY)
    spec = _pin_uris(spec)
    check_inputs(spec, inputs)
    return plan_rows(spec, inputs, with_time=True)


def _pin_uris(spec: SpecT) -> SpecT:
    """Put commits in the place of the hub's branches, for files as well: what is planned is what runs."""
    return replace_texts(spec, lambda field, text: pin(text) if is_hub(text) else text)
