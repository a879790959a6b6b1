"""Published numbers: the tables `numbers.csv` and `sources.yaml` beside this file, as frozen values."""

import csv
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

_PARAMETERS_PER_MILLION = 1_000_000


class Chosen(StrEnum):
    """Ways in which a source came to its number."""

    ONE_RUN = "one_run"
    BEST_OF_GRID = "best_of_grid"
    """The recipe was chosen on the validation split."""
    BEST_OF_RESTARTS = "best_of_restarts"
    """The best of several seeds on the validation split."""
    MEAN_OF_SEEDS = "mean_of_seeds"
    MEAN_OF_RESTARTS = "mean_of_restarts"
    MEAN_OF_PRETRAININGS = "mean_of_pretrainings"
    MEDIAN_OF_RUNS = "median_of_runs"
    UNSTATED = "unstated"

    @property
    def words(self) -> str:
        """The way as a person reads it."""
        return self.value.replace("_", " ")


@dataclass(frozen=True)
class Source:
    """A place where numbers were published."""

    key: str
    title: str
    url: str
    read: str
    """Either `source`, or `transcription` for what was read elsewhere."""
    protocol: str = ""


@dataclass(frozen=True)
class PublishedModel:
    """A model that numbers were published of."""

    name: str
    num_parameters: int | None = None
    """Parameters of the encoder with its pooler; None where the source does not tell."""
    layers: int | None = None
    hidden_size: int | None = None


@dataclass(frozen=True)
class PublishedNumber:
    """A score as somebody published it, a fraction from 0 to 1 (correlations from −1)."""

    model: PublishedModel
    task: str
    split: str
    metric: str | None
    """Name of the score; None where the source, as it was read, does not say which of a task's scores it is."""
    value: float
    sd: float | None
    num_runs: int | None
    """Number of runs that it is of; None where that is not said."""
    chosen: Chosen
    source: Source
    table: str
    note: str
    """Difference from plain fine-tuning of the model on the task's own data, where there is one."""


@cache
def load_numbers() -> tuple[PublishedNumber, ...]:
    """Load every published number, in the order of the table."""
    folder = files(__package__)
    about: dict[str, Any] = yaml.safe_load(folder.joinpath("sources.yaml").read_text(encoding="utf-8"))
    sources = {key: Source(key, **values) for key, values in about["sources"].items()}
    models = {name: _model(name, **values) for name, values in about["models"].items()}
    rows = csv.DictReader(folder.joinpath("numbers.csv").read_text(encoding="utf-8").splitlines())
    return tuple(
        PublishedNumber(
            models[row["model"]],
            row["task"],
            row["split"],
            row["metric"] or None,
            float(row["value"]),
            float(row["sd"]) if row["sd"] else None,
            int(row["num_runs"]) if row["num_runs"] else None,
            Chosen(row["chosen"]),
            sources[row["source"]],
            row["table"],
            row["note"],
        )
        for row in rows
    )


def published_tasks() -> list[str]:
    """Tasks that there are numbers for, sorted."""
    return sorted({number.task for number in load_numbers()})


def _model(
    name: str, millions: float | None = None, layers: int | None = None, hidden_size: int | None = None
) -> PublishedModel:
    num_parameters = None if millions is None else round(millions * _PARAMETERS_PER_MILLION)
    return PublishedModel(name, num_parameters, layers, hidden_size)
