"""Search algorithms, which choose the points of a sweep's space, and schedulers, which end weak trials early.

A search algorithm implements `base.Search` in a file of its own and stands in the list below; `drawn.DrawnSearch` has
the common part of those that draw points without looking at scores. A scheduler stands in `schedulers`.
Specs take their allowed names from these lists, so this package imports neither specs nor Ray.
"""

from collections.abc import Mapping

from orchestrator.search.base import Search
from orchestrator.search.grid import GridSearch
from orchestrator.search.halton import HaltonSearch
from orchestrator.search.optuna_tpe import OptunaSearch
from orchestrator.search.random_search import RandomSearch

SEARCHES: Mapping[str, type[Search]] = {
    "grid": GridSearch,
    "random": RandomSearch,
    "halton": HaltonSearch,
    "optuna": OptunaSearch,
}
"""Every search algorithm by the name that a spec's `search` gives it."""
