"""The folder of a token store: its name follows from the text, the tokenizer and the options. No Ray."""

import hashlib
import json
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from bert_core.text.tokenization import Tokenizer
from orchestrator.corpus.input_files import InputFile
from orchestrator.corpus.manifest import STORE_FORMAT
from orchestrator.specs import TextSource
from orchestrator.storage import join
from orchestrator.storage.uris import is_local, local_path

BUILD_VERSION = 2
"""Version of the shards: a number to raise when the same text gives other shards, so that older stores are not used."""


def store_options(
    source: TextSource, tokenizer: Tokenizer, validation_fraction: float, shard_bytes: int
) -> dict[str, Any]:
    """Everything that is asked of a store, as its manifest keeps it."""
    return {
        "corpus": source.identity_values(),
        "tokenizer": tokenizer.fingerprint,
        "validation_fraction": validation_fraction,
        "shard_bytes": shard_bytes,
        "sentencex": version("sentencex"),
    }


def store_folder(storage: str, options: dict[str, Any], files: Sequence[InputFile]) -> str:
    """Folder STORAGE/corpora/KEY of the store that is asked for; the files tell one state of the text from another."""
    root = str(local_path(storage).absolute()) if is_local(storage) else storage
    return join(root, "corpora", store_key(options, files))


def store_key(options: dict[str, Any], files: Sequence[InputFile]) -> str:
    """Name of a store's folder: a hash of what was asked for and of each file's path, size and time of modification."""
    seen = [[file.path, file.num_bytes, file.version] for file in files]
    text = json.dumps(
        {"options": options, "files": seen, "format": STORE_FORMAT, "build": BUILD_VERSION}, sort_keys=True
    )
    return hashlib.sha256(text.encode()).hexdigest()
