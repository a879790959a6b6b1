"""Words and characters of a text in every script, counted without a tokenizer; the size of a vocabulary for it."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate

_TOKENS_PER_WORD = 1.4
"""Word pieces of a word of English, about; a Han character is one."""
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]")
"""Characters that BERT's pre-tokenizer makes words of, each its own (Devlin et al. 2019, multilingual code)."""
_LONG_WORD = 20
"""Letters from which on a string between blanks is taken for several words, as of Thai."""
_LETTERS_PER_WORD = 5
_COVERED_SHARE = 0.9995
"""Share of a text's characters that its alphabet holds at least (SentencePiece, Kudo 2018); `[UNK]` stands for the
rest."""
_MARKED_SHARE = 0.01
"""Share of letters that bear a mark and have no case, from which on these marks are taken to carry meaning."""
_WITHOUT_BLANKS = ("THAI ", "LAO ", "MYANMAR ", "KHMER ")
"""Beginnings of the names of letters of scripts that put no blanks between words, and that BERT does not split."""
_MARKS_OF_CASED_LETTERS = ("COMBINING ", "VARIATION SELECTOR")
"""Beginnings of the names of marks that no script without case has of its own, and of emoji's."""


def plain_text(text: str) -> str:
    """A text without what its copies may differ in: white space and capitals.

    >>> plain_text(" A  charming\\tfilm. ")
    'a charming film.'
    """
    return " ".join(text.lower().split())


def count_words(text: str) -> int:
    """Count words: strings between blanks, each Han character by itself, a very long string by its letters.

    >>> count_words("two words"), count_words("小狗 跑步"), count_words("ก" * 50)
    (2, 4, 10)
    """
    apart = text if text.isascii() else _HAN.sub(r" \g<0> ", text)
    return sum(1 if len(word) <= _LONG_WORD else len(word) // _LETTERS_PER_WORD for word in apart.split())


def num_common(counts: Counter[str]) -> int:
    """Number of the most frequent characters that nearly all of a text consists of, by how often each occurs."""
    rest = (1 - _COVERED_SHARE) * counts.total()
    return sum(rarer > rest for rarer in accumulate(sorted(counts.values())))


class Characters:
    """Counts of the characters of a text but white space, of its first megabytes where it is long."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._counts: Counter[str] = Counter()
        self._room = 4 << 20
        for text in texts:
            self.note(text)

    def note(self, text: str) -> None:
        if self._room > 0:
            self._counts.update("".join(text[: self._room].split()))
            self._room -= len(text)

    @property
    def num_common(self) -> int:
        return num_common(self._counts)

    @property
    def tokens_per_word(self) -> float:
        """Word pieces of a word as `count_words` counts them, about, where no tokenizer was asked."""
        num_han = sum(count for character, count in self._counts.items() if _HAN.match(character))
        return _TOKENS_PER_WORD - (_TOKENS_PER_WORD - 1) * num_han / max(1, self._counts.total())

    @property
    def lack_blanks(self) -> bool:
        """Whether most are of scripts without blanks, whose sentences WordPiece would take for a word each."""
        without = (
            n for character, n in self._counts.items() if unicodedata.name(character, "").startswith(_WITHOUT_BLANKS)
        )
        return 2 * sum(without) > self._counts.total()

    @property
    def has_meaningful_marks(self) -> bool:
        """Whether marks stand on letters that have no case, where they are vowels or make another consonant.

        Uncased tokenizers strip them, as they strip accents. Those of letters with case (Latin, Greek) do not count.
        """
        num_letters = num_marks = 0
        for character, count in self._counts.items():
            base, *marks = list(unicodedata.normalize("NFD", character))
            kind = unicodedata.category(base)
            if kind == "Mn":
                num_marks += count * (not unicodedata.name(base, "").startswith(_MARKS_OF_CASED_LETTERS))
            elif kind[0] in "LM":
                num_letters += count
                has_mark = any(unicodedata.category(mark) == "Mn" for mark in marks)
                num_marks += count * (kind == "Lo" and has_mark)
        return num_marks > _MARKED_SHARE * num_letters


def vocabulary_size(num_words: float, num_characters: int = 0) -> int:
    """Entries of a vocabulary for a text of so many words: eight times the root of their number, in round numbers.

    The number of different words of a text grows with about the root of its length (Heaps 1978), and an entry is
    learned only where it occurs often. The trainer stops earlier where nothing occurs twice. Characters take a third
    of the entries at most.

    >>> vocabulary_size(1_000), vocabulary_size(160_000), vocabulary_size(1e9), vocabulary_size(1_000, 400)
    (500, 3000, 30000, 1500)
    """
    wanted = 8 * math.sqrt(num_words)
    rounded = 500 * round(wanted / 500) if wanted < 10_000 else 2000 * round(wanted / 2000)
    return min(30_000, max(500, rounded, 500 * math.ceil(3 * num_characters / 500)))
