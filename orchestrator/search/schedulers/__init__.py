"""Schedulers: what becomes of weak trials. One file each; the list has them by the name that a spec gives.

They live beside the search algorithms rather than with the code that runs Ray Tune, because specs need their names and
must not reach Ray, not even through an import inside a function.
"""

from collections.abc import Mapping

from orchestrator.search.schedulers.asha import Asha
from orchestrator.search.schedulers.base import Scheduler
from orchestrator.search.schedulers.hyperband import HyperBand
from orchestrator.search.schedulers.no_pruning import NoPruning
from orchestrator.search.schedulers.pbt import PopulationBasedTraining

SCHEDULERS: Mapping[str, Scheduler] = {
    "none": NoPruning(),
    "asha": Asha(),
    "hyperband": HyperBand(),
    "pbt": PopulationBasedTraining(),
}
"""Every scheduler by the name that a spec's `scheduler` gives it."""
