"""Facts of files of plain text: documents, words, lengths, doubles; of a large text its beginning is looked at."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from orchestrator.corpus.document_readers import DocumentReader
from orchestrator.corpus.input_files import find_files
from orchestrator.drafting.example_views import text_key
from orchestrator.drafting.vocabulary import Characters, count_words
from orchestrator.errors import InputError
from orchestrator.specs import TextSource

SAMPLE_BYTES = 64 << 20
"""Text that is looked at, at most; the rest is estimated from the files' sizes."""
_MAX_BAD_SHARE = 0.1
_FEWEST_WORDS = 200


@dataclass
class TextFacts:
    """Files of text; counted while they are read."""

    files: Sequence[str]
    num_bytes_stored: int = 0
    """Size of all files as they are stored."""
    num_bytes_read: int = 0
    """Part of it that was looked at."""
    num_text_bytes: int = 0
    """Text that was looked at, as UTF-8."""
    num_documents: int = 0
    """Documents that were looked at."""
    num_words_seen: int = 0
    num_doubles: int = 0
    """Documents that stand in the files before."""
    num_bad_records: int = 0
    first_problem: str = ""
    words: Counter[int] = field(default_factory=Counter)
    """Number of documents by their number of words."""
    characters: Characters = field(default_factory=Characters)

    @property
    def is_whole(self) -> bool:
        """Whether all text was looked at."""
        return self.num_bytes_read >= self.num_bytes_stored

    @property
    def scale(self) -> float:
        """Ratio of all text to what was looked at."""
        return self.num_bytes_stored / max(1, self.num_bytes_read)

    @property
    def num_words(self) -> float:
        """Words of all text, estimated where not all was looked at."""
        return self.num_words_seen * self.scale

    @property
    def text_bytes(self) -> float:
        """Bytes of all text, estimated where not all was looked at."""
        return self.num_text_bytes * self.scale

    def words_of_documents_holding(self, share: float) -> int:
        """The number of words such that at least this share of all words is in documents that are no longer."""
        below = 0
        for words in sorted(self.words):
            below += words * self.words[words]
            if below >= share * self.num_words_seen:
                return words
        return 0


def read_text(source: TextSource, sample_bytes: int = SAMPLE_BYTES) -> TextFacts:
    """Look at text as pretraining reads it. Raises: CorpusError, InputError for text that is too short or broken."""
    counting = source.model_copy(update={"on_bad_record": "skip"})
    files = find_files(source)
    facts = TextFacts(source.files, num_bytes_stored=sum(file.num_bytes for file in files))
    seen: set[int] = set()
    for file in files:
        reader = DocumentReader(file, counting)
        for document in reader.read():
            num_words = count_words(document.text)
            facts.characters.note(document.text)
            facts.words[num_words] += 1
            facts.num_documents += 1
            facts.num_words_seen += num_words
            facts.num_text_bytes += len(document.text.encode())
            key = text_key(document.text)
            facts.num_doubles += key in seen
            seen.add(key)
            if facts.num_text_bytes >= sample_bytes:
                break
        facts.num_bytes_read += reader.num_bytes_read
        facts.num_bad_records += reader.num_bad_records
        facts.first_problem = facts.first_problem or reader.first_problem
        if facts.num_text_bytes >= sample_bytes:
            break
    _check(facts)
    return facts


def _check(facts: TextFacts) -> None:
    """Check that there is text to learn from. Raises: InputError."""
    names = ", ".join(facts.files[:3]) + (", …" if len(facts.files) > 3 else "")
    if facts.num_bad_records > _MAX_BAD_SHARE * (facts.num_bad_records + facts.num_documents):
        raise InputError(
            f"{facts.num_bad_records:,} records beside {facts.num_documents:,} documents cannot be read, the first: "
            f"{facts.first_problem}; save the file as UTF-8, or name the one that holds the text"
        )
    if facts.num_words_seen < _FEWEST_WORDS:
        raise InputError(
            f"{names}: {facts.num_words_seen:,} words are too few to learn a language from; add text (a book has "
            "100,000 words), or label some rows and give a CSV"
        )
