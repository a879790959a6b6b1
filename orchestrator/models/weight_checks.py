"""Check of a model's weights before anything is started with them."""

from bert_core.checkpoints.pretrained import read_weights
from orchestrator.storage.uris import is_local, local_path


def check_weights(folder: str) -> None:
    """Read the weights of a model folder on this machine's disks; those elsewhere are first read by who loads them.

    Raises: CheckpointError, as loading the model does.
    """
    if is_local(folder):
        read_weights(local_path(folder))
