"""Task that a model was fine-tuned for, as the spec of the run that made it says."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from orchestrator.errors import NotFoundError
from orchestrator.models.resolve import MODEL_FILE
from orchestrator.registry import Registry
from orchestrator.registry.records import RunRecord
from orchestrator.settings import Settings
from orchestrator.storage import exists, join


def read_recorded_task(model: str, settings: Settings) -> Mapping[str, Any] | None:
    """Values of a model's task, as `resolve_model` takes its name; None where no run of it is recorded, or no task."""
    if exists(join(model, MODEL_FILE)):
        return None
    with Registry(settings.registry, read_only=True) as registry, suppress(NotFoundError):
        task: Mapping[str, Any] | None = _maker(model, registry).spec.get("task")
        return task
    return None


def _maker(model: str, registry: Registry) -> RunRecord:
    """The run whose spec says what the model learns: of a trial its sweep, of a pipeline the stage that left it."""
    run_id = model
    with suppress(NotFoundError):
        run_id = registry.models.get(model).run_id or model
    run = registry.run(run_id)
    stages = registry.stages(run.id) if run.model_folder is None else []
    run = next((stage for stage in stages if stage.model_folder is not None), run)
    return registry.run(run.parent_id) if run.kind == "trial" and run.parent_id is not None else run
