"""Digest, size and mask token of a finished model folder, without loading the model."""

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from math import prod

from bert_core.checkpoints.sentence_transformers import MODULES_FILE
from bert_core.checkpoints.weight_files import WEIGHTS_FILE, find_weights
from orchestrator.base.results import ModelResult
from orchestrator.storage import digest_file, exists, join, local_copy, open_read, read_json
from orchestrator.storage.uris import is_local

RECORD_FILE = "fine_tuning.json"
"""File of a fine-tuned model's record: its task, and how it reads text (`orchestrator.finetuning.model_record`)."""


def describe_model(folder: str, head: str) -> ModelResult:
    """A model folder that this package has written, as a result: its digest and its number of parameters."""
    return ModelResult(folder, weights_digest(folder), count_parameters(folder), head)


def weights_digest(folder: str) -> str:
    """SHA-256 of a model folder's `model.safetensors`, or of its weights in other files; Dense layers' count with it.

    Raises: CheckpointError.
    """
    if exists(join(folder, WEIGHTS_FILE)):
        digests = [digest_file(join(folder, WEIGHTS_FILE))]
    else:
        path, places = find_weights(local_copy(folder))
        digests = [digest_file(str(file)) for file in sorted({path, *places.values()})]
    for module in read_json(join(folder, MODULES_FILE)) if exists(join(folder, MODULES_FILE)) else ():
        if str(module["type"]).endswith(".Dense"):
            digests.append(weights_digest(join(folder, module["path"])))
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def count_parameters(folder: str) -> int:
    """Number of parameters in a model folder; only the header of the weights' file is read."""
    with open_read(join(folder, WEIGHTS_FILE)) as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


def recorded_text_columns(folder: str) -> Sequence[str]:
    """Columns of text that a local folder's model was trained on, by its record; none where that says none."""
    with suppress(Exception):  # as for a mask token
        if is_local(folder):
            columns: Sequence[str] = read_json(join(folder, RECORD_FILE))["text_columns"]
            return columns
    return ()


def mask_token(folder: str) -> str | None:
    """The token that stands for a missing word; None of a model that fills none, or cannot be read."""
    from bert_core.config import BertConfig

    with suppress(Exception):  # whatever is wrong with the folder, the model is only spoken of
        values = read_json(join(folder, "config.json"))
        config, architectures = BertConfig.from_dict(values), values.get("architectures", ())
        is_discriminator = config.family.architecture("BertForReplacedTokenDetection") in architectures
        if not config.causal_attention and not is_discriminator:
            return str(read_json(join(folder, "tokenizer_config.json"))["mask_token"])
    return None
