"""Building a token store with Ray Data: readers stream batches of documents, each task tokenizes one batch to a shard.

A single huge compressed file is read by one task but tokenized by all CPUs. Ray Data's backpressure holds the reader
back, so that memory stays bounded. Readers reserve no CPU: they are many times faster than the tokenizer, and a reader
that waits must not keep a tokenizer from running. Only facts about shards travel to the driver, in any order, and are
sorted there; they also lie beside the shards, so that a build that was killed goes on.

    STORE/units/<bundle>-<sequence>.json     shards and counts of one batch of documents, written after its shards

A killed build loses the units that were at work. The folder goes when the manifest is there, which has it all.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import ray.data
from pydantic import TypeAdapter
from ray.data import TaskPoolStrategy
from ray.exceptions import RayError

from bert_core.text.tokenization import Tokenizer
from orchestrator.base.errors import ClusterError, CorpusError
from orchestrator.base.results import DatasetResult
from orchestrator.cluster.capacity import Processes, cluster_resources
from orchestrator.cluster.data_context import MAX_RETRIES, data_context
from orchestrator.cluster.own_errors import own_error
from orchestrator.cluster.shortage import warn_when_stalled
from orchestrator.corpus.document_batches import (
    Bundle,
    Unit,
    no_text,
    of_entry,
    plan_bundles,
    read_batches,
    write_documents,
)
from orchestrator.corpus.document_readers import Document
from orchestrator.corpus.input_files import find_files
from orchestrator.corpus.token_store import MANIFEST, STORED_NAMES, Manifest, TokenStore, store_folder, store_options
from orchestrator.specs import TextSource
from orchestrator.storage import delete, exists, join, names_in, read_bytes, write_bytes

UNITS_FOLDER = "units"
_NUM_THREADS = 16
_UNITS = TypeAdapter(Unit)
_DOCUMENTS = pa.large_list(pa.struct([(name, pa.large_string()) for name in Document._fields]))
_BATCHES_IN_FLIGHT = 2
"""Batches for each CPU: one that is tokenized and one that waits."""

UnitId = tuple[int, int]
"""A unit's bundle, and its number in the bundle."""


def write_unit(folder: str, stem: str, unit: Unit) -> None:
    """Note that a unit's shards are written."""
    with suppress(FileNotFoundError):  # another process has finished the same store, and removed the folder
        write_bytes(join(folder, UNITS_FOLDER, f"{stem}.json"), _UNITS.dump_json(unit))


def read_units(folder: str) -> dict[UnitId, Unit]:
    """The units of a store that an earlier build has finished and whose shards are there."""
    present, units = set(names_in(folder)), dict[UnitId, Unit]()

    def read(name: str) -> None:
        with suppress(OSError, ValueError):  # the file is damaged or no unit
            bundle, sequence = map(int, name.removesuffix(".json").split("-"))
            unit = _UNITS.validate_json(read_bytes(join(folder, UNITS_FOLDER, name)))
            if present.issuperset(shard.file for shard in unit.shards):
                units[bundle, sequence] = unit

    with ThreadPoolExecutor(_NUM_THREADS) as threads:
        threads.map(read, names_in(join(folder, UNITS_FOLDER)))
    return units


def delete_units(folder: str) -> None:
    """Forget the units, once the manifest names their shards; those that cannot be deleted do no harm."""
    with suppress(OSError):  # another build of the same store may be writing there; the next one removes what is left
        delete(join(folder, UNITS_FOLDER))


def unfinished(num_bundles: int, units: Mapping[UnitId, Unit]) -> list[int]:
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
    progress: Callable[[int, int], None] = lambda num_bytes_read, num_bytes: None,
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
    bundles, units = plan_bundles(files, source), read_units(folder)
    todo = unfinished(len(bundles), units)
    # A bundle that was finished in part is read again up to there, which is quick.
    read = partial(read_bundle, bundles=bundles, finished=frozenset(units), source=source, shard_bytes=shard_bytes)
    tokenize = partial(tokenize_batch, folder=folder, tokenizer=tokenizer, validation_fraction=validation_fraction)
    done_bytes, total_bytes = sum(unit.num_bytes_read for unit in units.values()), sum(file.num_bytes for file in files)
    try:
        with warn_when_stalled("no text has been tokenized", Processes(1, {"CPU": 1.0})) as watch:
            for row in _rows(todo, read, tokenize, shard_bytes, num_cpus) if todo else ():
                watch.note()
                unit = units[row["bundle"], row["sequence"]] = _UNITS.validate_json(row["unit"])
                done_bytes += unit.num_bytes_read
                progress(done_bytes, total_bytes)
    except RayError as error:
        raise own_error(error) or ClusterError(
            f"tokenizing failed: {_reason(error)}; where memory ran out, lower shard_bytes, then run again"
        ) from error
    ordered = sorted(units.items())
    shards = tuple(shard for (bundle, _), unit in ordered for shard in of_entry(unit.shards, bundles[bundle], source))
    counts = tuple(file for _, unit in ordered for file in unit.files)
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
        counts |= {name.replace("num_", f"num_{split}_"): count for name, count in manifest.counts(split).items()}
    counts["num_bad_records"] = sum(file.num_bad_records for file in manifest.files)
    return DatasetResult(
        ", ".join(source.files),
        "corpus",
        manifest.fingerprint,
        store.folder,
        counts,
        tuple(manifest.files),
        reused,
        manifest.tokenizer_fingerprint,
    )


def _rows(
    bundles: Sequence[int],
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
            ray.data.from_items([{"id": number} for number in bundles], override_num_blocks=len(bundles))
            .map_batches(read, batch_size=None, num_cpus=0, compute=readers, max_retries=MAX_RETRIES)
            .map_batches(tokenize, batch_size=None, batch_format="pyarrow", num_cpus=1, max_retries=MAX_RETRIES)
        )
    yield from pipeline.iter_rows()


def _reason(error: RayError) -> str:
    """The line of a task's traceback that names the error; Ray's advice may follow it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if re.match(r"[\w.]*(Error|Exception)\b.*: ", line)), lines[-1])


def read_bundle(
    batch: dict[str, Any],
    *,
    bundles: tuple[Bundle, ...],
    finished: frozenset[UnitId],
    source: TextSource,
    shard_bytes: int,
) -> Iterator[pa.Table]:
    """Read bundles of files, in a Ray task: one row for each batch of documents. Raises: CorpusError."""
    for bundle in batch["id"].tolist():
        for sequence, (documents, unit) in enumerate(read_batches(bundles[bundle], source, shard_bytes)):
            if (bundle, sequence) not in finished:
                texts = pa.array([documents], _DOCUMENTS)
                unit_json = [_UNITS.dump_json(unit)]
                yield pa.table({"bundle": [bundle], "sequence": [sequence], "unit": unit_json, "documents": texts})


def tokenize_batch(table: pa.Table, *, folder: str, tokenizer: Tokenizer, validation_fraction: float) -> pa.Table:
    """Tokenize batches, in a Ray task: write a shard of each split for each row, and note and return the unit.

    Raises: CorpusError where the store cannot be written.
    """
    units = []
    for row in table.to_pylist():
        documents = [Document(**document) for document in row["documents"]]
        stem = f"{row['bundle']:06d}-{row['sequence']:06d}"
        try:
            shards = write_documents(documents, folder, stem, tokenizer, validation_fraction)
            unit = replace(_UNITS.validate_json(row["unit"]), shards=tuple(shards))
            if shards or row["sequence"]:  # a bundle without text is read again in no time
                write_unit(folder, stem, unit)
        except OSError as problem:
            raise CorpusError(
                f"the token store {folder} cannot be written: {problem}; make room or choose another storage"
            ) from None
        units.append(_UNITS.dump_json(unit))
    return table.select(["bundle", "sequence"]).append_column("unit", pa.array(units))
