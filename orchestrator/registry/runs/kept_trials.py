"""Trials whose models sweeps kept: what the model of a sweep began with is in the parameters of its trial."""

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased

from orchestrator.registry.engines.dialects import select_items
from orchestrator.registry.tables import RunRow


def load_kept_trials(session: Session, sweep_ids: Collection[str]) -> dict[str, str]:
    """Id of the trial whose model each of these sweeps kept, by the sweep's id; runs without one are left out."""
    sweep, trial = aliased(RunRow), aliased(RunRow)
    is_kept = (trial.parent_id == sweep.id) & (trial.model_folder == sweep.model_folder)
    kept = select(sweep.id, trial.id).join(trial, is_kept).where(sweep.id.in_(select_items(session, sweep_ids)))
    return {row[0]: row[1] for row in session.execute(kept.order_by(trial.id))}
