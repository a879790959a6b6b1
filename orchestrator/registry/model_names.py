"""Lookup of models and tokenizers by the names in a spec: their folders, digests, and the tasks that were learned."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from typing import Any

from bert_core.checkpoints.weight_files import WEIGHTS_FILE
from bert_core.text.tokenizer_files import TOKENIZER_FILES
from orchestrator.base.errors import InputError, NotFoundError, RegistryError, SeveralRunsError
from orchestrator.base.settings import Settings
from orchestrator.registry import Registry
from orchestrator.registry.records import RunRecord
from orchestrator.specs.references import STAGE_MARK, TOKENIZER_FIELDS, SpecT, replace_names
from orchestrator.storage import exists, join, local_copy, moved_path
from orchestrator.storage.hub import is_cached, is_hub, pin, uri_of_name
from orchestrator.storage.model_folder import weights_digest
from orchestrator.storage.uris import absolute, is_local

MODEL_FILE = "config.json"


def resolve_model(name: str, settings: Settings, field: str = "init_from") -> str:
    """Folder of a model: a path, a registered name (`name`, `name@version`), a run, or a name on the hub.

    A field of tokenizers takes a tokenizer's folder or file as well. The hub is asked for what is nothing here; its
    folder is a URI with the commit. Of a pipeline it is the model of the last stage that has left one.

    Raises: NotFoundError, saying what was looked for and what there is; InputError for a name that means several.
    """
    if is_hub(name):
        return pin(name)
    is_here = is_place(field, name)
    needed = " or ".join((MODEL_FILE, *(TOKENIZER_FILES if field in TOKENIZER_FIELDS else ())))
    if name.startswith((".", "/", "~")) or "://" in name:
        if not is_here:
            raise NotFoundError(f"{name} has no {needed}" if exists(name) else f"there is no folder {name}")
        return name
    found, registered = {f"./{name}": name} if is_here else {}, ""
    with suppress(RegistryError) if is_here else nullcontext(), Registry(settings.registry, read_only=True) as registry:
        try:
            model = registry.models.get(name)
            found[model.label] = model.folder if is_here else _found_again(model.folder, settings)
        except NotFoundError as error:
            registered = str(error).partition("; ")[2].rstrip(".")
            if not is_here and (folder := _left_by_run(name, field, registry, settings)) is not None:
                found[name] = folder
    uri = uri_of_name(name)
    if found and uri is not None and is_cached(uri):
        found[uri] = uri
    if len(set(map(absolute, found.values()))) > 1:
        raise InputError(f"{name!r} means {len(found)} things; say which one: {' or '.join(found)}")
    if found:
        return next(iter(found.values()))
    what = f"{name!r} is no registered model, run or folder{f' with {needed}' if exists(name) else ''} ({registered})"
    try:
        if uri is not None:
            return pin(uri)
    except (NotFoundError, InputError) as error:
        raise type(error)(f"{what}; {error}") from None
    raise NotFoundError(f"{what}; run the spec that makes it first, or name another")


def _left_by_run(name: str, field: str, registry: Registry, settings: Settings) -> str | None:
    """Folder of the model that a run has left, for a field of tokenizers of its tokenizer; None where no run is called
    so. Raises: NotFoundError without one."""
    try:
        run = registry.run(name)
    except SeveralRunsError:
        raise
    except NotFoundError:
        return None
    family = (run, *registry.stages(run.id))
    for made in family:
        if made.model_folder is not None:
            return _found_again(made.model_folder, settings)
    for made in family if field in TOKENIZER_FIELDS else ():
        if made.kind == "tokenizer" and (folders := registry.datasets.table(made.id).values("path")):
            return _found_again(str(folders[0]), settings)
    raise NotFoundError(f"run {run.id} ({run.kind}, {run.state}) has left no model; see `orchestrator models list`")


def _found_again(folder: str, settings: Settings) -> str:
    """A recorded folder, or where it lies below the present storage. Raises: InputError where it is in neither."""
    found = moved_path(folder, settings.storage)
    if is_local(found) and not exists(found):
        gone = f"{folder} is gone, and {settings.storage} does not have it either"
        raise InputError(f"{gone}; if its storage was moved, give --storage DIR, else run what made it again")
    return found


def pretrained_models(settings: Settings) -> tuple[str, ...]:
    """Names of registered models that are pretrained and not fine-tuned, the newest first."""
    with Registry(settings.registry, read_only=True) as registry:
        models = registry.models.table().records
    return tuple(dict.fromkeys(model["name"] for model in models if model["head"] == "pretraining"))


def is_place(field: str, name: str) -> bool:
    """Whether a field's value is the path of a model or tokenizer; every other value is looked up in the registry.

    A folder that is no model does not hide a registered model of the same name.
    """
    if is_hub(name):
        return False
    if exists(join(name, MODEL_FILE)):
        return True
    if field not in TOKENIZER_FIELDS:
        return False
    is_file = name.endswith(TOKENIZER_FILES) and exists(name)
    return is_file or any(exists(join(name, file)) for file in TOKENIZER_FILES)


def resolve_name(field: str, name: str, settings: Settings) -> str:
    """Absolute path of the folder or file that a field's value leads to: workers have another current directory.

    Raises: NotFoundError or InputError, naming the field.
    """
    try:
        path = resolve_model(name, settings, field)
    except (NotFoundError, InputError) as error:
        is_made = field in TOKENIZER_FIELDS and isinstance(error, NotFoundError)
        make = f"; make one with: orchestrator tokenizer train FILES -o {name}" if is_made else ""
        raise type(error)(f"{field}: {error}{make}") from None
    if not exists(path):
        raise NotFoundError(f"{field}: the folder of {name}, {path}, is gone; name another, or run what made it again")
    return absolute(path)


def pin_names(spec: SpecT, settings: Settings, resolve: Callable[[str, str], str]) -> SpecT:
    """Put `name@version` and commits of the hub in the place of names, so that the spec means the same for ever.

    `resolve` finds the folder of a field and its value, as `resolve_name`; what it raises is raised.
    """
    with Registry(settings.registry, read_only=True) as registry:
        labels = {
            absolute(moved_path(row["folder"], settings.storage)): f"{row['name']}@{row['version']}"
            for row in registry.models.table().records
        }

        def pin_name(field: str, name: str) -> str:
            if name.startswith(STAGE_MARK):
                return name
            folder = resolve(field, name)
            return name if is_place(field, name) else labels.get(folder, folder)

        return replace_names(spec, pin_name)


def content_digest(field: str, path: str) -> str:
    """Digest of the weights, or of the tokenizer, in the folder or file that a field's value leads to."""
    if field in TOKENIZER_FIELDS:
        from bert_core.text.tokenization import Tokenizer  # and tokenizers with it, for this digest alone

        return Tokenizer.load(local_copy(path, skip=(WEIGHTS_FILE,))).fingerprint
    return weights_digest(path)


def read_recorded_task(model: str, settings: Settings) -> Mapping[str, Any] | None:
    """Values of a model's task, as `resolve_model` takes its name; None where no run of it is recorded, or no task."""
    if exists(join(model, MODEL_FILE)):
        return None
    with Registry(settings.registry, read_only=True) as registry, suppress(NotFoundError):
        task: Mapping[str, Any] | None = _maker(model, registry).spec.get("task")
        return task
    return None


def _maker(model: str, registry: Registry) -> RunRecord:
    """The run whose spec says what the model learns: of a trial its sweep, of a pipeline the stage that left it."""
    run_id = model
    with suppress(NotFoundError):
        run_id = registry.models.get(model).run_id or model
    run = registry.run(run_id)
    stages = registry.stages(run.id) if run.model_folder is None else []
    run = next((stage for stage in stages if stage.model_folder is not None), run)
    return registry.run(run.parent_id) if run.kind == "trial" and run.parent_id is not None else run
