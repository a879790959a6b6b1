"""What the names in a spec lead to: folders of models and tokenizers, and the bits that lie there."""

from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_files import TOKENIZER_FILES
from orchestrator.errors import NotFoundError
from orchestrator.inference import MODEL_FILE, resolve_model
from orchestrator.registry import Registry
from orchestrator.settings import Settings
from orchestrator.specs.references import STAGE_MARK, TOKENIZER_FIELDS, SpecT, replace_names
from orchestrator.storage import digest_file, exists, join, local_copy
from orchestrator.storage.files import absolute

_WEIGHTS = "model.safetensors"


def is_place(field: str, name: str) -> bool:
    """Whether a field's value is itself the path of such a thing; every other one is looked up in the registry.

    A folder that is no model does not stand in the way of a registered model of that name.
    """
    if exists(join(name, MODEL_FILE)):
        return True
    if field not in TOKENIZER_FIELDS:
        return False
    is_file = name.endswith(TOKENIZER_FILES) and exists(name)
    return is_file or any(exists(join(name, file)) for file in TOKENIZER_FILES)


def resolve_tokenizer(name: str, settings: Settings) -> str:
    """The folder or file of a tokenizer: a path, or the tokenizer of a model.

    Raises: NotFoundError, saying how to make one.
    """
    if is_place("tokenizer", name):
        return name
    try:
        return resolve_model(name, settings)
    except NotFoundError:
        what = f"{name} has neither {' nor '.join(TOKENIZER_FILES)}" if exists(name) else f"nothing at {name}"
        raise NotFoundError(
            f"{what}, and no model of that name; make one with: orchestrator tokenizer train FILES --to {name}"
        ) from None


def resolve_name(field: str, name: str, settings: Settings) -> str:
    """The folder or file that a field's value leads to, absolute: workers have another current directory.

    Raises: NotFoundError, naming the field.
    """
    try:
        path = (resolve_tokenizer if field in TOKENIZER_FIELDS else resolve_model)(name, settings)
    except NotFoundError as error:
        raise NotFoundError(f"{field}: {error}") from None
    if not exists(path):
        raise NotFoundError(f"{field}: the folder of {name}, {path}, is gone; name another, or run what made it again")
    return absolute(path)


def pin_names(spec: SpecT, settings: Settings) -> SpecT:
    """The spec with registered names as `name@version`, so that it means the same weights for ever.

    Raises: NotFoundError for a name that leads nowhere.
    """
    with Registry(settings.registry) as registry:
        models = registry.models()
        labels = {absolute(str(row.folder)): f"{row.name}@{row.version}" for row in models.itertuples()}

        def pin(field: str, name: str) -> str:
            if name.startswith(STAGE_MARK):
                return name
            folder = resolve_name(field, name, settings)
            return name if is_place(field, name) else labels.get(folder, folder)

        return replace_names(spec, pin)


def content_digest(field: str, name: str, settings: Settings) -> str:
    """Of the weights or the tokenizer that a name leads to."""
    path = resolve_name(field, name, settings)
    if field in TOKENIZER_FIELDS:
        return Tokenizer.load(local_copy(path, skip=(_WEIGHTS,))).fingerprint
    return digest_file(join(path, _WEIGHTS))
