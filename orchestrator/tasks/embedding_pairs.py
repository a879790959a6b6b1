"""Tables of pairs for sentence embeddings: with a score, or of texts that belong together."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass

from orchestrator.errors import SpecError
from orchestrator.specs.task import TaskSpec
from orchestrator.tasks.examples import MatchExample
from orchestrator.tasks.labeled_tables import ClassificationTable, RegressionTable
from orchestrator.tasks.tables import read_rows
from orchestrator.tasks.task import Reader
from orchestrator.tasks.text_files import BadRecords


@dataclass(frozen=True)
class SimilarityTable(RegressionTable):
    """Reads pairs with a score, mapped to 0 for unrelated and 1 for the same."""

    _: KW_ONLY
    least: float
    greatest: float

    def value_of(self, label: object) -> float:
        """The score's place between the least and the greatest. Raises: ValueError, saying what is wrong with it."""
        value = super().value_of(label)
        if not self.least <= value <= self.greatest:
            raise ValueError(f"{value:g} is not from {self.least:g} to {self.greatest:g}")
        return (value - self.least) / (self.greatest - self.least)


@dataclass(frozen=True)
class MatchTable:
    """Reads pairs of texts that belong together."""

    text_columns: tuple[str, ...]

    def read(self, path: str, bad: BadRecords) -> Iterator[MatchExample]:
        """The file's pairs in order."""
        for number, (place, (first, second)) in enumerate(read_rows(path, self.text_columns, bad)):
            if isinstance(first, str) and isinstance(second, str) and first.strip() and second.strip():
                yield MatchExample(str(number), first, second)
            else:
                bad.found(place, f"{' or '.join(self.text_columns)} holds no text")


def check_pairs(spec: TaskSpec) -> None:
    """See that a task for embeddings says what its pairs are. Raises: SpecError."""
    if len(spec.text_columns) != 2:
        raise SpecError("task.text_columns: name the two columns whose texts make a pair")
    if spec.objective is None:
        raise SpecError("task.objective: say cosine (pairs with a score), in_batch_negatives, or classification")
    if (spec.objective == "cosine") != (spec.score_range is not None):
        raise SpecError("task.score_range: objective cosine needs the least and the greatest score, others have none")
    if spec.score_range is not None and spec.score_range[0] >= spec.score_range[1]:
        raise SpecError(f"task.score_range {list(spec.score_range)}: the least score comes first")
    if spec.objective == "in_batch_negatives" and spec.label_column is not None:
        raise SpecError("task.label_column: pairs that belong together have no label; leave it out")


def pair_reader(spec: TaskSpec, labels: tuple[str, ...] | None) -> Reader:
    """The reader of a task that `check_pairs` has let pass."""
    label = spec.label_column or "label"
    if spec.score_range is not None:
        least, greatest = spec.score_range
        return SimilarityTable(spec.text_columns, label, least=least, greatest=greatest)
    if spec.objective == "in_batch_negatives":
        return MatchTable(spec.text_columns)
    return ClassificationTable(spec.text_columns, label, None if labels is None else {name: name for name in labels})
