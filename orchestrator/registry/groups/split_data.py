"""Data of a run's splits as the registry knows them: by digests that tell which runs used the same examples."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple, Self

from orchestrator.registry.parameter_values import FILE_DIGEST, TAKEN_DIGEST, WHOLE_DIGEST
from orchestrator.results import Split

Overlap = Literal["all", "some", "file"]
"""Examples of a score that other data are known to hold: all of them, or at least some; `file` where both come from the
same file and nothing more is known."""


class SplitData(NamedTuple):
    """Digests of the data of one split; None where they were not recorded."""

    taken: str | None = None
    """Digest of the examples that were used: of the file, of how it was read, and of the limit."""
    whole: str | None = None
    """The same digest without the limit; that of the examples themselves where there was none."""
    file: str | None = None
    """Digest of the file's content, however it was read."""

    @classmethod
    def of(cls, parameters: Mapping[str, Any], split: Split) -> Self:
        """Data of a split by the parameters of a run. Where no whole was recorded, the examples are taken for it."""
        taken_path, whole_path, file_path = _paths(split)
        taken = parameters.get(taken_path)
        return cls(taken, parameters.get(whole_path, taken), parameters.get(file_path))


class DigestSets(NamedTuple):
    """Digests of the data of any number of splits, those of each kind together."""

    taken: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()
    file: frozenset[str] = frozenset()

    @classmethod
    def of(cls, data: SplitData) -> Self:
        """Digests of one split; of none where it is not known what was taken."""
        return cls() if data.taken is None else cls(*(frozenset(filter(None, [digest])) for digest in data))

    def merged(self, other: Self) -> Self:
        """These data and others."""
        return type(self)(*(own | others for own, others in zip(self, other, strict=True)))

    def overlap(self, data: SplitData) -> Overlap | None:
        """Examples of a score's data that are known to be among these; None where nothing says that any is.

        A limit takes the first examples (`max_train_examples`), and no split is without examples: two parts of one
        whole share the first example at least. Of a file that was read another way, as with other labels or without its
        broken records, nothing is certain: the examples that both took may be different ones.

        >>> part, whole = SplitData("first 100", "whole", "file"), SplitData("whole", "whole", "file")
        >>> DigestSets.of(part).overlap(whole), DigestSets.of(whole).overlap(part)
        ('some', 'all')
        >>> DigestSets.of(part).overlap(SplitData("otherwise", "otherwise", "file"))
        'file'
        """
        if data.taken is None:
            return None
        if data.taken in self.taken or data.whole in self.taken:
            return "all"
        if data.whole in self.whole:
            return "some"
        return "file" if data.file in self.file else None


def taken_path(split: Split) -> str:
    """Path of the parameter with the digest of the examples of a split that a run took."""
    return _paths(split)[0]


def digest_paths(splits: Iterable[Split]) -> list[str]:
    """Paths of the parameters with the digests of splits: of each those of `taken`, `whole` and `file`."""
    return [path for split in splits for path in _paths(split)]


@cache
def _paths(split: Split) -> tuple[str, str, str]:
    """Paths of a split's digests; a board of many groups asks for the same few again and again."""
    return f"data.{split}{TAKEN_DIGEST}", f"data.{split}{WHOLE_DIGEST}", f"data.{split}{FILE_DIGEST}"
