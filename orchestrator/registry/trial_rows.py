"""Rows of trials: their ids, and those of the trials whose models sweeps kept."""

from collections.abc import Collection
from functools import lru_cache

from sqlalchemy import select
from sqlalchemy.orm import Session, aliased

from orchestrator.registry.engines.dialects import select_items
from orchestrator.registry.parameter_values import digest
from orchestrator.registry.tables import RunRow


@lru_cache(maxsize=10_000)
def trial_id(sweep_id: str, key: str) -> str:
    """Id of a trial: the same whenever it is recorded, and by whichever process."""
    return digest([sweep_id, key])[:12]


def load_kept_trials(session: Session, sweep_ids: Collection[str]) -> dict[str, str]:
    """Id of the trial whose model each of these sweeps kept, by the sweep's id; runs without one are left out.

    What the model of a sweep began with is in the parameters of that trial.
    """
    if not sweep_ids:
        return {}
    sweep, trial = aliased(RunRow), aliased(RunRow)
    is_kept = (trial.parent_id == sweep.key) & (trial.model_folder == sweep.model_folder)
    kept = select(sweep.id, trial.id).join(trial, is_kept).where(sweep.id.in_(select_items(session, sweep_ids)))
    return {row[0]: row[1] for row in session.execute(kept.order_by(trial.id))}
