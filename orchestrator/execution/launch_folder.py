"""Launch folder of a run, from which the relative paths of its spec are meant, and the spec with these resolved.

A run's recorded spec stays as it was typed: fingerprints, groups and the keys of shared results depend on its text, not
on the folder that somebody stood in. So `resume`, from wherever it is called, works in the launch folder. The resolved
spec beside it in `origin.json` means the same from every folder.
"""

import logging
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.base.errors import InputError
from orchestrator.base.settings import Settings
from orchestrator.registry.model_names import is_place
from orchestrator.specs import Spec
from orchestrator.specs.loading import spec_values
from orchestrator.specs.references import NAME_FIELDS, STAGE_MARK
from orchestrator.storage import exists, join, read_json, write_json
from orchestrator.storage.uris import absolute

logger = logging.getLogger(__name__)
LAUNCH_FILE = "origin.json"
_PATH_FIELDS = ("files", "folder", "unlabeled", *NAME_FIELDS)
_SQLITE = "sqlite:///"


def save_launch_folder(run_folder: str, spec: Spec) -> None:
    """Write the current folder, and the spec with its paths resolved, into a run's folder, unless they are there."""
    if exists(join(run_folder, LAUNCH_FILE)):
        return
    values = {"folder": str(Path.cwd()), "spec": with_absolute_paths(spec_values(spec))}
    write_json(join(run_folder, LAUNCH_FILE), values)


@contextmanager
def working_in_launch_folder(run_folder: str | None, settings: Settings) -> Iterator[Settings]:
    """Work in the folder that a run was started in, if it is there; yields settings that mean the same in it.

    Raises: InputError for a record of that folder that cannot be read.
    """
    folder = launch_folder(run_folder)
    if not folder.is_dir():
        logger.warning(f"the run was started in {folder}, which is gone: relative paths now begin at {Path.cwd()}")
        folder = Path.cwd()
    settings = means_the_same_anywhere(settings)
    with chdir(folder):
        yield settings


def means_the_same_anywhere(settings: Settings) -> Settings:
    """The settings with a registry that is the same one in every folder."""
    prefixes = ("file:", _SQLITE, _SQLITE.replace(":", "+pysqlite:", 1))
    prefix = next((prefix for prefix in prefixes if settings.registry.startswith(prefix)), "")
    if not prefix and "://" in settings.registry:
        return settings
    return replace(settings, registry=prefix + absolute(settings.registry.removeprefix(prefix)))


def launch_folder(run_folder: str | None) -> Path:
    """The folder that a run was started in; the current one where the run has no record of it.

    Raises: InputError for a record that cannot be read.
    """
    path = join(run_folder, LAUNCH_FILE) if run_folder else None
    if path is None or not exists(path):
        return Path.cwd()
    try:
        return Path(read_json(path)["folder"])
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path} is damaged: it should name the folder that the run was started in; write it anew as "
            '{"folder": "/the/folder"}, then resume'
        ) from error


def with_absolute_paths(values: Any, field: str = "", *, even_missing: bool = False) -> Any:
    """Make those relative paths absolute that lead to something here: a job runs in another folder.

    Args:
        even_missing: whether to do so also where nothing is, unless it may be a name: a message then shows the path
            as it is meant here.
    """
    if isinstance(values, dict):
        return {
            key: with_absolute_paths(value, _field(field, key), even_missing=even_missing)
            for key, value in values.items()
        }
    if isinstance(values, list):
        return [with_absolute_paths(value, field, even_missing=even_missing) for value in values]
    if field in _PATH_FIELDS and isinstance(values, str) and "://" not in values and not values.startswith(STAGE_MARK):
        is_glob = any(sign in values for sign in "*?[")
        is_there = is_place(field, values) if field in NAME_FIELDS else even_missing or exists(values)
        if is_there or (is_glob and field == "files"):
            return absolute(values)
    return values


def _field(above: str, key: str) -> str:
    """Name of the field whose value stands at a key: splits of `files` and an axis's `choice` are no fields."""
    if above == "stages":  # a stage may be called like a field
        return ""
    return above if above == "files" or key == "choice" else key
