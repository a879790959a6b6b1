"""Tables of pairs for sentence embeddings: with a score, or of texts that belong together."""

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass

from orchestrator.tasks.readers import Reader
from orchestrator.tasks.table_files import read_rows
from orchestrator.tasks.text_examples import TextExample
from orchestrator.tasks.text_files import BadRecords
from orchestrator.tasks.types.regression import RegressionTable


@dataclass(frozen=True, slots=True)
class MatchExample(TextExample):
    """Two texts that belong together, and to no other of their file."""

    @property
    def gains(self) -> Mapping[str, float]:
        """Gain by the id of a pair: the own second text is the one to find."""
        return {self.id: 1.0}


@dataclass(frozen=True)
class SimilarityTable(RegressionTable):
    """Reads pairs with a score, mapped to 0 for unrelated and 1 for the same."""

    _: KW_ONLY
    least: float
    greatest: float

    def scale(self, score: float) -> float:
        """The score's place between the least and the greatest. Raises: ValueError, saying what is wrong with it."""
        if not self.least <= score <= self.greatest:
            raise ValueError(f"{score:g} is not from {self.least:g} to {self.greatest:g}")
        return (score - self.least) / (self.greatest - self.least)


@dataclass(frozen=True)
class MatchTable(Reader[MatchExample]):
    """Reads pairs of texts that belong together."""

    text_columns: tuple[str, ...]

    def read(self, path: str, bad: BadRecords) -> Iterator[MatchExample]:
        """The file's pairs in order."""
        for number, (place, (first, second)) in enumerate(read_rows(path, self.text_columns, bad)):
            if isinstance(first, str) and isinstance(second, str) and first.strip() and second.strip():
                yield MatchExample(str(number), first, second)
            else:
                bad.found(place, f"{' or '.join(self.text_columns)} holds no text")
