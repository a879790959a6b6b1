"""The best trial of a sweep, and what it was chosen from."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.registry import Registry
    from orchestrator.registry.records import RunRecord


@dataclass(frozen=True)
class BestTrial:
    """The trial of a sweep that has the best score."""

    id: str
    number: int
    seed: int | None
    settings: Mapping[str, Any]
    """Values of the fields that trials differ in, by path."""
    num_trials: int
    num_scored: int
    """Number of trials that have a score."""
    choice: str
    """Words on what its score was chosen from; empty where it is the only one."""

    @property
    def count_text(self) -> str:
        """Number of trials, and of those with a score, in words."""
        return f"{self.num_trials}, {self.num_scored} with a score"

    @property
    def name_text(self) -> str:
        """Id, number and seed in words."""
        return f"{self.id} (number {self.number}, seed {self.seed})"

    def facts(self, text_of: Callable[[Any], Any] = lambda value: value) -> dict[str, Any]:
        """Facts by name, each setting as `best NAME`.

        Args:
            text_of: turns a setting's value into what is shown.
        """
        return {
            "trials": self.count_text,
            "best trial": self.name_text,
            **({"choice": self.choice} if self.choice else {}),
            **{f"best {name}": text_of(value) for name, value in self.settings.items()},
        }


def find_best_trial(registry: "Registry", run: "RunRecord") -> BestTrial | None:
    """The best trial of a sweep; None where no trial has a score, and for any other run."""
    from orchestrator.registry.groups.scored_trials import choice_words, scored_trials
    from orchestrator.registry.groups.varying_paths import varied_parameters

    rows = registry.trials.table(run.id).records
    scored = scored_trials(rows, str(run.metric))
    if not scored:
        return None
    best = scored[0]
    return BestTrial(
        best["id"],
        best["number"],
        best["seed"],
        {name.removeprefix("params."): best.get(name) for name in varied_parameters(rows)},
        len(rows),
        len(scored),
        choice_words(len(scored)),
    )
