"""Specs of text: where its files are, how they are read, and how they become a tokenizer or a token store."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from orchestrator.specs.fields import Section, Spec, execution, identity

OnBadRecord = Literal["error", "skip", "replace"]


def _check_weights(weights: tuple[float, ...]) -> tuple[float, ...]:
    if weights and not any(weights):
        raise ValueError("are all 0; give an entry that is to be read a weight above 0")
    return weights


def _check_language(code: str) -> str:
    if not (code.isascii() and code.isalpha() and code.islower() and len(code) in (2, 3)):
        raise ValueError(f"is {code!r}; give Wikipedia's code of the language: two small letters, as de, or three")
    return code


Language = Annotated[str, AfterValidator(_check_language)]
Weights = Annotated[tuple[Annotated[float, Field(ge=0.0)], ...], AfterValidator(_check_weights)]
TokenizerAlgorithm = Literal["wordpiece", "byte_bpe", "unigram"]


class TextSource(Section):
    """Files that hold documents."""

    files: tuple[str, ...] = identity(
        doc="Files, folders or globs: local paths or URIs (s3://, gs://, abfs://, hdfs://, hf://datasets/); "
        "`.gz`, `.xz`, `.zst` too.",
        min_length=1,
    )
    weights: Weights = identity(
        (),
        "A number for each entry of `files`: how often its documents are read beside those of the others; 2 beside 1 "
        "twice as often, 0 never. All documents alike when left out.",
        is_new=True,
    )
    languages: tuple[Language, ...] = identity(
        (),
        "Language of each entry of `files`, or one for all, by Wikipedia's codes: `[de]`. Its abbreviations and marks "
        "decide where a sentence ends; of a language without rules of its own English ones do, as when left out.",
        is_new=True,
    )
    format: Literal["auto", "text", "jsonl", "parquet"] = identity(
        "auto",
        "Format of the files: plain text with a blank line between documents, one JSON object a line, or Parquet.",
    )
    text_field: str = identity("text", "The key or column that holds a document's text (JSONL, Parquet).")
    on_bad_record: OnBadRecord = identity(
        "error",
        "Treatment of a record that cannot be decoded: end the run, leave it out, or put U+FFFD for bad bytes.",
    )
    max_documents: int | None = identity(
        None, "Read this many documents at most, in the files' order; all when left out.", unit="documents", ge=1
    )
    sampling_exponent: float = identity(
        1.0,
        "Each entry of `files` is a language: one with the share p of all bytes is sampled with a share proportional "
        "to p to the power of this, so that small languages are read more often and large ones less often. mBERT used "
        "0.7, XLM 0.5; 1 takes every document once.",
        ge=0.0,
        le=1.0,
    )

    @model_validator(mode="after")
    def _check_entries(self) -> Self:
        if self.weights and len(self.weights) != len(self.files):
            raise ValueError(
                f"weights has {len(self.weights)} numbers for the {len(self.files)} entries of files; give one for each"
            )
        if len(self.languages) not in (0, 1, len(self.files)):
            raise ValueError(
                f"languages has {len(self.languages)} codes for the {len(self.files)} entries of files; give one for "
                "each, or one for all"
            )
        if self.weights and (self.sampling_exponent < 1 or self.max_documents is not None):
            other = "sampling_exponent" if self.sampling_exponent < 1 else "max_documents"
            raise ValueError(f"weights and {other} both say how much of each entry is read; leave one of them out")
        if self.sampling_exponent < 1 and self.max_documents is not None:
            raise ValueError(
                f"max_documents {self.max_documents} takes the first documents of all, and sampling_exponent "
                f"{self.sampling_exponent} some of each language: leave one of them out"
            )
        return self

    def language(self, entry: int) -> str:
        """Code of the language of an entry of `files`."""
        languages = self.languages or ("en",)
        return languages[entry if len(languages) > 1 else 0]


class TokenizerSpec(Spec):
    """Train a tokenizer on text."""

    title: ClassVar[str] = "train a tokenizer"
    kind: Literal["tokenizer"] = identity("tokenizer", "Selects this kind of spec.")
    corpus: TextSource = identity(doc="The text to learn the vocabulary from.")
    algorithm: TokenizerAlgorithm = identity(
        "wordpiece", "WordPiece as BERT, byte-level BPE as RoBERTa, or Unigram (SentencePiece) as ALBERT."
    )
    vocab_size: int = identity(
        30522, "Entries of the vocabulary, special tokens included.", unit="tokens", ge=100, le=1_000_000
    )
    lowercase: bool = identity(True, "Uncased (lower case, accents stripped) or cased.")
    strip_accents: bool | None = identity(
        None, "Whether accents and other marks on letters are stripped; as `lowercase` says when left out.", is_new=True
    )
    min_frequency: int = identity(
        2, "A pair is merged, or a Unigram piece considered, when it occurs this often.", unit="occurrences", ge=1
    )
    max_bytes: int = identity(
        1 << 30, "Text to learn from at most, so that memory stays bounded.", unit="bytes", ge=1024
    )


class TokenStoreSpec(Spec):
    """The text of a token store, and how it is tokenized."""

    corpus: TextSource = identity(doc="The text.")
    tokenizer: str = identity(
        doc="A folder with tokenizer.json, vocab.txt, vocab.json and merges.txt, or spm.model; such a file; a model."
    )
    validation_fraction: float = identity(
        0.01, "Documents kept out of training, chosen by a hash of their text.", unit="share", ge=0.0, le=0.5
    )
    shard_bytes: int = identity(
        4 << 20,
        "Text in a shard of the token store, about: shards are tokenized in parallel, and shuffled.",
        unit="bytes",
        ge=1024,
    )


class CorpusSpec(TokenStoreSpec):
    """Tokenize text once into a token store."""

    title: ClassVar[str] = "tokenize text into a token store"
    kind: Literal["corpus"] = identity("corpus", "Selects this kind of spec.")
    num_cpus: int | None = execution(None, "Processes that tokenize; all of the cluster's when left out.", ge=1)


def text_sources_of(section: Section) -> Iterator[TextSource]:
    """Yield the text that a spec reads, that of its sections included, in the order of its fields."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, TextSource):
            yield value
        elif isinstance(value, Section):
            yield from text_sources_of(value)
