"""A file of lines answered: in this process, or by workers on Ray where some are asked for or a cluster is named."""

from collections.abc import Callable, Iterable, Iterator

from orchestrator.cluster.capacity import cluster_room
from orchestrator.cluster.connection import connect, names_no_cluster
from orchestrator.cluster.nodes import Processes
from orchestrator.errors import ClusterError, InputError
from orchestrator.inference.blocks import LinePredictor, PredictedBlock, line_blocks, predict_blocks
from orchestrator.nearest import no_file
from orchestrator.progress import counted
from orchestrator.settings import Settings
from orchestrator.storage import exists
from orchestrator.storage.text_lines import stream_lines


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
    from orchestrator.inference.workers import predict_on_ray

    with connect(settings, num_cpus=num_workers or 1):
        count = _fitting(num_workers, num_gpus)
        on_progress(f"{counted(count, 'worker')} on Ray")
        yield from predict_on_ray(load, folder, file, count, num_gpus, read)


def _fitting(num_workers: int | None, num_gpus: float) -> int:
    """Number of workers: those asked for, or as many as the nodes that are up hold, or one. Raises: ClusterError."""
    each = {"CPU": 1.0} | ({"GPU": num_gpus} if num_gpus else {})
    room = cluster_room(Processes(1, each))
    if room.grown < (num_workers or 1):
        gpus = f" and {num_gpus:g} GPUs" if num_gpus else ""
        raise ClusterError(
            f"{num_workers or 1} workers are asked for, each with 1 CPU{gpus}; there is room for {room.grown}. "
            "Lower --workers or --gpus-per-worker, or use a larger cluster with --address"
        )
    return num_workers or room.now or 1
