"""What a finished model folder is, told without loading it."""

import json
from math import prod

from bert_core.checkpoints.pretrained import WEIGHTS_FILE
from orchestrator.results import ModelResult
from orchestrator.storage import digest_file, join, open_read


def describe_model(folder: str, head: str) -> ModelResult:
    """The folder's digest and size, as a stage hands them over."""
    return ModelResult(folder, digest_file(join(folder, WEIGHTS_FILE)), count_parameters(folder), head)


def count_parameters(folder: str) -> int:
    """How many numbers a model's weights are; reads only what their file begins with."""
    with open_read(join(folder, WEIGHTS_FILE)) as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return sum(prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")
