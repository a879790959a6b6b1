"""Files of a sentence-transformers folder beside the encoder's own: how tokens become one vector. No torch.

    modules.json                        the steps: Transformer, Pooling, any Dense, and for unit vectors Normalize
    1_Pooling/config.json               which pooling
    2_Dense/config.json                 a linear layer with an activation; its weights lie beside
    sentence_bert_config.json           max_seq_length
    config_sentence_transformers.json   what compares two vectors, prompts, and how many numbers are kept

Written as sentence-transformers 2 to 6 read it; read as any of them wrote it.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from bert_core.checkpoints.manifest import write_json
from bert_core.config_fields import Bounds, Count, check_fields
from bert_core.errors import CheckpointError, ConfigError

MODULES_FILE = "modules.json"
Pooling = Literal["mean", "cls", "max"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
DenseActivation = Literal[
    "torch.nn.modules.activation.Tanh",
    "torch.nn.modules.linear.Identity",
    "torch.nn.modules.activation.ReLU",
    "torch.nn.modules.activation.GELU",
]

_STEPS = re.compile(r"Transformer Pooling( Dense)*( Normalize)?")
_POOLING_FILE = "1_Pooling/config.json"
_LENGTH_FILE = "sentence_bert_config.json"
_MODEL_FILE = "config_sentence_transformers.json"
_TOKENIZER_FILE = "tokenizer_config.json"
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")
"""Names of the document's prompt, the first that is there, as `encode_document` takes them."""
_DENSE_FIXED = {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"}


@dataclass(frozen=True)
class DenseConfig:
    """Fields of a linear layer with an activation behind the pooling. Raises: ConfigError, naming the field."""

    in_features: Count
    out_features: Count
    bias: bool = True
    activation_function: DenseActivation = "torch.nn.modules.activation.Tanh"

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class SentenceEmbeddingConfig:
    """Rules by which the tokens of a text become one vector.

    Raises: ConfigError, naming the field.
    """

    pooling: Pooling = "mean"
    """Pooling of the tokens' vectors (Reimers and Gurevych 2019, section 3)."""
    normalize: bool = False
    """Whether vectors are scaled to length 1."""
    max_seq_length: Annotated[int, Bounds(at_least=3)] | None = None
    """Tokens of a text that are read, special ones included; None: as many as the encoder has positions for."""
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Text before each text by its name: "query", "document", and those of other tasks that the encoder learned."""
    default_prompt_name: str | None = None
    """Name of the prompt where none is asked for; None: the document's."""
    truncate_dim: Count | None = None
    """Numbers of a vector that are kept, the first ones, in an encoder that learned so; None for all."""
    dense: tuple[DenseConfig, ...] = ()
    """Layers that the pooled vector passes through."""
    similarity_fn_name: Literal["cosine", "dot"] = "cosine"
    """Score of two vectors."""

    def __post_init__(self) -> None:
        check_fields(self)
        if not all(isinstance(text, str) for text in self.prompts.values()):
            raise ConfigError(f"prompts is {dict(self.prompts)}; each must be text")
        self.prompt()

    @property
    def query_prompt(self) -> str:
        return self.prompts.get("query", "")

    @property
    def document_prompt(self) -> str:
        return next((self.prompts[name] for name in _DOCUMENT_PROMPTS if name in self.prompts), "")

    def prompt(self, name: str | None = None) -> str:
        """Look up a prompt; without a name the default one. Raises: ConfigError for a name that is not known."""
        name = name or self.default_prompt_name or "document"
        known = {"query": self.query_prompt, "document": self.document_prompt, **self.prompts}
        if name not in known:
            raise ConfigError(f"the model has no prompt {name!r}; use one of {', '.join(known)}")
        return known[name]

    def with_prompts(self, query: str, document: str) -> Self:
        """Copy the rules with other prompts for queries and documents; the document's is the default then."""
        known = ("query", *_DOCUMENT_PROMPTS)
        prompts = {name: text for name, text in self.prompts.items() if name not in known}
        own = {"query": query, "document": document} if query or document else {}
        return replace(self, prompts=prompts | own, default_prompt_name=None)

    def vector_size(self, hidden_size: int) -> int:
        """Numbers of a vector, of an encoder of this width."""
        size = self.dense[-1].out_features if self.dense else hidden_size
        return min(size, self.truncate_dim or size)


def read_sentence_embedding(folder: Path) -> SentenceEmbeddingConfig:
    """Read the rules of a folder; a plain encoder's folder has none and gets the defaults.

    Raises: CheckpointError, naming a file that is broken or asks for what cannot be done here.
    """
    file = folder / MODULES_FILE
    if not file.exists():
        return SentenceEmbeddingConfig()
    steps = _read_steps(folder)
    kinds = [kind for kind, _ in steps]
    if not _STEPS.fullmatch(" ".join(kinds)):
        raise CheckpointError(
            f"{file} asks for {', '.join(kinds)}; only Transformer, Pooling, then Dense and Normalize can be built here"
        )
    _check_fixed(folder / _LENGTH_FILE, {"do_lower_case": False})
    values = _read_if_there(folder / _MODEL_FILE)
    prompts = {name: text for name, text in (values.get("prompts") or {}).items() if text is not None}
    try:
        return SentenceEmbeddingConfig(
            pooling=_read_pooling(steps[1][1] / "config.json", any(prompts.values())),
            normalize=kinds[-1] == "Normalize",
            max_seq_length=_read_max_seq_length(folder),
            prompts=prompts,
            default_prompt_name=values.get("default_prompt_name"),
            truncate_dim=values.get("truncate_dim"),
            dense=tuple(_read_dense(place / "config.json") for place in dense_folders(folder)),
            similarity_fn_name=values.get("similarity_fn_name") or "cosine",
        )
    except ConfigError as error:
        raise CheckpointError(f"{folder}: {error}") from None


def dense_folders(folder: Path) -> list[Path]:
    """List the folders of a folder's Dense layers, in their order. Raises: CheckpointError."""
    return [place for kind, place in _read_steps(folder) if kind == "Dense"]


def write_sentence_embedding(folder: Path, embedding: SentenceEmbeddingConfig, hidden_size: int) -> list[str]:
    """Write the rules' files, each whole or not at all; returns their names in the folder."""
    kinds = ["Transformer", "Pooling", *["Dense"] * len(embedding.dense), *["Normalize"] * embedding.normalize]
    paths = ["", *(f"{index}_{kind}" for index, kind in enumerate(kinds[1:], start=1))]
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for index, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    key = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}
    pooling: dict[str, Any] = {key[name]: name == embedding.pooling for name in POOLINGS}
    length = {} if embedding.max_seq_length is None else {"max_seq_length": embedding.max_seq_length}
    kept = {} if embedding.truncate_dim is None else {"truncate_dim": embedding.truncate_dim}
    prompts = {"prompts": dict(embedding.prompts), "default_prompt_name": embedding.default_prompt_name}
    files: dict[str, Any] = {
        MODULES_FILE: modules,
        _POOLING_FILE: {"word_embedding_dimension": hidden_size, **pooling},
        _LENGTH_FILE: {"do_lower_case": False, **length},
        _MODEL_FILE: {**prompts, **kept, "similarity_fn_name": embedding.similarity_fn_name},
    }
    files |= {f"{index}_Dense/config.json": asdict(layer) for index, layer in enumerate(embedding.dense, start=2)}
    for name, value in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_json(folder / name, value)
    return list(files)


def _read_steps(folder: Path) -> list[tuple[str, Path]]:
    """Kind and folder of each step."""
    file = folder / MODULES_FILE
    try:
        return [(str(module["type"]).rpartition(".")[2], folder / str(module["path"])) for module in _read(file, list)]
    except (KeyError, TypeError):
        raise CheckpointError(f"{file} has a module without type or path; fetch or save the folder anew") from None


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


def _check_fixed(file: Path, fixed: Mapping[str, Any]) -> None:
    """Check fields that would change the vectors: the only value that can be carried out. None is the default."""
    values = _read_if_there(file)
    for name, only in fixed.items():
        if values.get(name) not in (None, only):
            raise CheckpointError(
                f"{file}: {name} is {values[name]!r}; only {json.dumps(only)} can be carried out here"
            )


def _read_dense(file: Path) -> DenseConfig:
    values = _read(file, dict)
    _check_fixed(file, {**_DENSE_FIXED, "use_residual": False})
    sizes = (values.get(name) for name in ("in_features", "out_features"))
    try:
        return DenseConfig(*sizes, **{name: values[name] for name in ("bias", "activation_function") if name in values})
    except ConfigError as error:
        raise CheckpointError(f"{file}: {error}") from None


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


def _read_max_seq_length(folder: Path) -> Any:
    """Read the length from a file of its own (before version 6) or the tokenizer's (since)."""
    own = _read_if_there(folder / _LENGTH_FILE).get("max_seq_length")
    return own if own is not None else _read_if_there(folder / _TOKENIZER_FILE).get("model_max_length")
