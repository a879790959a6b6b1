"""Units of a token store that are finished: a small file for each, written after its shards, so that a build goes on.

    STORE/units/<bundle>-<sequence>.json     shards and counts of one batch of documents

A killed build loses the units that were at work. The folder goes when the manifest is there, which has it all. No Ray.
"""

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Self

from orchestrator.corpus.manifest import ShardInfo
from orchestrator.results import FileCount
from orchestrator.storage import delete, join, names_in, read_bytes, write_bytes

FOLDER = "units"
_NUM_THREADS = 16

Place = tuple[int, int]
"""A unit's bundle, and its number in the bundle."""


@dataclass(frozen=True)
class FinishedUnit:
    """Facts about one batch of documents whose shards are written."""

    shards: tuple[ShardInfo, ...]
    files: tuple[FileCount, ...]
    """Counts of the files that ended within the batch."""
    num_bytes_read: int
    is_last: bool
    """Whether no batch of the bundle comes after it."""

    def to_json(self) -> str:
        """The unit as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote. Raises: ValueError, KeyError, TypeError for another text."""
        value = json.loads(text)
        shards = tuple(ShardInfo(**shard) for shard in value["shards"])
        files = tuple(FileCount(**file) for file in value["files"])
        return cls(shards, files, int(value["num_bytes_read"]), bool(value["is_last"]))


def stem(place: Place) -> str:
    """Beginning of the names of a unit's files."""
    bundle, sequence = place
    return f"{bundle:06d}-{sequence:06d}"


def write_unit(folder: str, place: Place, unit: FinishedUnit) -> None:
    """Note that a unit's shards are written."""
    with suppress(FileNotFoundError):  # another process has finished the same store, and removed the folder
        write_bytes(join(folder, FOLDER, f"{stem(place)}.json"), unit.to_json().encode())


def read_units(folder: str) -> dict[Place, FinishedUnit]:
    """The units of a store that an earlier build has finished and whose shards are there."""
    names = names_in(join(folder, FOLDER))
    present = set(names_in(folder)) if names else set()
    with ThreadPoolExecutor(_NUM_THREADS) as threads:
        found = [unit for unit in threads.map(lambda name: _read(folder, name), names) if unit is not None]
    return {place: unit for place, unit in found if all(shard.file in present for shard in unit.shards)}


def _read(folder: str, name: str) -> tuple[Place, FinishedUnit] | None:
    """A unit by the name of its file; None for a file that is none, or is damaged."""
    try:
        bundle, sequence = map(int, name.removesuffix(".json").split("-"))
        return (bundle, sequence), FinishedUnit.from_json(read_bytes(join(folder, FOLDER, name)))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def delete_units(folder: str) -> None:
    """Forget the units, once the manifest names their shards; those that cannot be deleted do no harm."""
    with suppress(OSError):  # another build of the same store may be writing there; the next one removes what is left
        delete(join(folder, FOLDER))


def unfinished(num_bundles: int, units: Mapping[Place, FinishedUnit]) -> list[int]:
    """The bundles that have to be read: those of which a unit is missing, or of which the last one is not known."""
    return [bundle for bundle in range(num_bundles) if not _is_finished(bundle, units)]


def _is_finished(bundle: int, units: Mapping[Place, FinishedUnit]) -> bool:
    sequence = 0
    while unit := units.get((bundle, sequence)):
        if unit.is_last:
            return True
        sequence += 1
    return False


def in_order(units: Mapping[Place, FinishedUnit]) -> Iterable[FinishedUnit]:
    """The units in the order of the corpus."""
    return (units[place] for place in sorted(units))
