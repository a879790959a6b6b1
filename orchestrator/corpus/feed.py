"""Batches through Ray Data: a worker's steps are built and masked in Ray tasks, one prefetch window after another.

A block is a run of consecutive steps, large enough to be worth a task; a row is one step's part for one rank. A
prefetch window is some blocks, built by one pipeline that runs to its end while the window before it is trained on; how
many they are follows the time that windows take.

Ray's iterators have no position that could be saved: resuming at step k is a window that begins at k, and no batch is
skipped through. One pipeline over the whole run would always be ahead of its reader, and its executor then waits in a
loop that never sleeps: that was seen to take half a core, and the training thread's interpreter with it.
"""

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import ray
import ray.data
from numpy.typing import NDArray
from ray.data import TaskPoolStrategy
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from bert_core.examples.packing import PackedBatch
from orchestrator.cluster.data_context import MAX_RETRIES, data_context
from orchestrator.cluster.own_errors import own_error
from orchestrator.corpus.stream import ExampleStream, StreamConfig

TARGET_S = 5.0
"""Seconds that a window is to last, so that what a pipeline costs at its start is a tenth of them."""
FEWEST_BLOCKS = 8
"""Blocks of the first window of a run."""
BLOCK_TOKENS = 1 << 18
"""Tokens of a block, at most or one step: 2 to 3 MB with labels and lengths."""
_STORE_SHARE = 0.25
"""Share of a node's object store that its workers' windows may take."""
_WINDOWS_AT_A_TIME = 2
Block = TypeVar("Block")
_FIELDS = tuple(PackedBatch.__dataclass_fields__)


class PrefetchPace:
    """Number of blocks of the next prefetch window, from the time that windows take to build and to be trained on.

    A pipeline of Ray Data costs about half a second before its first block, whatever it builds. A window that a fast
    device has done with in less than that starves it. So windows grow, at most to twice the size each time, until one
    lasts `TARGET_S` at the slower of two speeds, the training's and the data tasks', or takes the memory that it may.
    Where the data tasks are slower, longer windows would gain nothing. What a step contains does not depend on windows.
    """

    def __init__(self, max_window_bytes: float = 1e15) -> None:
        self.num_blocks = FEWEST_BLOCKS
        self._max_window_bytes = max_window_bytes

    def note(self, num_blocks: int, num_bytes: int, build_s: float, train_s: float) -> None:
        """Learn from a window that has been trained on. Sizes only grow, as an evaluation makes a window look slow.

        Args:
            build_s: seconds from the start of the window's pipeline to its last block.
            train_s: seconds that its batches were worked on, without waiting for them.
        """
        wanted = math.ceil(TARGET_S * num_blocks / max(train_s, build_s, 1e-9))
        # Blocks of the memory, if they are as large as this window's.
        room = max(1, math.floor(self._max_window_bytes * num_blocks / max(num_bytes, 1)))
        self.num_blocks = min(max(self.num_blocks, min(2 * self.num_blocks, wanted)), room)


def ray_batches(
    stream: ExampleStream,
    first_step: int,
    *,
    rank: int,
    num_workers: int,
    num_cpus: float = 1.0,
    pace: PrefetchPace | None = None,
    reserved_on: str | None = None,
) -> Iterator[tuple[int, PackedBatch]]:
    """A rank's batches from `first_step` to the end of the run, made by Ray Data on `num_cpus`.

    Args:
        reserved_on: Ray's id of the node where the caller has reserved these CPUs, and all tasks run; None lets Ray
            place them.

    Raises: CorpusError, DataError and the like as the tasks raised them; RayError when Ray loses the work.
    """
    pace = pace or PrefetchPace()
    build_block = partial(_build_block, stream=stream, rank=rank, workers=num_workers)
    build = partial(_build_blocks, build_block, num_cpus=num_cpus, reserved_on=reserved_on)
    yield from built_ahead(prefetch_windows(stream.config, first_step, num_workers, pace), build, ray.get, pace)


def prefetch_windows(
    config: StreamConfig, first_step: int, num_workers: int, pace: PrefetchPace
) -> Iterator[tuple[range, int]]:
    """Yield the steps of each prefetch window, and how many of them are a block, to the end of the run.

    A window ends where its phase does: short sequences come in blocks of as many tokens as long ones.
    """
    start = first_step
    while start < config.num_steps:
        phase, first = config.phase_of(start)
        max_seq_length, num_steps, size = config.phases[phase]
        block_steps = max(1, BLOCK_TOKENS * num_workers // (size * max_seq_length))
        stop = min(start + block_steps * pace.num_blocks, first + num_steps)
        yield range(start, stop), block_steps
        start = stop


def built_ahead(
    windows: Iterator[tuple[range, int]],
    build: Callable[[range, int], Sequence[Block]],
    fetch: Callable[[Block], pa.Table],
    pace: PrefetchPace,
) -> Generator[tuple[int, PackedBatch], None, None]:
    """Yield the batches of windows; while one is trained on, a thread builds the next, whose size `pace` says.

    `build` returns the blocks of consecutive steps, so many steps in each.
    """

    def build_timed(steps: range, block_steps: int) -> tuple[Sequence[Block], float]:
        began_at = time.perf_counter()
        return build(steps, block_steps), time.perf_counter() - began_at

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch") as ahead:
        # A generator: it begins a window only when it is asked for the next one.
        begun = (ahead.submit(build_timed, *window) for window in windows)
        current = next(begun, None)
        while current is not None:
            blocks, build_s = current.result()
            current = next(begun, None)
            num_bytes, train_s = 0, 0.0
            for block in blocks:
                table = fetch(block)
                num_bytes += table.nbytes
                for batch in from_table(table):
                    given_at = time.perf_counter()
                    yield batch
                    train_s += time.perf_counter() - given_at
            pace.note(len(blocks), num_bytes, build_s, train_s)


def window_memory(num_local_workers: int) -> float:
    """Bytes that a prefetch window of one of this node's workers may take.

    Each worker has two at a time: the one that is trained on, and the next.
    """
    here = ray.get_runtime_context().get_node_id()
    (node,) = (node for node in ray.nodes() if node["NodeID"] == here)
    return float(_STORE_SHARE * node["Resources"]["object_store_memory"] / (num_local_workers * _WINDOWS_AT_A_TIME))


def _build_blocks(
    build: Any, steps: range, block_steps: int, num_cpus: float, reserved_on: str | None
) -> list["ray.ObjectRef[pa.Table]"]:
    """Build all blocks of consecutive steps. Returns references to them, in order."""
    num_blocks = -(-len(steps) // block_steps)
    build = partial(build, steps=steps, block_steps=block_steps)
    place: dict[str, Any] = {"num_cpus": min(num_cpus, 1.0)}
    if reserved_on is not None:
        there = NodeAffinitySchedulingStrategy(reserved_on, soft=False)
        place = {"num_cpus": 0, "scheduling_strategy": there, "compute": TaskPoolStrategy(max(1, int(num_cpus)))}
    try:
        with data_context(num_cpus) as context:
            context.execution_options.preserve_order = True
            # No task that reads: it would want a whole CPU, whatever share of one this pipeline has.
            numbers = [{"id": number} for number in range(num_blocks)]
            blocks = ray.data.from_items(numbers, override_num_blocks=num_blocks)
            blocks = blocks.map_batches(build, batch_size=None, max_retries=MAX_RETRIES, **place)
            tables: list[ray.ObjectRef[pa.Table]] = blocks.to_arrow_refs()
            return tables
    except RayError as error:
        raise own_error(error) or error from None


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
    """A table of one row per step: the step's number and its arrays as lists."""
    numbered = list(batches)
    columns: dict[str, pa.Array] = {"step": pa.array([step for step, _ in numbered], pa.int64())}
    for name in _FIELDS:
        arrays = [getattr(batch, name) for _, batch in numbered]
        offsets = np.cumsum([0, *map(len, arrays)], dtype=np.int64)
        columns[name] = pa.LargeListArray.from_arrays(offsets, pa.array(np.concatenate(arrays)))
    return pa.table(columns)


def from_table(table: pa.Table) -> Iterator[tuple[int, PackedBatch]]:
    """The batches that `to_table` was given, as views of the table's memory."""
    for chunk in table.to_batches():
        steps = chunk.column("step").to_pylist()
        lists = {name: chunk.column(name) for name in _FIELDS}
        flat = {name: column.values.to_numpy(zero_copy_only=True) for name, column in lists.items()}
        bounds = {name: column.offsets.to_numpy() for name, column in lists.items()}
        for row, step in enumerate(steps):
            arrays = {name: flat[name][bounds[name][row] : bounds[name][row + 1]] for name in _FIELDS}
            yield step, PackedBatch(**arrays)
