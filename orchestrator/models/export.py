"""Export of models: a folder copied out of the storage."""

import shutil
from pathlib import Path

from bert_core.checkpoints.manifest import MANIFEST_FILE, check_manifest
from orchestrator.errors import InputError
from orchestrator.models.resolve import resolve_model
from orchestrator.settings import Settings
from orchestrator.storage import exists, local_copy, write_folder


def export_model(model: str, target: str, settings: Settings) -> str:
    """Copy a model's folder to a new one, whole or not at all. Raises: InputError, CheckpointError, NotFoundError."""
    source = Path(local_copy(resolve_model(model, settings)))
    if exists(target):
        raise InputError(f"{target} is there already; name a folder that is not")
    if (source / MANIFEST_FILE).exists():
        check_manifest(source, "train it again, or export another version")
    with write_folder(target) as folder:
        shutil.copytree(source, folder, dirs_exist_ok=True)
    return target
