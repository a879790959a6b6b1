"""Identity of what a sweep's trials read: scores of trials with different ones must not be ranked together."""

from importlib.metadata import version

from bert_core.config import CONFIG_FILE
from orchestrator.finetuning.search_space import listed_values
from orchestrator.kinds.resolved import Resolved
from orchestrator.specs import SweepSpec
from orchestrator.specs.references import RANDOM
from orchestrator.storage import digest_file, join
from orchestrator.tasks import FEATURES_VERSION

_TRAINING_VERSION = 1
"""Raised when the same trial would end with other weights, predictions or scores."""


def sweep_identity(spec: SweepSpec, inputs: Resolved) -> dict[str, str]:
    """Return what decides a trial's scores beside its recipe, by name, as the files are now.

    These are the data of each split, start models and tokenizers, torch, and the formats of this package.

    Raises: TaskDataError, CheckpointError, TokenizerError where one of them cannot be read.
    """
    task = inputs.task(spec.task)
    values = {
        f"task.files.{split}": f"{len(task.examples(split)):,} examples, {task.fingerprint(split)}"
        for split in task.splits
    }
    models = [str(name) for name in listed_values(spec, "init_from")]
    for name in models:
        if name != RANDOM:
            values[f"weights of {name}"] = inputs.content_digest("init_from", name)
            values[f"configuration of {name}"] = digest_file(join(inputs.folder("init_from", name), CONFIG_FILE))
            values[f"tokenizer of {name}"] = inputs.content_digest("tokenizer", inputs.folder("init_from", name))
    if RANDOM in models:
        for tokenizer in map(str, listed_values(spec, "tokenizer")):
            values[f"tokenizer {tokenizer}"] = inputs.content_digest("tokenizer", tokenizer)
    return values | {
        "torch": version("torch"),
        "features and training of this package": f"{FEATURES_VERSION}.{_TRAINING_VERSION}",
    }
