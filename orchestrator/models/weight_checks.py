"""Check of a model's weights before anything is started with them."""

from bert_core.model import BertModel
from orchestrator.storage import local_copy
from orchestrator.storage.hub import check_size, is_hub
from orchestrator.storage.uris import is_local


def check_weights(folder: str) -> None:
    """Read the weights of a model folder on this machine's disks; those elsewhere are first read by who loads them.

    Raises: CheckpointError, as loading the model does; InputError for one that is too large to be fetched from the hub.
    """
    if is_local(folder) or (is_hub(folder) and not check_size(folder)):
        BertModel.from_pretrained(local_copy(folder), seed=None)  # takes no memory for a model
