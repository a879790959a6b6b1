"""The stream through Ray Data: each worker has a pipeline over its own steps, built and masked in Ray tasks.

A block is a run of consecutive steps, large enough to be worth a task and small enough to keep memory flat; a row is
one step's part for one rank. Ray's iterators have no saved position, so resuming at step k is a new pipeline that
begins at k: no batch is skipped through.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa
import ray.data
from numpy.typing import NDArray

from bert_core.packing import PackedBatch
from orchestrator.corpus.data_context import MAX_RETRIES, data_context
from orchestrator.corpus.stream import ExampleStream

BLOCK_TOKENS = 1 << 18
"""Tokens of a block, about: 2 to 3 MB with labels and lengths."""
BLOCKS_PER_PIPELINE = 1000
"""Ray Data plans every block of a pipeline beforehand; a longer run is a chain of pipelines."""
PIPELINE_MEMORY_BYTES = 64 << 20
"""Object store that a worker's pipeline may fill ahead of the training step."""

_FIELDS: dict[str, np.dtype[np.generic]] = {
    "input_ids": np.dtype(np.int32),
    "token_type_ids": np.dtype(np.int8),
    "cu_seqlens": np.dtype(np.int32),
    "masked_positions": np.dtype(np.int32),
    "masked_labels": np.dtype(np.int32),
    "next_sentence_labels": np.dtype(np.int8),
}


def ray_batches(
    stream: ExampleStream, first_step: int, *, rank: int, num_workers: int, num_cpus: float = 1.0
) -> Iterator[tuple[int, PackedBatch]]:
    """A rank's batches from `first_step` to the end of the run, made by Ray Data on `num_cpus`."""
    config = stream.config
    longest = max(max_seq_length for max_seq_length, _ in config.phases)
    block_steps = max(1, BLOCK_TOKENS * num_workers // (config.global_batch_size * longest))
    leg_steps = block_steps * BLOCKS_PER_PIPELINE
    for start in range(first_step, config.num_steps, leg_steps):
        steps = range(start, min(start + leg_steps, config.num_steps))
        dataset = _pipeline(stream, steps, block_steps, rank, num_workers, num_cpus)
        for table in dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=1):
            yield from from_table(table)


def _pipeline(
    stream: ExampleStream, steps: range, block_steps: int, rank: int, num_workers: int, num_cpus: float
) -> ray.data.Dataset:
    num_blocks = -(-len(steps) // block_steps)
    build = partial(_build_block, stream=stream, steps=steps, block_steps=block_steps, rank=rank, workers=num_workers)
    with data_context(num_cpus, PIPELINE_MEMORY_BYTES) as context:
        context.execution_options.preserve_order = True
        return ray.data.range(num_blocks, override_num_blocks=num_blocks).map_batches(
            build, batch_size=None, num_cpus=min(num_cpus, 1.0), max_retries=MAX_RETRIES
        )


def _build_block(
    batch: dict[str, NDArray[np.int64]],
    *,
    stream: ExampleStream,
    steps: range,
    block_steps: int,
    rank: int,
    workers: int,
) -> pa.Table:
    tables = []
    for block in batch["id"].tolist():
        part = steps[block * block_steps : (block + 1) * block_steps]
        tables.append(to_table(stream.batches(part, rank, workers)))
    return pa.concat_tables(tables)


def to_table(batches: Iterator[tuple[int, PackedBatch]]) -> pa.Table:
    """One row per step: the step's number and its arrays as lists."""
    numbered = list(batches)
    columns: dict[str, pa.Array] = {"step": pa.array([step for step, _ in numbered], pa.int64())}
    for name, dtype in _FIELDS.items():
        arrays = [getattr(batch, name) for _, batch in numbered]
        offsets = np.cumsum([0, *map(len, arrays)], dtype=np.int64)
        values = pa.array(np.concatenate(arrays).astype(dtype, copy=False))
        columns[name] = pa.LargeListArray.from_arrays(offsets, values)
    return pa.table(columns)


def from_table(table: pa.Table) -> Iterator[tuple[int, PackedBatch]]:
    """The rows of `to_table`, as views of the table's memory."""
    for chunk in table.to_batches():
        steps = chunk.column("step").to_pylist()
        lists = {name: chunk.column(name) for name in _FIELDS}
        flat = {name: column.values.to_numpy(zero_copy_only=True) for name, column in lists.items()}
        bounds = {name: column.offsets.to_numpy() for name, column in lists.items()}
        for row, step in enumerate(steps):
            arrays = {name: flat[name][bounds[name][row] : bounds[name][row + 1]] for name in _FIELDS}
            yield step, PackedBatch(**arrays)
