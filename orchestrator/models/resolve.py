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
from orchestrator.storage.uris import absolute, is_local

MODEL_FILE = "config.json"


def resolve_model(name: str, settings: Settings) -> str:
    """Folder of a model, which is given as a path, a registered name (`name`, `name@version`) or a run.

    Of a pipeline it is the model of the last stage that has left one.

    Raises: NotFoundError, saying what was looked for and what there is.
    """
    if exists(join(name, MODEL_FILE)):
        return name
    if name.startswith((".", "/", "~")) or "://" in name:
        what = f"{name} is no model folder: it has no {MODEL_FILE}" if exists(name) else f"there is no folder {name}"
        raise NotFoundError(what)
    with Registry(settings.registry, read_only=True) as registry:
        try:
            return _found_again(registry.models.get(name).folder, settings)
        except NotFoundError as error:
            registered = str(error).partition("; ")[2].rstrip(".")
        try:
            run = registry.run(name)
        except SeveralRunsError:
            raise
        except NotFoundError:
            what = f"folder with a {MODEL_FILE}" if exists(name) else "folder"
            raise NotFoundError(
                f"{name!r} is no registered model, run or {what} ({registered}); "
                "run the spec that makes it first, or name another"
            ) from None
        if run.model_folder is not None:
            return _found_again(run.model_folder, settings)
        for stage in registry.stages(run.id):
            if stage.model_folder is not None:
                return _found_again(stage.model_folder, settings)
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
    if exists(join(name, MODEL_FILE)):
        return True
    if field not in TOKENIZER_FIELDS:
        return False
    is_file = name.endswith(TOKENIZER_FILES) and exists(name)
    return is_file or any(exists(join(name, file)) for file in TOKENIZER_FILES)


def resolve_tokenizer(name: str, settings: Settings) -> str:
    """Folder or file of a tokenizer, which is given as a path or as a model that brings its own.

    Raises: NotFoundError, saying how to make one.
    """
    if is_place("tokenizer", name):
        return name
    try:
        return resolve_model(name, settings)
    except NotFoundError:
        what = f"{name} has neither {' nor '.join(TOKENIZER_FILES)}" if exists(name) else f"nothing at {name}"
        raise NotFoundError(
            f"{what}, and no model of that name; make one with: orchestrator tokenizer train FILES -o {name}"
        ) from None


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
    """Put `name@version` in the place of registered names, so that the spec means the same weights for ever.

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

        def pin(field: str, name: str) -> str:
            if name.startswith(STAGE_MARK):
                return name
            folder = resolve(field, name)
            return name if is_place(field, name) else labels.get(folder, folder)

        return replace_names(spec, pin)


def content_digest(field: str, path: str) -> str:
    """Digest of the weights, or of the tokenizer, in the folder or file that a field's value leads to."""
    if field in TOKENIZER_FIELDS:
        from bert_core.text.tokenization import Tokenizer  # and tokenizers with it, for this digest alone

        return Tokenizer.load(local_copy(path, skip=(WEIGHTS_FILE,))).fingerprint
    return weights_digest(path)
