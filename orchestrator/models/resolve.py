"""Lookup of the names in a spec: the folders of models and tokenizers, and digests of what lies there."""

from collections.abc import Callable

from bert_core.checkpoints.weight_files import WEIGHTS_FILE
from bert_core.text.tokenizer_files import TOKENIZER_FILES
from orchestrator.errors import InputError, NotFoundError, SeveralRunsError
from orchestrator.models.info import weights_digest
from orchestrator.registry import Registry
from orchestrator.settings import Settings
from orchestrator.specs.references import STAGE_MARK, TOKENIZER_FIELDS, SpecT, replace_names
from orchestrator.storage import exists, join, local_copy, moved_path
from orchestrator.storage.hub import is_cached, is_hub, pin, uri_of_name
from orchestrator.storage.uris import absolute, is_local

MODEL_FILE = "config.json"


def resolve_model(name: str, settings: Settings) -> str:
    """Folder of a model: a path, a registered name (`name`, `name@version`), a run, or a name on the hub.

    The hub is asked for what is nothing here; its folder is a URI with the commit. Of a pipeline it is the model of the
    last stage that has left one.

    Raises: NotFoundError, saying what was looked for and what there is; InputError for a name that means several.
    """
    return _resolve("init_from", name, settings)


def _resolve(field: str, name: str, settings: Settings) -> str:
    if is_hub(name):
        return pin(name)
    is_here = is_place(field, name)
    if name.startswith((".", "/", "~")) or "://" in name:
        if is_here:
            return name
        what = f"{name} is no model folder: it has no {MODEL_FILE}" if exists(name) else f"there is no folder {name}"
        raise NotFoundError(what)
    found, registered = {f"./{name}": name} if is_here else {}, ""
    with Registry(settings.registry, read_only=True) as registry:
        try:
            model = registry.models.get(name)
            found[model.label] = _found_again(model.folder, settings)
        except NotFoundError as error:
            registered = str(error).partition("; ")[2].rstrip(".")
            folder = None if is_here else _left_by_run(name, registry, settings)
            found |= {} if folder is None else {name: folder}
    uri = uri_of_name(name)
    if found and uri is not None and is_cached(uri):
        found[uri] = uri
    if len(set(map(absolute, found.values()))) > 1:
        raise InputError(f"{field}: {name!r} means {len(found)} things; say which one: {' or '.join(found)}")
    if found:
        return next(iter(found.values()))
    folder = f"folder with a {MODEL_FILE}" if exists(name) else "folder"
    what = f"{name!r} is no registered model, run or {folder} ({registered})"
    try:
        if uri is not None:
            return pin(uri)
    except (NotFoundError, InputError) as error:
        raise type(error)(f"{what}; {error}") from None
    raise NotFoundError(f"{what}; run the spec that makes it first, or name another")


def _left_by_run(name: str, registry: Registry, settings: Settings) -> str | None:
    """Folder of the model that a run has left; None where no run is called so. Raises: NotFoundError without one."""
    try:
        run = registry.run(name)
    except SeveralRunsError:
        raise
    except NotFoundError:
        return None
    for made in (run, *registry.stages(run.id)):
        if made.model_folder is not None:
            return _found_again(made.model_folder, settings)
    raise NotFoundError(f"run {run.id} ({run.kind}, {run.state}) has left no model; see `orchestrator models list`")


def _found_again(folder: str, settings: Settings) -> str:
    """A recorded folder, or where it lies below the present storage. Raises: InputError where it is in neither."""
    found = moved_path(folder, settings.storage)
    if is_local(found) and not exists(found):
        raise InputError(
            f"{folder} is gone, and {settings.storage} does not have it either; if its storage was moved, name that "
            "by --storage DIR, else run what made it again"
        )
    return found


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


def resolve_tokenizer(name: str, settings: Settings) -> str:
    """Folder or file of a tokenizer: a path, or a model that brings its own.

    Raises: NotFoundError, saying how to make one.
    """
    try:
        return _resolve("tokenizer", name, settings)
    except NotFoundError as error:
        what = f"{name} has neither {' nor '.join(TOKENIZER_FILES)}, and " if exists(name) else ""
        raise NotFoundError(f"{what}{error}; make one with: orchestrator tokenizer train FILES -o {name}") from None


def resolve_name(field: str, name: str, settings: Settings) -> str:
    """Absolute path of the folder or file that a field's value leads to: workers have another current directory.

    Raises: NotFoundError, naming the field.
    """
    try:
        path = (resolve_tokenizer if field in TOKENIZER_FIELDS else resolve_model)(name, settings)
    except NotFoundError as error:
        raise NotFoundError(f"{field}: {error}") from None
    if not exists(path):
        raise NotFoundError(f"{field}: the folder of {name}, {path}, is gone; name another, or run what made it again")
    return absolute(path)


def pin_names(spec: SpecT, settings: Settings, resolve: Callable[[str, str], str]) -> SpecT:
    """Put `name@version` and commits of the hub in the place of names, so that the spec means the same for ever.

    Args:
        resolve: the folder that a field and its value lead to, as `resolve_name` finds it.

    Raises: what `resolve` raises for a name that leads nowhere.
    """
    with Registry(settings.registry, read_only=True) as registry:
        models = registry.models.frame()
        labels = {
            absolute(moved_path(str(row.folder), settings.storage)): f"{row.name}@{row.version}"
            for row in models.itertuples()
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
