"""Answers to a file of lines, by this process, or by workers on Ray where some are asked for or a cluster is named.

On Ray one task of Ray Data reads the file, and workers that hold the model answer, in order. Errors that a person can
mend travel as values among the answers: so the first one of the file is raised, after all answers before it, whichever
worker was faster. Any other error ends the work where it happens. What a worker warns of travels with its answers.
"""

import logging
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.base.console import attached, counted
from orchestrator.base.errors import ClusterError, InputError
from orchestrator.base.nearest import no_file
from orchestrator.base.settings import Settings
from orchestrator.cluster.capacity import Processes, cluster_room, connected_nodes, room_for
from orchestrator.cluster.connection import connect, names_no_cluster
from orchestrator.cluster.own_errors import OWN_ERRORS, OwnError, last_line
from orchestrator.cluster.process_warnings import CollectedWarnings
from orchestrator.cluster.shortage import warn_when_stalled
from orchestrator.inference.line_blocks import LineBlock, LinePredictor, PredictedBlock, line_blocks, predict_blocks
from orchestrator.storage import exists
from orchestrator.storage.text_lines import stream_lines
from orchestrator.storage.uris import absolute

if TYPE_CHECKING:
    import ray.data

BYTES_PER_WORKER = 64 << 20
"""Bytes of blocks and answers on their way, about; the reader waits where it is ahead of its workers by more."""

RayBatch = dict[str, NDArray[np.object_]]
logger = logging.getLogger(__name__)


def predict_file(
    load: Callable[[str], LinePredictor],
    folder: str,
    file: str,
    settings: Settings,
    num_workers: int | None = None,
    num_gpus: float = 0.0,
    on_progress: Callable[[str], None] = lambda line: None,
    read: Callable[[str], Iterable[str]] = stream_lines,
) -> Iterator[PredictedBlock]:
    """The answers to a file's blocks, in order; the same bytes from this process and from any number of workers.

    Args:
        load: function that makes the model of `folder`: `Predictor.load`, `LineEmbedder.load`.
        num_workers: number of workers; when None, as many as the cluster of `settings.address` has room for, or this
            process alone where no cluster is named.
        num_gpus: GPUs of each worker, beside one CPU.
        on_progress: called with a line that says how many workers there are.
        read: function that reads the file of a path as lines, here or on a worker.

    Raises: InputError, naming file and line; CheckpointError, TokenizerError; ClusterError.
    """
    if not exists(file):
        raise InputError(no_file(file))
    if num_workers is None and names_no_cluster(settings):
        yield from predict_blocks(load(folder), line_blocks(read(file)), file)
        return
    with connect(settings, num_cpus=num_workers or 1):
        count = _fitting_workers(num_workers, num_gpus)
        on_progress(f"{counted(count, 'worker')} on Ray")
        yield from predict_on_ray(load, folder, file, count, num_gpus, read)


def _fitting_workers(num_workers: int | None, num_gpus: float) -> int:
    """Number of workers: those asked for, or as many as the nodes that are up hold, or one. Raises: ClusterError."""
    room = cluster_room(_needed(num_gpus))
    if room < (num_workers or 1):
        gpus = f" and {num_gpus:g} GPUs" if num_gpus else ""
        raise ClusterError(
            f"{num_workers or 1} workers are asked for, each with 1 CPU{gpus}; there is room for {room}. "
            "Lower --workers or --gpus-per-worker, or use a larger cluster with --address"
        )
    return num_workers or room_for(_needed(num_gpus), connected_nodes()) or 1


def _needed(num_gpus: float) -> Processes:
    return Processes(1, {"CPU": 1.0} | ({"GPU": num_gpus} if num_gpus else {}))


def predict_on_ray(
    load: Callable[[str], LinePredictor],
    folder: str,
    file: str,
    num_workers: int,
    num_gpus: float = 0.0,
    read: Callable[[str], Iterable[str]] = stream_lines,
) -> Iterator[PredictedBlock]:
    """The answers to a file's blocks as `predict_file` gives them, by the Ray that is connected.

    Workers' warnings are logged here, each once.

    Raises: InputError, CheckpointError and the like as a worker raised them; ClusterError when Ray loses the work.
    """
    from ray.exceptions import RayError

    predicted = _pipeline(load, folder, file, num_workers, num_gpus, read)
    try:
        with warn_when_stalled("no line has been answered", _needed(num_gpus)) as watch:
            for answer in _answers(predicted.iter_rows()):
                watch.note()
                yield answer
    except RayError as error:
        raise ClusterError(f"a worker failed: {last_line(error)}; where memory ran out, use fewer --workers") from error


def _pipeline(
    load: Callable[[str], LinePredictor],
    folder: str,
    file: str,
    num_workers: int,
    num_gpus: float,
    read: Callable[[str], Iterable[str]],
) -> "ray.data.Dataset":
    """Make the pipeline of Ray Data: one task that reads, and the workers; its rows are answers with warnings."""
    import ray.data
    from ray.data import ActorPoolStrategy, TaskPoolStrategy

    from orchestrator.cluster.data_context import MAX_RETRIES, data_context

    with data_context(num_workers, num_workers * BYTES_PER_WORKER) as context:
        context.execution_options.preserve_order = True
        context.target_max_block_size = 1  # every block of lines is a block of Ray's, and so a task
        return (
            ray.data.from_items([absolute(file)])  # no task that reads, which would want a CPU
            .map_batches(
                _read,
                fn_args=(read,),
                batch_size=None,
                num_cpus=0,
                compute=TaskPoolStrategy(size=1),
                max_retries=MAX_RETRIES,
            )
            .map_batches(
                _Worker,
                fn_constructor_args=(load, absolute(folder), file),
                batch_size=None,
                num_cpus=1,
                num_gpus=num_gpus,
                # All begin at once, and the first one up leaves blocks to the others; a short file has none for some.
                compute=ActorPoolStrategy(
                    min_size=1, max_size=num_workers, initial_size=num_workers, max_tasks_in_flight_per_actor=2
                ),
                max_task_retries=MAX_RETRIES,
            )
        )


def _answers(rows: Iterable[Mapping[str, Any]]) -> Iterator[PredictedBlock]:
    """The answers of workers, whose warnings are logged, each text once. Raises: the first error among the answers."""
    told: set[str] = set()
    for row in rows:
        answer, warnings = row["item"]
        for text in (warning for warning in warnings if warning not in told):
            logger.warning(text)
        told.update(warnings)
        if isinstance(answer, Exception):
            raise answer
        yield answer


def _read(batch: RayBatch, read: Callable[[str], Iterable[str]]) -> Iterator[RayBatch]:
    """The file's blocks, one after the other, and what was wrong with it."""
    (file,) = batch["item"]
    try:
        _check_reachable(file)
        for block in line_blocks(read(file)):
            yield _batch(block)
    except InputError as error:
        yield _batch(error)


class _Worker:
    """Holds the model, or what was wrong with it; what it warns of goes with its next answer."""

    def __init__(self, load: Callable[[str], LinePredictor], folder: str, file: str) -> None:
        self._file = file
        self._warnings = CollectedWarnings()
        self._predictor: LinePredictor | OwnError
        with attached(self._warnings):
            try:
                _check_reachable(folder)
                self._predictor = load(folder)
            except OWN_ERRORS as error:
                self._predictor = error

    def __call__(self, batch: RayBatch) -> RayBatch:
        (item,) = batch["item"]
        with attached(self._warnings):
            answer = self._answer(item)
        return _batch((answer, self._warnings.take()))

    def _answer(self, item: LineBlock | OwnError) -> PredictedBlock | OwnError:
        if isinstance(self._predictor, Exception):
            return self._predictor
        if isinstance(item, Exception):
            return item
        try:
            (predicted,) = predict_blocks(self._predictor, [item], self._file)
        except OWN_ERRORS as error:
            return error
        return predicted


def _check_reachable(path: str) -> None:
    if not exists(path):
        raise InputError(
            f"{path} is not on {socket.gethostname()}, where it is to be read: every node of the cluster must reach "
            "it; put it on the --storage, or leave --workers and --address out"
        )


def _batch(item: object) -> RayBatch:
    items = np.empty(1, dtype=object)
    items[0] = item
    return {"item": items}
