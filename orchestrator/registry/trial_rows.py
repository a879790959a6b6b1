"""Rows of trials: their ids, and those of the trials whose models sweeps kept."""

from collections.abc import Collection
from functools import lru_cache

from sqlalchemy import Connection, select

from orchestrator.registry.engines.dialects import select_items
from orchestrator.registry.parameter_values import digest
from orchestrator.registry.tables import RUNS


@lru_cache(maxsize=10_000)
def trial_id(sweep_id: str, key: str) -> str:
    """Id of a trial: the same whenever it is recorded, and by whichever process."""
    return digest([sweep_id, key])[:12]


def load_kept_trials(connection: Connection, sweep_ids: Collection[str]) -> dict[str, str]:
    """Id of the trial whose model each of these sweeps kept, by the sweep's id; runs without one are left out.

    What the model of a sweep began with is in the parameters of that trial.
    """
    if not sweep_ids:
        return {}
    sweep, trial = RUNS.alias(), RUNS.alias()
    is_kept = (trial.c.parent_id == sweep.c.key) & (trial.c.model_folder == sweep.c.model_folder)
    kept = (
        select(sweep.c.id, trial.c.id).join(trial, is_kept).where(sweep.c.id.in_(select_items(connection, sweep_ids)))
    )
    return {row[0]: row[1] for row in connection.execute(kept.order_by(trial.c.id))}
