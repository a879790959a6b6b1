"""Facts of a finished model folder, read without loading the model: its digest and its size."""

import json
from math import prod

from bert_core.checkpoints.pretrained import WEIGHTS_FILE
from orchestrator.results import ModelResult
from orchestrator.storage import digest_file, join, open_read


def describe_model(folder: str, head: str) -> ModelResult:
    """A model folder as a result: its digest and its number of parameters."""
    return ModelResult(folder, digest_file(join(folder, WEIGHTS_FILE)), count_parameters(folder), head)


def count_parameters(folder: str) -> int:
    """Number of parameters in a model folder; only the header of the weights' file is read."""
    with open_read(join(folder, WEIGHTS_FILE)) as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")
