"""Settings of groups: the parameters that a group's runs have in common, as they are stored, and their values."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from orchestrator.registry.engines.dialects import json_object, select_items
from orchestrator.registry.parameter_values import KIND_END, decode_stored
from orchestrator.registry.tables import ParameterRow

SEED_PATH, FOLD_PATH, FOLDS_PATH = "recipe.seed", "recipe.fold", "task.split.folds"

Settings = Mapping[str, str]
"""Kind and text of each parameter, by its dotted path, as one text that `setting_value` decodes."""


def load_settings(session: Session, run_ids: Sequence[str]) -> dict[str, Settings]:
    """Load the settings of runs, by run, without seeds and folds; a run without parameters has none."""
    stored = json_object(session, ParameterRow.path, ParameterRow.kind + KIND_END + ParameterRow.text)
    of_run = select(ParameterRow.run_id, stored).group_by(ParameterRow.run_id)
    is_asked = ParameterRow.run_id.in_(select_items(session, run_ids)), ParameterRow.path.not_in((SEED_PATH, FOLD_PATH))
    found = session.connection().execute(of_run.where(*is_asked)).all()
    return {run_id: {} for run_id in run_ids} | {run_id: own for run_id, own in found}  # noqa: C416  (rows, typed)


def num_folds(settings: Settings) -> int:
    """Number of folds of a group's task; 1 without any."""
    return int(setting_value(settings[FOLDS_PATH])) if FOLDS_PATH in settings else 1


def load_folds(session: Session, run_ids: Collection[str]) -> dict[str, int]:
    """Load the folds that trials were validated on; those without one are absent."""
    is_asked = ParameterRow.run_id.in_(select_items(session, run_ids)), ParameterRow.path == FOLD_PATH
    return {
        run_id: int(text)
        for run_id, text in session.execute(select(ParameterRow.run_id, ParameterRow.text).where(*is_asked))
    }


def load_texts(session: Session, run_ids: Collection[str], paths: Sequence[str]) -> dict[str, dict[str, str]]:
    """Load those of the parameters at some paths that are texts, of several runs; a run without any has none."""
    columns = select(ParameterRow.run_id, ParameterRow.path, ParameterRow.text)
    is_asked = ParameterRow.run_id.in_(select_items(session, run_ids)), ParameterRow.path.in_(paths)
    texts: dict[str, dict[str, str]] = {run_id: {} for run_id in run_ids}
    for run_id, path, text in session.execute(columns.where(*is_asked, ParameterRow.kind == "text")):
        texts[run_id][path] = text
    return texts


def setting_value(stored: str) -> Any:
    """Value of a setting; a list is made anew each time, since whoever gets it may change it."""
    return decode_stored(stored) if stored.startswith("json") else _decode_plain(stored)


_decode_plain = lru_cache(maxsize=10_000)(decode_stored)
"""A few values stand in most of the recipes, and each is decoded once."""


def setting_values(settings: Settings, paths: Iterable[str] | None = None) -> dict[str, Any]:
    """Values of settings by path.

    Args:
        paths: settings that are asked for; all where it is None.
    """
    asked = settings if paths is None else [path for path in paths if path in settings]
    return {path: setting_value(settings[path]) for path in asked}
