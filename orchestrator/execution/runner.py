"""Runner of specs: what a spec is checked for before anything starts, and its run from then on.

    spec ─► checked (nothing started, nothing recorded) ─► session with a Ray ─► runs

The run itself, its record and the stages of a pipeline are the session's.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.errors import SpecError
from orchestrator.execution.origin import working_at_origin
from orchestrator.execution.refusals import check_run_folder, check_storage, refuse_if_alive
from orchestrator.execution.session import open_session
from orchestrator.kinds import resolved_inputs
from orchestrator.planning.checks import check_inputs
from orchestrator.planning.disk import check_disk
from orchestrator.planning.plan import PlanRow, plan_rows
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.run_states import RunState
from orchestrator.settings import Settings
from orchestrator.specs import Spec
from orchestrator.specs.execution_overrides import override_execution
from orchestrator.specs.loading import load_spec, parse_spec
from orchestrator.specs.overrides import Overrides

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
    with open_session(spec, inputs) as session:
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
        open_session(spec, resolved_inputs(spec, there), allow_drift=allow_drift) as session,
    ):
        return session.resume(record, spec)


def plan_spec(spec: Spec, *, settings: Settings) -> list[PlanRow]:
    """Plan of a spec: what it does and takes. Nothing is started; input that is not there is refused."""
    inputs = resolved_inputs(spec, settings)
    check_inputs(spec, inputs)
    return plan_rows(spec, inputs)
