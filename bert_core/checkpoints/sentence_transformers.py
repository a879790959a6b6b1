"""Files of a sentence-transformers folder beside the encoder's own: how tokens become one vector. No torch.

    modules.json                        the steps: Transformer, Pooling and, for unit vectors, Normalize
    1_Pooling/config.json               which pooling
    sentence_bert_config.json           max_seq_length
    config_sentence_transformers.json   that cosines compare the vectors, and the text before queries and documents

Written as sentence-transformers 2 to 6 read it; read as any of them wrote it.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from bert_core.checkpoints.manifest import write_json
from bert_core.errors import CheckpointError, ConfigError

MODULES_FILE = "modules.json"
Pooling = Literal["mean", "cls", "max"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)

_POOLING_FILE = "1_Pooling/config.json"
_LENGTH_FILE = "sentence_bert_config.json"
_MODEL_FILE = "config_sentence_transformers.json"
_TOKENIZER_FILE = "tokenizer_config.json"
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")
"""Names of the document's prompt, the first that is there, as `encode_document` takes them."""

# Fields that would change the vectors here: the only value that can be carried out.
_FIXED: dict[str, dict[str, Any]] = {
    _LENGTH_FILE: {"do_lower_case": False},
    _MODEL_FILE: {"default_prompt_name": None, "truncate_dim": None},
}


@dataclass(frozen=True)
class SentenceEmbeddingConfig:
    """Rules by which the tokens of a text become one vector.

    Raises: ConfigError, naming the field.
    """

    pooling: Pooling = "mean"
    """Pooling of the tokens' vectors (Reimers and Gurevych 2019, section 3)."""
    normalize: bool = False
    """Whether vectors are scaled to length 1."""
    max_seq_length: int | None = None
    """Tokens of a text that are read, special ones included; None: as many as the encoder has positions for."""
    query_prompt: str = ""
    """Text before each query."""
    document_prompt: str = ""
    """Text before each document."""
    truncate_dim: int | None = None
    """Numbers of a vector that are kept, the first ones, in an encoder that learned so; None for all. In no file."""

    def __post_init__(self) -> None:
        if self.pooling not in POOLINGS:
            raise ConfigError(f"pooling {self.pooling!r} is not known; use one of {', '.join(POOLINGS)}")
        if self.max_seq_length is not None and self.max_seq_length < 3:
            raise ConfigError(f"max_seq_length is {self.max_seq_length}; a token and two special ones need 3")


def read_sentence_embedding(folder: Path) -> SentenceEmbeddingConfig:
    """Read the rules of a folder; a plain encoder's folder has none and gets the defaults.

    Raises: CheckpointError, naming a file that is broken or asks for what cannot be done here.
    """
    file = folder / MODULES_FILE
    if not file.exists():
        return SentenceEmbeddingConfig()
    try:
        steps = {str(module["type"]).rpartition(".")[2]: str(module["path"]) for module in _read(file, list)}
    except (KeyError, TypeError):
        raise CheckpointError(f"{file} has a module without type or path; fetch or save the folder anew") from None
    if list(steps) not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise CheckpointError(
            f"{file} asks for {', '.join(steps)}; only Transformer, Pooling and then Normalize can be built here"
        )
    _check_fixed(folder)
    query_prompt, document_prompt = _read_prompts(folder)
    return SentenceEmbeddingConfig(
        pooling=_read_pooling(folder / steps["Pooling"] / "config.json", bool(query_prompt or document_prompt)),
        normalize="Normalize" in steps,
        max_seq_length=_read_max_seq_length(folder),
        query_prompt=query_prompt,
        document_prompt=document_prompt,
    )


def write_sentence_embedding(folder: Path, embedding: SentenceEmbeddingConfig, hidden_size: int) -> list[str]:
    """Write the rules' files, each whole or not at all; returns their names in the folder."""
    steps = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{name}"}
        for index, (name, path) in enumerate(steps[: 3 if embedding.normalize else 2])
    ]
    key = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
    pooling: dict[str, Any] = {key[name]: name == embedding.pooling for name in POOLINGS}
    length = {} if embedding.max_seq_length is None else {"max_seq_length": embedding.max_seq_length}
    prompts = {"query": embedding.query_prompt, "document": embedding.document_prompt}
    prompts = prompts if any(prompts.values()) else {}
    files: dict[str, Any] = {
        MODULES_FILE: modules,
        _POOLING_FILE: {"word_embedding_dimension": hidden_size, **pooling},
        _LENGTH_FILE: {"do_lower_case": False, **length},
        _MODEL_FILE: {"default_prompt_name": None, "prompts": prompts, "similarity_fn_name": "cosine"},
    }
    (folder / _POOLING_FILE).parent.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        write_json(folder / name, value)
    return list(files)


def _read(file: Path, kind: type[Any]) -> Any:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read ({error.strerror}); fetch or save the folder anew") from None
    except ValueError as error:
        raise CheckpointError(f"{file} is not JSON ({error}); fetch or save the folder anew") from None
    if not isinstance(value, kind):
        raise CheckpointError(f"{file} holds no JSON {kind.__name__}; fetch or save the folder anew")
    return value


def _read_if_there(file: Path) -> dict[str, Any]:
    values: dict[str, Any] = _read(file, dict) if file.exists() else {}
    return values


def _check_fixed(folder: Path) -> None:
    for name, fixed in _FIXED.items():
        values = _read_if_there(folder / name)
        for field, only in fixed.items():
            if values.get(field, only) != only:
                raise CheckpointError(
                    f"{folder / name}: {field} is {values[field]!r}; only {json.dumps(only)} can be carried out here"
                )


def _read_prompts(folder: Path) -> tuple[str, str]:
    """Read the prompts of queries and documents; those of other names are for tasks that nothing here has."""
    prompts = _read_if_there(folder / _MODEL_FILE).get("prompts") or {}
    query, document = prompts.get("query"), next((prompts[name] for name in _DOCUMENT_PROMPTS if name in prompts), None)
    if not isinstance(query or "", str) or not isinstance(document or "", str):
        raise CheckpointError(f"{folder / _MODEL_FILE}: a prompt is no text; fetch or save the folder anew")
    return query or "", document or ""


def _read_pooling(file: Path, has_prompts: bool) -> Pooling:
    """Read the pooling from `pooling_mode` (since version 6) or the `pooling_mode_…` flags (before)."""
    values = _read(file, dict)
    if has_prompts and values.get("include_prompt") is False:
        raise CheckpointError(f"{file} leaves the prompt's tokens out of the pooling, which cannot be done here")
    prefix = "pooling_mode_"
    flags = [name.removeprefix(prefix) for name, on in values.items() if name.startswith(prefix) and on is True]
    modes = values.get("pooling_mode", [flag.removesuffix("s").removesuffix("_token") for flag in flags])
    modes = [modes] if isinstance(modes, str) else modes
    chosen = [pooling for pooling in POOLINGS if modes == [pooling]]
    if not chosen:
        raise CheckpointError(f"{file} asks for the pooling {modes}; one of {', '.join(POOLINGS)} can be done here")
    return chosen[0]


def _read_max_seq_length(folder: Path) -> int | None:
    """Read the length from a file of its own (before version 6) or the tokenizer's (since)."""
    own = _read_if_there(folder / _LENGTH_FILE).get("max_seq_length")
    length = own if own is not None else _read_if_there(folder / _TOKENIZER_FILE).get("model_max_length")
    if length is not None and (not isinstance(length, int) or length < 3):
        raise CheckpointError(f"{folder}: max_seq_length is {length!r}; it must be a whole number of at least 3")
    return length
