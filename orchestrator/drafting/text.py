"""Text as a tokenizer sees it, its words in every script and its characters; facts of files of plain text."""

import hashlib
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from orchestrator.corpus.document_readers import DocumentReader
from orchestrator.corpus.input_files import find_files
from orchestrator.corpus.preview import quantile
from orchestrator.errors import InputError
from orchestrator.specs import TextSource
from orchestrator.tasks.task import plain_text

_SAMPLE_BYTES = 64 << 20
"""Text that is looked at, at most; the rest is estimated from the files' sizes."""
MAX_BAD_SHARE = 0.1
"""Share of broken records above which a file is not what it is taken for."""
_FEWEST_WORDS = 200
_TOKENS_PER_WORD = 1.4
"""Word pieces of a word of English, about; a Han character is one."""
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]")
"""Characters that BERT's pre-tokenizer makes words of, each its own (Devlin et al. 2019, multilingual code)."""
_LONG_WORD = 20
"""Letters from which on a string between blanks is taken for several words, as of Thai."""
_LETTERS_PER_WORD = 5
_COVERED_SHARE = 0.9995
"""Share of a text's characters that its alphabet holds at least; `[UNK]` stands for the rest."""
_MARKED_SHARE = 0.01
"""Share of letters that bear a mark and have no case, from which on these marks are taken to carry meaning."""
_MARKS_OF_CASED_LETTERS = ("COMBINING ", "VARIATION SELECTOR")
"""Beginnings of the names of marks that no script without case has of its own, and of emoji's."""


def text_key(text: str) -> int:
    """A number for a text that its copies share, whatever their white space and capitals."""
    return int.from_bytes(hashlib.blake2b(plain_text(text).encode(errors="replace"), digest_size=8).digest())


def count_words(text: str) -> int:
    """Count words: strings between blanks, each Han character by itself, a very long string by its letters.

    >>> count_words("two words"), count_words("小狗 跑步"), count_words("ก" * 50)
    (2, 4, 10)
    """
    apart = text if text.isascii() else _HAN.sub(r" \g<0> ", text)
    return sum(1 if len(word) <= _LONG_WORD else len(word) // _LETTERS_PER_WORD for word in apart.split())


def count_all(words: Counter[int]) -> int:
    """Words of all texts, whose numbers are counted by their numbers of words."""
    return sum(number * count for number, count in words.items())


class Characters:
    """Counts of the characters of a text, of its first megabytes where it is long."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._counts: Counter[str] = Counter()
        self._room = 4 << 20
        for text in texts:
            self.note(text)

    def note(self, text: str) -> None:
        if self._room > 0:
            self._counts.update(text[: self._room])
            self._room -= len(text)

    @property
    def num_common(self) -> int:
        """Number of the most frequent characters that nearly all of the text consists of."""
        counts = [count for character, count in self._counts.most_common() if not character.isspace()]
        rest = (1 - _COVERED_SHARE) * sum(counts)
        while counts and counts[-1] <= rest:
            rest -= counts.pop()
        return len(counts)

    @property
    def tokens_per_word(self) -> float:
        """Word pieces of a word as `count_words` counts them, about, where no tokenizer was asked."""
        counts = {character: count for character, count in self._counts.items() if not character.isspace()}
        num_han = sum(count for character, count in counts.items() if _HAN.match(character))
        return _TOKENS_PER_WORD - (_TOKENS_PER_WORD - 1) * num_han / max(1, sum(counts.values()))

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


@dataclass
class TextFacts:
    """Files of plain text; of a large text its beginning is looked at, and the rest is estimated from the sizes."""

    files: tuple[str, ...]
    words: Counter[int] = field(default_factory=Counter)
    """Number of documents that were looked at, by their number of words."""
    characters: Characters = field(default_factory=Characters)
    num_text_bytes: int = 0
    """Text that was looked at, as UTF-8."""
    num_doubles: int = 0
    """Documents that stand in the files before."""
    num_bad_records: int = 0
    first_problem: str = ""
    scale: float = 1.0
    """Ratio of all text to what was looked at."""

    @property
    def num_documents(self) -> float:
        return self.words.total() * self.scale

    @property
    def num_words(self) -> float:
        return count_all(self.words) * self.scale

    def tokens_holding(self, share: float) -> float:
        """Tokens of a document such that at least this share of all text is in documents that are no longer, about."""
        words = Counter({number: number * count for number, count in self.words.items()})
        return quantile(words, share) * self.characters.tokens_per_word


def read_text(source: TextSource) -> TextFacts:
    """Look at text as pretraining reads it. Raises: CorpusError, InputError for text that is too short or broken."""
    facts = TextFacts(source.files)
    seen: set[int] = set()
    num_read = 0
    files = find_files(source)
    for file in files:
        if facts.num_text_bytes >= _SAMPLE_BYTES:
            break
        reader = DocumentReader(file, source.model_copy(update={"on_bad_record": "skip"}))
        for document in reader.read():
            facts.characters.note(document.text)
            facts.words[count_words(document.text)] += 1
            facts.num_text_bytes += len(document.text.encode())
            seen.add(text_key(document.text))
            if facts.num_text_bytes >= _SAMPLE_BYTES:
                break
        num_read += reader.num_bytes_read
        facts.num_bad_records += reader.num_bad_records
        facts.first_problem = facts.first_problem or reader.first_problem
    facts.num_doubles = facts.words.total() - len(seen)
    facts.scale = sum(file.num_bytes for file in files) / max(1, num_read)
    if facts.num_bad_records > MAX_BAD_SHARE * (facts.num_bad_records + facts.words.total()):
        raise InputError(
            f"{facts.num_bad_records:,} records beside {facts.words.total():,} documents cannot be read, the first: "
            f"{facts.first_problem}; save the file as UTF-8, or name the one that holds the text"
        )
    if facts.num_words < _FEWEST_WORDS:
        names = ", ".join(facts.files[:3]) + (", …" if len(facts.files) > 3 else "")
        raise InputError(
            f"{names}: {facts.num_words:,.0f} words are too few to learn a language from; add text (a book has "
            "100,000 words), or label some rows and give a CSV"
        )
    return facts
