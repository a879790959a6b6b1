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
from typing import get_args

from orchestrator.base.errors import InputError
from orchestrator.base.results import Split
from orchestrator.base.settings import Settings
from orchestrator.registry.model_names import is_place
from orchestrator.specs import Spec
from orchestrator.specs.loading import spec_values
from orchestrator.specs.references import NAME_FIELDS, STAGE_MARK, SpecT, replace_texts
from orchestrator.storage import exists, join, read_json, write_json
from orchestrator.storage.uris import absolute

logger = logging.getLogger(__name__)
LAUNCH_FILE = "origin.json"
_PATH_FIELDS = ("files", *get_args(Split), "folder", "unlabeled", *NAME_FIELDS)
"""Fields that hold paths; the files of a task stand under the names of its splits."""
_SQLITE = "sqlite:///"


def save_launch_folder(run_folder: str, spec: Spec) -> None:
    """Write the current folder, and the spec with its paths resolved, into a run's folder, unless they are there."""
    if exists(join(run_folder, LAUNCH_FILE)):
        return
    values = {"folder": str(Path.cwd()), "spec": spec_values(with_absolute_paths(spec))}
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
    settings = with_absolute_registry(settings)
    with chdir(folder):
        yield settings


def with_absolute_registry(settings: Settings) -> Settings:
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


def with_absolute_paths(spec: SpecT, *, even_missing: bool = False) -> SpecT:
    """Make the relative paths of a spec absolute where they lead to something: a job runs in another folder.

    Args:
        even_missing: whether to do so also where nothing is, unless it may be a name: a message then shows the path
            as it is meant here.
    """

    def replace_path(field: str, text: str) -> str:
        if field not in _PATH_FIELDS or "://" in text or text.startswith(STAGE_MARK):
            return text
        is_glob = field == "files" and any(sign in text for sign in "*?[")
        is_there = is_place(field, text) if field in NAME_FIELDS else even_missing or exists(text)
        return absolute(text) if is_there or is_glob else text

    return replace_texts(spec, replace_path)
