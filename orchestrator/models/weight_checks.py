"""Check of a model's weights before anything is started with them."""

from bert_core.checkpoints.pretrained import read_weights
from orchestrator.storage import local_copy
from orchestrator.storage.hub import check_size, is_hub
from orchestrator.storage.uris import is_local


def check_weights(folder: str, *, fetch: bool = False) -> None:
    """Read the weights of a model folder where that costs no download; those elsewhere are read by who loads them.

    Of the hub's models that are not in its cache, the size is checked.

    Args:
        fetch: whether to download them from the hub.

    Raises: CheckpointError, as loading the model does; InputError for a model that is too large.
    """
    if is_local(folder) or (is_hub(folder) and (not check_size(folder) or fetch)):
        read_weights(local_copy(folder))
