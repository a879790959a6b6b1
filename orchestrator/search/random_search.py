"""Random search: points drawn independently.

Bergstra and Bengio 2012, "Random search for hyper-parameter optimization".
"""

from orchestrator.search.drawn import DrawnSearch


class RandomSearch(DrawnSearch):
    """Points drawn evenly and independently; a draw depends on the seed and the axis's name alone."""

    def share(self, name: str, draw: int) -> float:
        from bert_core.counter_random import derive_key, uniform  # specs import this module, and load no numpy

        return float(uniform(derive_key(self._seed, "search", name), draw))
