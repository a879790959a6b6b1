"""Export of models: a folder copied out of the storage."""

import logging
import shutil
from pathlib import Path

from bert_core.checkpoints.manifest import MANIFEST_FILE, check_manifest
from orchestrator.errors import InputError, RegistryError
from orchestrator.models.resolve import resolve_model
from orchestrator.registry import Registry
from orchestrator.settings import Settings
from orchestrator.storage import exists, local_copy, write_folder
from orchestrator.storage.uris import absolute

logger = logging.getLogger(__name__)


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


def note_export(model: str, target: str, settings: Settings) -> bool:
    """Record in the lineage of a registered model that it was exported; returns whether it could be.

    An export is whole without that: a registry that is not there, or cannot be written, stays as it is.
    """
    with Registry(settings.registry, read_only=True) as reading:
        if reading.current_revision() is None:
            return False
    try:
        with Registry(settings.registry) as registry:
            registry.lineage.record_export(absolute(resolve_model(model, settings)), target)
    except RegistryError as error:
        logger.warning(f"the export is not recorded in the registry: {error}")
        return False
    return True
