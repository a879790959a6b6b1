"""Inputs of a recorded run as they are now: files, splits of tasks, models and tokenizers that have changed since."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from orchestrator.errors import OWN_ERRORS, NotFoundError
from orchestrator.models.resolve import WEIGHTS_FILE, content_digest, resolve_name
from orchestrator.registry import Registry
from orchestrator.registry.lineage.lineage_staleness import written_again
from orchestrator.registry.parameter_values import RECORDED_DIGITS
from orchestrator.registry.records import RunRecord
from orchestrator.settings import Settings
from orchestrator.specs import Spec
from orchestrator.specs.parts import task_of
from orchestrator.specs.references import TOKENIZER_FIELDS, names_of
from orchestrator.storage import digest_file, join


def changed_inputs(registry: Registry, run: RunRecord, spec: Spec, settings: Settings) -> list[str]:
    """Tell which inputs of a run are gone or differ from what it read; relative paths begin at the current folder.

    Splits of tasks, weights and tokenizers are compared by their digests, files of text by size and time,
    and by their digest where the time differs and it was recorded.
    """
    return [
        *_changed_splits(registry, run, spec),
        *_changed_files(registry, run),
        *_changed_names(registry, spec, settings),
    ]


def _changed_splits(registry: Registry, run: RunRecord, spec: Spec) -> Iterator[str]:
    asked = task_of(spec)
    recorded = {
        path.removeprefix("data.").removesuffix("_digest"): str(value)
        for path, value in registry.parameters(run.id).items()
        if path.startswith("data.") and path.endswith("_digest") and path != "data.model_digest"
    }
    if asked is None or not recorded:
        return
    from orchestrator.tasks import load_task  # readers of every task type, for runs that have a task

    try:
        task = load_task(asked)
        for split in task.splits:
            now = task.fingerprint(split)[:RECORDED_DIGITS]
            if split in recorded and recorded[split] != now:
                yield f"data: the {split} split of {task.id} has changed: digest {recorded[split]} then, {now} now"
    except OWN_ERRORS as error:
        yield f"data: the files of its task cannot be read: {error}"


def _changed_files(registry: Registry, run: RunRecord) -> Iterator[str]:
    for data in registry.datasets.table(run.id).records:
        for file in data["files"]:
            if data["kind"] != "task" and "://" not in file["path"] and (change := _change(file, run.created_at)):
                yield f"data: {file['path']} {change}"


def _change(file: dict[str, Any], since: datetime) -> str | None:
    path = Path(str(file["path"]))
    try:
        status = path.stat()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if status.st_size != file["num_bytes"]:
        return f"has changed: {file['num_bytes']:,} bytes then, {status.st_size:,} now"
    written_at = written_again(path, file.get("digest"), since)
    return None if written_at is None else f"was written again since, {written_at:%Y-%m-%d %H:%M}"


def _changed_names(registry: Registry, spec: Spec, settings: Settings) -> Iterator[str]:
    """Yield the models and tokenizers that are gone, or whose content is not what was registered under their name."""
    for field, name in dict.fromkeys(names_of(spec)):
        try:
            folder = resolve_name(field, name, settings)
            recorded = _recorded_digest(registry, field, name)
            if recorded is None:
                continue
            is_tokenizer = field in TOKENIZER_FIELDS and recorded[1] == "tokenizer"
            now = content_digest(field, folder) if is_tokenizer else digest_file(join(folder, WEIGHTS_FILE))
        except (*OWN_ERRORS, OSError) as error:
            yield f"{field}: {str(error).removeprefix(f'{field}: ')}"
            continue
        if now != recorded[0]:
            yield f"{field}: {name} has changed: digest {recorded[0][:12]} then, {now[:12]} now"


def _recorded_digest(registry: Registry, field: str, name: str) -> tuple[str, str] | None:
    """Digest under which a name was recorded, with the kind of thing that it is; None where it was not."""
    try:
        return registry.models.get(name).digest, "model"
    except NotFoundError:
        pass
    trained = registry.datasets.tokenizer_at(name) if field in TOKENIZER_FIELDS else None
    return None if trained is None else (trained, "tokenizer")
