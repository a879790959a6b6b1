"""Building a token store with Ray Data: readers stream batches of documents, each task tokenizes one batch to a shard.

A single huge compressed file is read by one task but tokenized by all CPUs. Ray Data's backpressure holds the reader
back, so that memory stays bounded. Readers reserve no CPU: they are many times faster than the tokenizer, and a reader
that waits must not keep a tokenizer from running. Only facts about shards travel to the driver, in any order, and are
sorted there; they also lie beside the shards, so that a build that was killed goes on. An error in
a task travels as a message, so that a person sees the message alone.

    STORE/units/<bundle>-<sequence>.json     shards and counts of one batch of documents, written after its shards

A killed build loses the units that were at work. The folder goes when the manifest is there, which has it all.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Self

import pyarrow as pa
import ray.data
from ray.data import TaskPoolStrategy
from ray.exceptions import RayError

from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import ClusterError, CorpusError
from orchestrator.base.results import DatasetResult, FileCount
from orchestrator.cluster.capacity import Processes, cluster_resources
from orchestrator.cluster.data_context import MAX_RETRIES, data_context
from orchestrator.cluster.shortage import warn_when_stalled
from orchestrator.corpus.document_batches import (
    Bundle,
    DocumentBatch,
    no_text,
    of_entry,
    plan_bundles,
    read_batches,
    write_documents,
)
from orchestrator.corpus.document_readers import Document
from orchestrator.corpus.input_files import InputFile, find_files
from orchestrator.corpus.token_store import (
    COUNT_NAMES,
    MANIFEST,
    STORED_NAMES,
    Manifest,
    ShardInfo,
    TokenStore,
    store_folder,
    store_options,
)
from orchestrator.specs import TextSource
from orchestrator.storage import delete, exists, join, names_in, read_bytes, write_bytes

UNITS_FOLDER = "units"
_NUM_THREADS = 16

UnitId = tuple[int, int]
"""A unit's bundle, and its number in the bundle."""
_BATCHES_IN_FLIGHT = 2
"""Batches for each CPU: one that is tokenized and one that waits."""
OnBytesRead = Callable[[int, int], None]
"""A function that takes the bytes read so far and the bytes of all files."""


@dataclass(frozen=True)
class FinishedUnit:
    """Facts about one batch of documents whose shards are written."""

    shards: tuple[ShardInfo, ...]
    files: tuple[FileCount, ...]
    num_bytes_read: int
    is_last: bool

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote. Raises: ValueError, KeyError, TypeError for another text."""
        value = json.loads(text)
        shards = tuple(ShardInfo(**shard) for shard in value["shards"])
        files = tuple(FileCount(**file) for file in value["files"])
        return cls(shards, files, int(value["num_bytes_read"]), bool(value["is_last"]))


def stem(unit_id: UnitId) -> str:
    """Beginning of the names of a unit's files."""
    bundle, sequence = unit_id
    return f"{bundle:06d}-{sequence:06d}"


def write_unit(folder: str, unit_id: UnitId, unit: FinishedUnit) -> None:
    """Note that a unit's shards are written."""
    with suppress(FileNotFoundError):  # another process has finished the same store, and removed the folder
        write_bytes(join(folder, UNITS_FOLDER, f"{stem(unit_id)}.json"), unit.to_json().encode())


def read_units(folder: str) -> dict[UnitId, FinishedUnit]:
    """The units of a store that an earlier build has finished and whose shards are there."""
    names = names_in(join(folder, UNITS_FOLDER))
    present = set(names_in(folder)) if names else set()
    with ThreadPoolExecutor(_NUM_THREADS) as threads:
        found = [unit for unit in threads.map(lambda name: _read(folder, name), names) if unit is not None]
    return {unit_id: unit for unit_id, unit in found if all(shard.file in present for shard in unit.shards)}


def _read(folder: str, name: str) -> tuple[UnitId, FinishedUnit] | None:
    """Read a unit by the name of its file; None where the file is damaged or no unit."""
    try:
        bundle, sequence = map(int, name.removesuffix(".json").split("-"))
        return (bundle, sequence), FinishedUnit.from_json(read_bytes(join(folder, UNITS_FOLDER, name)))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def delete_units(folder: str) -> None:
    """Forget the units, once the manifest names their shards; those that cannot be deleted do no harm."""
    with suppress(OSError):  # another build of the same store may be writing there; the next one removes what is left
        delete(join(folder, UNITS_FOLDER))


def unfinished(num_bundles: int, units: Mapping[UnitId, FinishedUnit]) -> list[int]:
    """Numbers of the bundles to read: a unit is missing, or the last unit is not known."""
    last = {bundle: number for (bundle, number), unit in units.items() if unit.is_last}
    return [
        bundle
        for bundle in range(num_bundles)
        if bundle not in last or not all((bundle, number) in units for number in range(last[bundle]))
    ]


def build_token_store(
    source: TextSource,
    tokenizer: Tokenizer,
    validation_fraction: float,
    shard_bytes: int,
    storage: str,
    num_cpus: int | None = None,
    progress: OnBytesRead = lambda done_bytes, total_bytes: None,
) -> DatasetResult:
    """Tokenize a corpus into STORAGE/corpora/KEY, unless the same store is there already.

    Raises: CorpusError for text that is missing, empty or broken; ClusterError when Ray loses the work.
    """
    files = find_files(source)
    options = store_options(source, tokenizer, validation_fraction, shard_bytes)
    folder = store_folder(storage, options, files)
    if exists(join(folder, MANIFEST)):
        delete_units(folder)  # which another build may have left, or may be writing in vain
        return _result(TokenStore.open(folder), source, reused=True)
    # The files of an interrupted build are not deleted: what it finished is used, the same shards are written over the
    # rest, and another process that builds the same store right now loses nothing.
    tokenize = partial(tokenize_batch, folder=folder, tokenizer=tokenizer, validation_fraction=validation_fraction)
    shards, counts = _run(files, source, shard_bytes, folder, tokenize, num_cpus, progress)
    manifest = Manifest(tokenizer.fingerprint, tokenizer.vocab_size, options, shards, counts)
    if not shards:
        raise no_text(source)
    if not manifest.counts("train")["num_documents"]:
        raise CorpusError(
            f"validation_fraction {validation_fraction} leaves no document for training; lower it or add text"
        )
    store = TokenStore(folder, manifest).write_lengths()
    store.manifest.save(folder)
    delete_units(folder)
    return _result(store, source, reused=False)


def _result(store: TokenStore, source: TextSource, reused: bool) -> DatasetResult:
    manifest = store.manifest
    counts = manifest.counts() | {"num_shards": len(manifest.shards)}
    for split in STORED_NAMES:
        of_split = manifest.counts(split)
        counts |= {name.replace("num_", f"num_{split}_"): of_split[name] for name in COUNT_NAMES}
    counts["num_bad_records"] = sum(file.num_bad_records for file in manifest.files)
    name = ", ".join(source.files)
    files, tokenizer_digest = tuple(manifest.files), manifest.tokenizer_fingerprint
    return DatasetResult(
        name, "corpus", manifest.fingerprint, store.folder, counts, files, reused, tokenizer_digest=tokenizer_digest
    )


def _run(
    files: tuple[InputFile, ...],
    source: TextSource,
    shard_bytes: int,
    folder: str,
    tokenize: Callable[[pa.Table], pa.Table],
    num_cpus: int | None,
    progress: OnBytesRead,
) -> tuple[tuple[ShardInfo, ...], tuple[FileCount, ...]]:
    """All shards and all counts of files, in the order of the corpus; only what no earlier build has finished is done.

    A bundle that was finished in part is read again up to there, which is quick; its units are not tokenized again.
    """
    bundles = plan_bundles(files, source)
    units = read_units(folder)
    todo = unfinished(len(bundles), units)
    read = partial(
        read_bundle, bundles=bundles, todo=todo, finished=frozenset(units), source=source, shard_bytes=shard_bytes
    )
    done_bytes, total_bytes = sum(unit.num_bytes_read for unit in units.values()), sum(file.num_bytes for file in files)
    try:
        with warn_when_stalled("no text has been tokenized", Processes(1, {"CPU": 1.0})) as watch:
            for row in _rows(len(todo), read, tokenize, shard_bytes, num_cpus) if todo else ():
                watch.note()
                if row["error"]:
                    raise CorpusError(row["error"])
                unit = FinishedUnit.from_json(row["facts"])
                units[row["bundle"], row["sequence"]] = unit
                done_bytes += unit.num_bytes_read
                progress(done_bytes, total_bytes)
    except RayError as error:
        raise ClusterError(
            f"tokenizing failed: {_reason(error)}; where memory ran out, lower shard_bytes, then run again"
        ) from error
    ordered = sorted(units.items())
    shards = tuple(shard for (bundle, _), unit in ordered for shard in of_entry(unit.shards, bundles[bundle], source))
    return shards, tuple(file for _, unit in ordered for file in unit.files)


def _rows(
    num_bundles: int,
    read: Callable[[dict[str, Any]], Iterator[pa.Table]],
    tokenize: Callable[[pa.Table], pa.Table],
    shard_bytes: int,
    num_cpus: int | None,
) -> Iterator[dict[str, Any]]:
    """The rows that `tokenize` returns for the batches of the bundles, in any order."""
    cpus = num_cpus or int(cluster_resources().get("CPU", 1))
    object_store_memory = (1 + cpus * _BATCHES_IN_FLIGHT) * max(shard_bytes, 1 << 20) * 2
    with data_context(cpus, object_store_memory) as context:
        context.target_max_block_size = 1  # every batch is a block, and so a task, of its own
        # With a pool of its own for reading, Ray Data does not fuse it with tokenizing.
        readers = TaskPoolStrategy(size=1 + cpus // 8)
        pipeline = (
            # Not ray.data.range: each of its tasks would want a whole CPU before any text is read.
            ray.data.from_items([{"id": number} for number in range(num_bundles)], override_num_blocks=num_bundles)
            .map_batches(read, batch_size=None, num_cpus=0, compute=readers, max_retries=MAX_RETRIES)
            .map_batches(tokenize, batch_size=None, batch_format="pyarrow", num_cpus=1, max_retries=MAX_RETRIES)
        )
    yield from pipeline.iter_rows()


def _reason(error: RayError) -> str:
    """The line of a task's traceback that names the error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if re.match(r"[\w.]*(Error|Exception)\b.*: ", line)), lines[-1])


def read_bundle(
    batch: dict[str, Any],
    *,
    bundles: tuple[Bundle, ...],
    todo: Sequence[int],
    finished: frozenset[UnitId],
    source: TextSource,
    shard_bytes: int,
) -> Iterator[pa.Table]:
    """Read bundles of files, in a Ray task: one row for each batch of documents; an error is a row, too."""
    for bundle in (todo[number] for number in batch["id"].tolist()):
        sequence = 0
        try:
            for unit in read_batches(bundles[bundle], source, shard_bytes):
                if (bundle, sequence) not in finished:
                    yield _to_row(bundle, sequence, unit, "")
                sequence += 1
        except CorpusError as error:
            yield _to_row(bundle, sequence, DocumentBatch((), 0, ()), str(error))


def _to_row(bundle: int, sequence: int, unit: DocumentBatch, error: str) -> pa.Table:
    strings = pa.large_list(pa.large_string())
    return pa.table(
        {
            "bundle": [bundle],
            "sequence": [sequence],
            "error": [error],
            "facts": [FinishedUnit((), tuple(unit.files), unit.num_bytes_read, unit.is_last).to_json()],
            "ids": pa.array([[document.id for document in unit.documents]], strings),
            "texts": pa.array([[document.text for document in unit.documents]], strings),
            "languages": pa.array([[document.language for document in unit.documents]], strings),
        }
    )


def tokenize_batch(table: pa.Table, *, folder: str, tokenizer: Tokenizer, validation_fraction: float) -> pa.Table:
    """Tokenize batches, in a Ray task: write a shard of each split for each row, and give and note the facts."""
    facts, errors = [], []
    for row in table.to_batches(max_chunksize=1):
        columns = (row[name].flatten().to_pylist() for name in ("ids", "texts", "languages"))
        documents = [Document(*values) for values in zip(*columns, strict=True)]
        unit_id = row["bundle"][0].as_py(), row["sequence"][0].as_py()
        unit, error = FinishedUnit.from_json(row["facts"][0].as_py()), row["error"][0].as_py()
        try:
            shards = write_documents(documents, folder, stem(unit_id), tokenizer, validation_fraction)
            unit = replace(unit, shards=tuple(shards))
            if not error and (shards or unit_id[1]):  # a bundle without text is read again in no time
                write_unit(folder, unit_id, unit)
        except OSError as problem:
            error = f"the token store {folder} cannot be written: {problem}; make room or choose another storage"
        facts.append(unit.to_json())
        errors.append(error)
    kept = table.select(["bundle", "sequence"])
    return kept.append_column("facts", pa.array(facts)).append_column("error", pa.array(errors))
