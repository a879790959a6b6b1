"""Digests of the data that a run learns from or is scored on, as the registry records them."""

from collections.abc import Iterable

from orchestrator.registry.parameters import RECORDED_DIGITS
from orchestrator.results import Split
from orchestrator.tasks import Task


def data_digests(task: Task, splits: Iterable[Split]) -> dict[str, str]:
    """Digests of splits by name: of the examples, of the file, and of the whole split where a limit takes a part.

    The leaderboard ranks scores on the same examples together. By the others it knows a model that learned from some of
    the examples that another run is scored on.
    """
    digests: dict[str, str] = {}
    for split in splits:
        taken, whole, file = task.digests(split)
        digests |= {split: taken, f"{split}_file": file}
        if whole != taken:
            digests[f"{split}_whole"] = whole
    return {name: digest[:RECORDED_DIGITS] for name, digest in digests.items()}
