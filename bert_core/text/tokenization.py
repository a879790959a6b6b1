"""Text to word pieces and back: any `tokenizer.json`, BERT's `vocab.txt`, RoBERTa's `vocab.json` and `merges.txt`.

A `Tokenizer` never changes after it is made, adds no special tokens of its own and pickles as its JSON. In a process
that received one by pickle (a Ray worker, one of many) the library's own threads are switched off.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Self

import tokenizers
from tokenizers import Encoding, models, pre_tokenizers

from bert_core.checkpoints.manifest import atomic_write_text
from bert_core.errors import TokenizerError
from bert_core.examples.segments import NUM_SINGLE_SPECIALS, SegmentLayout
from bert_core.text.tokenizer_files import read_tokenizer
from bert_core.text.tokenizer_pipelines import split_names
from bert_core.text.word_boundaries import WordBoundaries, find_word_boundaries

MUCH_UNKNOWN = 0.1
"""Share of unknown tokens in a text from which on a model hardly reads it."""


class Tokenizer:
    """A frozen tokenizer: ids without special tokens, and where those stand in the vocabulary."""

    def __init__(self, backend: tokenizers.Tokenizer, special_tokens: Mapping[str, str], origin: str = "the tokenizer"):
        """Wrap `backend`; `special_tokens` by role. Raises: TokenizerError when one is not in the vocabulary."""
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._special_tokens = dict(special_tokens)
        ids = {role: _special_id(backend, token, role, origin) for role, token in self._special_tokens.items()}
        self._special_ids = frozenset(ids.values())
        self.pad_id, self.cls_id, self.sep_id, self.mask_id = (ids[role] for role in ("pad", "cls", "sep", "mask"))
        self.unk_id = ids["unk"]
        """Id of a word that the vocabulary cannot spell."""

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a folder that holds one of TOKENIZER_FILES, or such a file. Raises: TokenizerError."""
        backend, special_tokens, file = read_tokenizer(Path(path))
        return cls(backend, special_tokens, origin=str(file))

    def save(self, folder: str | Path) -> None:
        """Write `tokenizer.json`, `tokenizer_config.json` and, for WordPiece, `vocab.txt`: as `transformers` reads."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        wordpiece = isinstance(self._backend.model, models.WordPiece)
        config: dict[str, Any] = {f"{role}_token": token for role, token in self._special_tokens.items()}
        # The general class takes tokenizer.json as it is; a family's own (RobertaTokenizer, say) builds it anew.
        config |= {"tokenizer_class": "BertTokenizer" if wordpiece else "PreTrainedTokenizerFast"}
        types = ["token_type_ids"] if self.segment_layout.type_of_second else []
        config |= {"model_input_names": ["input_ids", *types, "attention_mask"]}
        if wordpiece:
            normalizer = self._definition["normalizer"] or {}
            config |= {"do_lower_case": self.lowercase, "strip_accents": normalizer.get("strip_accents")}
            config |= {"tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True)}
            tokens = {i: token for token, i in self._definition["model"]["vocab"].items()}
            lines = (tokens.get(i, "") for i in range(max(tokens) + 1))  # the line is the id
            atomic_write_text(target / "vocab.txt", "".join(f"{line}\n" for line in lines))
        atomic_write_text(target / "tokenizer_config.json", json.dumps(config, indent=2, sort_keys=True) + "\n")
        atomic_write_text(target / "tokenizer.json", self._backend.to_str(pretty=True) + "\n")

    @cached_property
    def _definition(self) -> dict[str, Any]:
        definition: dict[str, Any] = json.loads(self._backend.to_str())
        return definition

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the canonical `tokenizer.json`."""
        canonical = json.dumps(self._definition, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    @cached_property
    def vocab_size(self) -> int:
        """The highest id plus one: rows that a model's embedding must have at least."""
        return max(self._tokens) + 1

    @cached_property
    def _tokens(self) -> dict[int, str]:
        """Tokens by id; the library's `id_to_token` gives an added token in lower case where text is put into it."""
        return {i: token for token, i in self._backend.get_vocab(with_added_tokens=True).items()}

    @cached_property
    def lowercase(self) -> bool:
        """Whether text is put into lower case before it is split into pieces."""
        return _lowercases(self._definition["normalizer"])

    @cached_property
    def segment_layout(self) -> SegmentLayout:
        """Layout of special tokens among segments: as the tokenizer's own pipeline puts them, or else as BERT's."""
        num_special: int = self._backend.num_special_tokens_to_add(is_pair=True)
        num_between = max(1, num_special - NUM_SINGLE_SPECIALS)
        types = self._backend.encode("", "").type_ids if self._backend.post_processor else []
        type_of_second = int(types[-1]) if types else 1
        return SegmentLayout(self.cls_id, (self.sep_id,) * num_between, self.sep_id, type_of_second)

    @cached_property
    def word_boundaries(self) -> WordBoundaries:
        """Table of which tokens belong to one word. Raises: TokenizerError where the vocabulary does not tell."""
        tokens = [self._tokens.get(i, "") for i in range(self.vocab_size)]
        return find_word_boundaries(self._definition, tokens, self._special_ids)

    def surface(self, token_id: int) -> tuple[str, bool]:
        """Text that a token adds, and whether the token continues the word before it."""
        text = self.decode([token_id], skip_special_tokens=False).strip()
        try:
            words = self.word_boundaries
        except TokenizerError:  # nothing is marked: every token is a word
            return text, False
        return words.mark.strip(text), not words.mark.at_end and bool(words.joined[token_id])

    def token(self, token_id: int) -> str:
        """The token of an id; `[5]` for an id 5 that the vocabulary leaves out.

        Raises: TokenizerError for an id outside the vocabulary.
        """
        if not 0 <= token_id < self.vocab_size:
            raise TokenizerError(f"token id {token_id} is not in the vocabulary of {self.vocab_size} entries")
        return self._tokens.get(token_id, f"[{token_id}]")

    def id(self, token: str) -> int:
        """The id of a token, or that of the unknown token."""
        found: int | None = self._backend.token_to_id(token)
        return self.unk_id if found is None else found

    def encode_batch(self, texts: Sequence[str]) -> list[Encoding]:
        """Encode texts: `.ids`, `.offsets` in characters, `.word_ids`; `[MASK]` in a text is text."""
        encodings: list[Encoding] = self._text_backend.encode_batch(list(texts), add_special_tokens=False)
        return encodings

    def encode_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode texts to ids alone, faster; `[MASK]` in a text is text: no document can plant a special token."""
        encodings = self._text_backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_sentences(self, sentences: Sequence[str]) -> list[list[int]]:
        """Encode sentences of a running text to ids; a byte-level tokenizer puts the space of the text before each."""
        encodings = self._words_backend.encode_batch_fast(list(sentences), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_masked(self, text: str) -> list[int]:
        """Encode a text in which `[MASK]`, like every special token, stands for itself."""
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids

    def encode_words(self, words: Sequence[str]) -> tuple[list[int], list[int]]:
        """Encode a sentence given as words: ids, and each word's first position in them (-1: it left no token)."""
        encoding = self._words_backend.encode(list(words), is_pretokenized=True, add_special_tokens=False)
        first = [-1] * len(words)
        word_of = encoding.word_ids
        for position in reversed(range(len(word_of))):
            word = word_of[position]
            assert word is not None, "no special tokens were added"
            first[word] = position
        return encoding.ids, first

    @cached_property
    def _text_backend(self) -> tokenizers.Tokenizer:
        """The pipeline for texts, to which a special token is text."""
        return self._plain_backend(self._backend.to_str())

    @cached_property
    def _words_backend(self) -> tokenizers.Tokenizer:
        """The pipeline for words; a byte-level one puts the space before a word that the word has in a text."""
        definition = json.loads(self._backend.to_str(), object_hook=_with_prefix_space)
        return self._plain_backend(json.dumps(definition))

    def _plain_backend(self, definition: str) -> tokenizers.Tokenizer:
        backend = tokenizers.Tokenizer.from_str(definition)
        backend.encode_special_tokens = True
        if isinstance(backend.model, models.Unigram):  # which finds them among its pieces
            before = [backend.pre_tokenizer] if backend.pre_tokenizer else []
            backend.pre_tokenizer = pre_tokenizers.Sequence([*before, split_names(self._special_tokens.values())])
        return backend

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        text: str = self._backend.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text

    def check_fits(self, model_vocab_size: int) -> None:
        """Raise TokenizerError when the model has fewer embedding rows than this tokenizer has ids."""
        if self.vocab_size > model_vocab_size:
            raise TokenizerError(
                f"the tokenizer has {self.vocab_size} entries, the model's vocab_size is {model_vocab_size}: "
                "use the tokenizer that the checkpoint was trained with"
            )

    def check_agrees(self, own: "Tokenizer") -> None:
        """Raise TokenizerError when a token has another id, or none, in `own`, the checkpoint's tokenizer."""
        theirs = own._backend.get_vocab(with_added_tokens=True)
        for token, token_id in self._backend.get_vocab(with_added_tokens=True).items():
            if theirs.get(token) != token_id:
                raise TokenizerError(
                    f"the tokenizer's vocabulary is not the checkpoint's (token {token!r}, for one): "
                    "use the tokenizer that the checkpoint was trained with"
                )

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self._backend.to_str(), tuple(self._special_tokens.items()))

    def __repr__(self) -> str:
        return f"Tokenizer(vocab_size={self.vocab_size}, lowercase={self.lowercase})"


def _special_id(backend: tokenizers.Tokenizer, token: str, role: str, origin: str) -> int:
    found: int | None = backend.token_to_id(token)
    if found is None:
        raise TokenizerError(
            f"{origin} has no {role} token {token!r}; add it to the vocabulary or name another in tokenizer_config.json"
        )
    return found


def _with_prefix_space(part: dict[str, Any]) -> dict[str, Any]:
    return part | {"add_prefix_space": True} if "add_prefix_space" in part else part


def _lowercases(normalizer: Mapping[str, Any] | None) -> bool:
    if normalizer is None:
        return False
    if normalizer["type"] == "Sequence":
        return any(_lowercases(part) for part in normalizer["normalizers"])
    return normalizer["type"] == "Lowercase" or bool(normalizer.get("lowercase", False))


@lru_cache(maxsize=4)
def _unpickle(definition: str, special_tokens: tuple[tuple[str, str], ...]) -> Tokenizer:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    return Tokenizer(tokenizers.Tokenizer.from_str(definition), dict(special_tokens))
