"""Blocks of lines answered by Ray Data: one task reads the file, workers that hold the model answer, in order.

Errors that a person can mend travel as values among the answers: so the first one of the file is raised, after all
answers before it, whichever worker was faster. Any other error ends the work where it happens. What a worker warns of
travels with its answers.
"""

import logging
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import ray.data
from numpy.typing import NDArray
from ray.data import ActorPoolStrategy, TaskPoolStrategy
from ray.exceptions import RayError

from orchestrator.cluster.data_context import MAX_RETRIES, data_context
from orchestrator.cluster.nodes import Processes
from orchestrator.cluster.remote_call import CollectedWarnings, WarningRelay, WithWarnings
from orchestrator.cluster.shortage import telling_silence
from orchestrator.errors import OWN_ERRORS, ClusterError, InputError, OwnError, last_line
from orchestrator.inference.blocks import LineBlock, LinePredictor, PredictedBlock, line_blocks, predict_blocks
from orchestrator.progress import attached
from orchestrator.storage import exists
from orchestrator.storage.text_lines import stream_lines
from orchestrator.storage.uris import absolute
from orchestrator.training.cards import new_card_notes

BYTES_PER_WORKER = 64 << 20
"""Bytes of blocks and answers on their way, about; the reader waits where it is ahead of its workers by more."""

RayBatch = dict[str, NDArray[np.object_]]
logger = logging.getLogger(__name__)


def predict_on_ray(
    load: Callable[[str], LinePredictor],
    folder: str,
    file: str,
    num_workers: int,
    num_gpus: float = 0.0,
    read: Callable[[str], Iterable[str]] = stream_lines,
) -> Iterator[PredictedBlock]:
    """The answers to a file's blocks, in order, by the connected Ray; workers' warnings are logged here, each once.

    Args:
        load: makes the model of `folder`, once in each worker.
        num_gpus: of each worker, beside one CPU.
        read: reads the file of a path as lines.

    Raises: InputError, CheckpointError and the like as a worker raised them; ClusterError when Ray loses the work.
    """
    with data_context(num_workers, num_workers * BYTES_PER_WORKER) as context:
        context.execution_options.preserve_order = True
        context.target_max_block_size = 1  # every block of lines is a block of Ray's, and so a task
        predicted = (
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
                fn_constructor_kwargs={
                    "device": "cuda" if num_gpus else "cpu",
                    "shares_card": num_workers > 1 and num_gpus % 1 > 0,
                },
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
    worker = {"CPU": 1.0} | ({"GPU": num_gpus} if num_gpus else {})
    try:
        with telling_silence("no line has been answered", Processes(1, worker)) as silence:
            for answer in _answers(predicted.iter_rows()):
                silence.note()
                yield answer
    except RayError as error:
        raise ClusterError(f"a worker failed: {last_line(error)}; where memory ran out, use fewer --workers") from error


def _answers(rows: Iterable[Mapping[str, WithWarnings[PredictedBlock | OwnError]]]) -> Iterator[PredictedBlock]:
    """The answers of workers, whose warnings are logged. Raises: the first error among the answers."""
    relay = WarningRelay()
    for row in rows:
        answer = relay.receive(row["item"])
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

    def __init__(
        self, load: Callable[[str], LinePredictor], folder: str, file: str, *, device: str, shares_card: bool
    ) -> None:
        self._file = file
        self._warnings = CollectedWarnings()
        self._predictor: LinePredictor | OwnError
        with attached(self._warnings):
            # Before the model is loaded, which would tell of the other workers on the card as well.
            for note in new_card_notes(device, is_shared=shares_card):
                logger.warning(note)
            try:
                _check_reachable(folder)
                self._predictor = load(folder)
            except OWN_ERRORS as error:
                self._predictor = error

    def __call__(self, batch: RayBatch) -> RayBatch:
        (item,) = batch["item"]
        with attached(self._warnings):
            answer = self._answer(item)
        return _batch(WithWarnings(answer, self._warnings.take()))

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
