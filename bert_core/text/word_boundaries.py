"""Word boundaries in a vocabulary: which neighboring tokens are one word, for masking whole words.

| mark | as in | what a token with it says |
| --- | --- | --- |
| `##` in front | WordPiece | the word before it goes on here |
| `Ġ`, `▁` in front | byte-level BPE, Unigram | a word begins here; all else goes on with it, also punctuation |
| `@@` at the end | fastBPE: PhoBERT | the word goes on with the next token |
| `</w>` at the end | BPE of GPT, XLM, FlauBERT, HerBERT | the word ends here |
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bert_core.errors import TokenizerError


@dataclass(frozen=True)
class WordMark:
    """A mark in tokens that tells which neighboring ones are one word, as "##" in WordPiece."""

    text: str
    at_end: bool
    """Whether the mark is at a token's end and concerns the next token, or in front and concerns the one before."""
    joins: bool
    """Whether the marked tokens are the joined ones; else all others are."""

    def marks(self, token: str) -> bool:
        return token.endswith(self.text) if self.at_end else token.startswith(self.text)

    def strip(self, text: str) -> str:
        return text.removesuffix(self.text) if self.at_end else text.removeprefix(self.text)


MARKS = (
    WordMark("##", at_end=False, joins=True),
    WordMark("Ġ", at_end=False, joins=False),
    WordMark("▁", at_end=False, joins=False),
    WordMark("@@", at_end=True, joins=True),
    WordMark("</w>", at_end=True, joins=False),
)
_LEAST_SHARE = 0.01
"""Share of tokens that must have a mark which no part of the tokenizer names: "▁" may be an ordinary character."""


@dataclass(frozen=True, eq=False)
class WordBoundaries:
    """The tokens of a vocabulary as parts of words."""

    mark: WordMark
    joined: NDArray[np.bool_]  # (V,) whether a token and its neighbor, by the mark's side, are one word

    def continue_word(self, input_ids: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Tell of each token whether it continues the word of the token before it: (T,) → (T,) bool.

        The values of the first token and of special tokens do not matter: words end there.
        """
        joined: NDArray[np.bool_] = self.joined[input_ids]
        return np.roll(joined, 1) if self.mark.at_end else joined


def find_word_boundaries(
    definition: Mapping[str, Any], vocabulary: Sequence[str], special_ids: Collection[int]
) -> WordBoundaries:
    """Read from a `tokenizer.json` which tokens, by id, are joined to words. Special tokens are joined to nothing.

    A mark that the model, the pre-tokenizer or the decoder names comes first; where none of them does, or no token
    bears it, the mark of most tokens.

    Raises: TokenizerError when there is no mark.
    """
    named = list(_named_marks(definition))
    marked = {mark: np.array([mark.marks(token) for token in vocabulary], bool) for mark in (*named, *MARKS)}
    shares = {mark: bearers.mean() for mark, bearers in marked.items()}
    found = next((mark for mark in named if shares[mark]), max(MARKS, key=lambda mark: shares[mark]))
    if found not in named and shares[found] < _LEAST_SHARE:
        raise TokenizerError(
            f"the {len(vocabulary)} tokens do not tell where words begin: too few bear one of the marks "
            f'{", ".join(mark.text for mark in MARKS)}; mask in units of "token", or use another tokenizer'
        )
    joined = marked[found] == found.joins
    joined[list(special_ids)] = False
    return WordBoundaries(found, joined)


def _named_marks(definition: Mapping[str, Any]) -> Iterator[WordMark]:
    model = definition["model"]
    if prefix := model.get("continuing_subword_prefix"):
        yield WordMark(prefix, at_end=False, joins=True)
    if suffix := model.get("end_of_word_suffix"):
        yield WordMark(suffix, at_end=True, joins=False)
    for part in (*_parts(definition.get("pre_tokenizer")), *_parts(definition.get("decoder"))):
        if part["type"] == "ByteLevel":
            yield WordMark("Ġ", at_end=False, joins=False)
        if part["type"] == "Metaspace":
            yield WordMark(part["replacement"], at_end=False, joins=False)


def _parts(step: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """List a step of the pipeline and the steps inside it."""
    if step is None:
        return []
    inner = step.get("pretokenizers") or step.get("decoders") or []
    return [step, *(part for each in inner for part in _parts(each))]
