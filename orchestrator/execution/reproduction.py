"""Facts for making a run again: its code, command, versions and spec, and which of its inputs have changed."""

from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import yaml

from orchestrator.base.errors import NotFoundError
from orchestrator.base.settings import Settings
from orchestrator.cluster.own_errors import OWN_ERRORS
from orchestrator.execution.launch_folder import launch_folder
from orchestrator.registry import Registry
from orchestrator.registry.lineage import file_change
from orchestrator.registry.model_names import content_digest, resolve_name
from orchestrator.registry.parameters import RECORDED_DIGITS
from orchestrator.registry.records import RunRecord
from orchestrator.registry.tables import is_internal
from orchestrator.reports.run_facts import RunFacts, code_line
from orchestrator.specs import Spec
from orchestrator.specs.loading import parse_spec
from orchestrator.specs.references import TOKENIZER_FIELDS, names_of
from orchestrator.specs.task import task_of
from orchestrator.storage.model_folder import weights_digest


def reproduction_facts(
    run: RunRecord, registry: Registry, settings: Settings, program: str = "orchestrator"
) -> dict[str, Any]:
    """Facts for making a run again, by name; a trial is part of its sweep, which is made again as a whole.

    Args:
        program: beginning of the commands that are told, with the options of all commands.
    """
    whole = run if run.parent_id is None else registry.run(run.parent_id)
    facts = RunFacts(registry, run)
    make = facts.made_by
    folder, code = launch_folder(whole.storage_path), (make.code if make else None) or {}
    own, changes = f"{program} runs reproduce {whole.id}", None
    if make is not None and code.get("diff_digest"):
        changes = f"{own} --show diff > {whole.id}.diff; git apply {whole.id}.diff"
        if make.diff_digest is None:
            changes = f"not kept: {code['diff_bytes']:,} bytes are too many, or no text"
        elif code.get("has_masked_secrets"):
            changes += "  # then set its secrets again, where *** stands"
    return {
        "run": f"{whole.id} {whole.name}",
        "folder": f"{folder}{'' if folder.is_dir() else ', which is gone'}",
        "command": facts.command,
        "spec": f"{own} --show spec > {whole.id}.yaml",
        "code": code_line(code) if code else "not recorded",
        "commit": code.get("commit"),
        "uncommitted_changes": changes,
        "versions": ((make.environment if make else None) or {}).get("versions"),
        "changed_inputs": changed_inputs(registry, whole, settings),
    }


def spec_text(run: RunRecord, registry: Registry) -> str:
    """The recorded spec as YAML, without the tags that say where the run itself belongs; a trial's sweep's."""
    spec = dict((run if run.parent_id is None else registry.run(run.parent_id)).spec)
    spec["tags"] = [tag for tag in spec.get("tags") or () if not is_internal(tag)]
    return str(yaml.safe_dump(spec, sort_keys=False, allow_unicode=True))


def kept_diff(run: RunRecord, registry: Registry) -> str:
    """The uncommitted changes of a run's code, as `git apply` takes them. Raises: NotFoundError where none are kept."""
    make = RunFacts(registry, run).made_by
    diff = None if make is None else registry.code_diff(make.run_id, make.number)
    if diff is None:
        raise NotFoundError(f"no uncommitted changes of code are kept of run {run.id}")
    return diff


def changed_inputs(registry: Registry, run: RunRecord, settings: Settings) -> list[str]:
    """Lines on the inputs of a run, or of a pipeline's stages, that are gone or differ from what it read.

    Splits of tasks, weights and tokenizers are compared by their digests, files of text by size and time, and by their
    digest where the time differs and it was recorded.
    """
    folder = launch_folder(run.storage_path)
    changed: list[str] = []
    with chdir(folder if folder.is_dir() else Path.cwd()):
        for part in registry.stages(run.id) if run.kind == "pipeline" else [run]:
            changed += _changed_files(registry, part)
            try:
                spec = parse_spec(part.spec)
            except OWN_ERRORS as error:
                changed.append(f"only its own code reads the spec of {part.name}: {error}")
                continue
            changed += [*_changed_splits(registry, part, spec), *_changed_names(registry, spec, settings)]
    return list(dict.fromkeys(changed))


def _changed_splits(registry: Registry, run: RunRecord, spec: Spec) -> Iterator[str]:
    asked, parameters = task_of(spec), registry.parameters(run.id)
    if asked is None or not any(path.startswith("data.") for path in parameters):
        return
    from orchestrator.tasks.loading import load_task

    try:
        task = load_task(asked)
        for split in task.splits:
            then, now = parameters.get(f"data.{split}_digest"), task.fingerprint(split)[:RECORDED_DIGITS]
            if then not in (None, now):
                yield f"data: the {split} split of {task.id} has changed: digest {then} then, {now} now"
    except OWN_ERRORS as error:
        yield f"data: the files of its task cannot be read: {error}"


def _changed_files(registry: Registry, run: RunRecord) -> Iterator[str]:
    for data in registry.datasets.table(run.id).records:
        for file in data["files"]:
            change = None if "://" in file["path"] else file_change(Path(file["path"]), file, run.created_at)
            if data["kind"] != "task" and change:
                yield f"data: {file['path']} {change}"


def _changed_names(registry: Registry, spec: Spec, settings: Settings) -> Iterator[str]:
    """Yield the models and tokenizers that are gone, or whose content is not what was registered under their name."""
    for field, name in dict.fromkeys(names_of(spec)):
        try:
            digests = _digests(registry, field, name, resolve_name(field, name, settings))
        except (*OWN_ERRORS, OSError) as error:
            yield f"{field}: {str(error).removeprefix(f'{field}: ')}"
            continue
        if digests is not None and digests[0] != digests[1]:
            yield f"{field}: {name} has changed: digest {digests[0][:12]} then, {digests[1][:12]} now"


def _digests(registry: Registry, field: str, name: str, folder: str) -> tuple[str, str] | None:
    """Recorded and present digest of a model or tokenizer; None where none was recorded."""
    try:
        return registry.models.get(name).digest, weights_digest(folder)
    except NotFoundError:
        then = registry.datasets.tokenizer_at(name) if field in TOKENIZER_FIELDS else None
        return None if then is None else (then, content_digest(field, folder))
