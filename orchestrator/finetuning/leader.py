"""Leader of a sweep: the best trial that has ended, in a small file that trials read before they write their weights.

The driver writes the file after the leader is in the journal. A trial that reads it too early, while a better one ends,
writes weights in vain, which the driver deletes; it never leaves out what will be wanted.
"""

from orchestrator.results import TrialResult
from orchestrator.storage import exists, join, read_json, write_json

LEADER = "leader.json"
"""File in the sweep's folder."""


def rank(score: float, number: int) -> tuple[float, int]:
    """Key that sorts trials, the best last: by score (all scores are higher-is-better), then the earlier number."""
    return score, -number


def write_leader(run_folder: str, result: TrialResult, metric: str) -> None:
    """Name the leader."""
    write_json(join(run_folder, LEADER), {"score": result.metrics[metric], "number": result.number})


def may_lead(run_folder: str, score: float, number: int) -> bool:
    """Return whether no trial that has ended is known to be better than one of this score and number."""
    path = join(run_folder, LEADER)
    if not exists(path):
        return True
    leader = read_json(path)
    return rank(score, number) >= rank(leader["score"], leader["number"])
