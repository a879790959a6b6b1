"""Configuration of the model that a spec describes; digest and size of a finished model folder. All without torch."""

import hashlib
import json
from math import prod

from bert_core.checkpoints.weight_files import WEIGHTS_FILE, find_weights
from bert_core.config import BertConfig, shape_of
from orchestrator.results import ModelResult
from orchestrator.specs import ModelSpec
from orchestrator.storage import digest_file, exists, join, local_copy, open_read


def build_config(model: ModelSpec, vocab_size: int, pad_token_id: int = 0) -> BertConfig:
    """Configuration of a spec's model for a vocabulary. Raises: ConfigError when its numbers cannot be a model."""
    num_hidden_layers, hidden_size = shape_of(model.size)
    asked = {
        "num_attention_heads": model.num_attention_heads,
        "intermediate_size": model.intermediate_size,
        "hidden_dropout_prob": model.hidden_dropout_prob,
        "attention_probs_dropout_prob": model.attention_probs_dropout_prob,
        "initializer_range": model.initializer_range,
        "span_boundary_objective": model.span_boundary_objective,
        "pad_token_id": pad_token_id,
        "vocab_size": vocab_size,
    }
    changes = {name: value for name, value in asked.items() if value is not None}
    depth, width = model.num_hidden_layers or num_hidden_layers, model.hidden_size or hidden_size
    offset = BertConfig.from_shape(depth, width, model.family, **changes).position_offset
    longest = model.max_position_embeddings + offset
    return BertConfig.from_shape(depth, width, model.family, max_position_embeddings=longest, **changes)


def describe_model(folder: str, head: str) -> ModelResult:
    """A model folder that this package has written, as a result: its digest and its number of parameters."""
    return ModelResult(folder, weights_digest(folder), count_parameters(folder), head)


def weights_digest(folder: str) -> str:
    """SHA-256 of a model folder's `model.safetensors`, or of its weights in other files. Raises: CheckpointError."""
    if exists(join(folder, WEIGHTS_FILE)):
        return digest_file(join(folder, WEIGHTS_FILE))
    path, places = find_weights(local_copy(folder))
    digests = [digest_file(str(file)) for file in sorted({path, *places.values()})]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def count_parameters(folder: str) -> int:
    """Number of parameters in a model folder; only the header of the weights' file is read."""
    with open_read(join(folder, WEIGHTS_FILE)) as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")
