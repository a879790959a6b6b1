"""Manifest of a token store: its shards with their counts and digests, and what it was made of. It is written last."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, Self

from orchestrator.errors import CorpusError
from orchestrator.results import FileCount
from orchestrator.storage import join, read_json, write_json

STORE_FORMAT = "token-store-1"
MANIFEST = "manifest.json"

StoreSplit = Literal["train", "validation"]
STORED_NAMES: Mapping[StoreSplit, str] = {"train": "train", "validation": "held_out"}
"""Names of the splits in manifests, in files' names and in what random numbers are derived from."""
COUNT_NAMES = ("num_documents", "num_sentences", "num_tokens")


@dataclass(frozen=True)
class ShardInfo:
    """One shard of a store, as its manifest describes it."""

    file: str
    """Path of the shard, relative to the store's folder."""
    split: StoreSplit
    num_documents: int
    num_sentences: int
    num_tokens: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """Everything that is known about a store without reading a shard."""

    tokenizer_fingerprint: str
    vocab_size: int
    options: Mapping[str, Any]
    """Options that the store was built with: the source, the share of validation documents, the size of a shard."""
    shards: Sequence[ShardInfo]
    """All shards, in the order of the corpus."""
    files: Sequence[FileCount] = ()
    lengths: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of the side file with the lengths of each split's documents, by the split's name in manifests. Empty in
    stores of versions that wrote none."""

    def __getstate__(self) -> dict[str, Any]:
        """State for pickling: the fields, and nothing that was computed from them."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def digest(self) -> str:
        """The corpus digest: SHA-256 over the shards' digests in order."""
        lines = (f"{STORED_NAMES[shard.split]} {shard.sha256}\n" for shard in self.shards)
        return hashlib.sha256("".join(lines).encode()).hexdigest()

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the content and the tokenizer; where the files lie does not matter."""
        return hashlib.sha256(f"{STORE_FORMAT} {self.tokenizer_fingerprint} {self.digest}".encode()).hexdigest()

    @cached_property
    def by_split(self) -> Mapping[StoreSplit, tuple[ShardInfo, ...]]:
        """The shards of each split, in the order of the corpus."""
        return {split: tuple(shard for shard in self.shards if shard.split == split) for split in STORED_NAMES}

    def counts(self, split: StoreSplit | None = None) -> dict[str, int]:
        """Numbers of documents, sentences and tokens of a split, or of both."""
        shards = self.shards if split is None else self.by_split[split]
        return {name: sum(getattr(shard, name) for shard in shards) for name in COUNT_NAMES}

    def save(self, folder: str) -> None:
        """Write the manifest, which makes the store complete."""
        shards = [asdict(shard) | {"split": STORED_NAMES[shard.split]} for shard in self.shards]
        value = asdict(self) | {
            "shards": shards,
            "format": STORE_FORMAT,
            "digest": self.digest,
            "counts": self.counts(),
        }
        write_json(join(folder, MANIFEST), value)

    @classmethod
    def load(cls, folder: str) -> Self:
        """Read and check a manifest. Raises: CorpusError when it is missing, cut short or contradicts itself."""
        path = join(folder, MANIFEST)
        try:
            value = read_json(path)
        except FileNotFoundError:
            raise CorpusError(f"{folder} is no token store: it has no {MANIFEST}; build the corpus again") from None
        except (OSError, ValueError) as error:
            raise CorpusError(f"{path} cannot be read: {error}; delete the folder and build the corpus again") from None
        if not isinstance(value, dict) or value.pop("format", None) != STORE_FORMAT:
            raise CorpusError(f"{path} is not a manifest of {STORE_FORMAT}; build the corpus again")
        digest, counts = value.pop("digest", None), value.pop("counts", None)
        try:
            value["shards"] = tuple(_shard_info(shard) for shard in value["shards"])
            value["files"] = tuple(FileCount(**file) for file in value["files"])
            manifest = cls(**value)
        except (KeyError, TypeError) as error:
            raise CorpusError(f"{path} lacks or misnames a field: {error}; build the corpus again") from None
        if manifest.digest != digest or manifest.counts() != counts:
            raise CorpusError(f"{path} contradicts itself: it was changed or damaged; build the corpus again")
        return manifest


def _shard_info(stored: Mapping[str, Any]) -> ShardInfo:
    """A shard from its entry in a manifest. Raises: KeyError, TypeError."""
    splits = {name: split for split, name in STORED_NAMES.items()}
    return ShardInfo(**{**stored, "split": splits[stored["split"]]})
