"""The pipelines from text to pieces: normalizer, pre-tokenizer, model, decoder, and where special tokens go.

| pipeline | as in | special tokens, ids from 0 | a pair |
| --- | --- | --- | --- |
| WordPiece | BERT (Devlin et al. 2019) | `[PAD] [UNK] [CLS] [SEP] [MASK]` | `[CLS] a [SEP] b [SEP]` |
| byte-level BPE | RoBERTa (Liu et al. 2019) | `<s> <pad> </s> <unk> <mask>` | `<s> a </s></s> b </s>` |
| BPE of words | HerBERT (Mroczkowski et al. 2021) | `<s> <pad> </s> <unk> <mask>` | `<s> a </s> b </s>` |
| Unigram | ALBERT (Lan et al. 2020) | `<pad> <unk> [CLS] [SEP] [MASK]` | `[CLS] a [SEP] b [SEP]` |
| SentencePiece | DeBERTa-v2 (He et al. 2021) | `[PAD] [CLS] [SEP] [UNK]`, `[MASK]` last | `[CLS] a [SEP] b [SEP]` |

fairseq numbers `<mask>` last; here it stands at 4, so that the special tokens are the same for any vocabulary size.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors

SPECIAL_TOKENS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
"""Special tokens of WordPiece by role, in the order of their ids in a vocabulary trained here."""
BYTE_BPE_SPECIAL_TOKENS = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
UNIGRAM_SPECIAL_TOKENS = {"pad": "<pad>", "unk": "<unk>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


def build_wordpiece(
    vocabulary: Mapping[str, int], lowercase: bool, strip_accents: bool | None = None, chinese: bool = True
) -> tokenizers.Tokenizer:
    """Build BERT's pipeline around a vocabulary: clean, split on space and punctuation, longest pieces first."""
    special = {role: token for role, token in SPECIAL_TOKENS.items() if token in vocabulary}
    backend = tokenizers.Tokenizer(models.WordPiece(dict(vocabulary), unk_token=SPECIAL_TOKENS["unk"]))
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=strip_accents, handle_chinese_chars=chinese
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.add_special_tokens(list(special.values()))
    if "cls" in special and "sep" in special:
        backend.post_processor = _bert_layout(vocabulary)
    return backend


def build_byte_bpe(
    vocabulary: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    lowercase: bool,
    special_tokens: Mapping[str, str] = BYTE_BPE_SPECIAL_TOKENS,
    prefix_space: bool = True,
    strip_accents: bool | None = None,
) -> tokenizers.Tokenizer:
    """Build RoBERTa's pipeline: no byte is unknown, and a space belongs to the piece after it.

    A first word gets the space that it would have elsewhere (`prefix_space`), since sentences are cut one by one and a
    word must have the same pieces wherever it stands; RoBERTa as published gives it none. Offsets leave the space out.
    """
    backend = tokenizers.Tokenizer(models.BPE(vocab=dict(vocabulary), merges=list(merges)))
    if lowercase or strip_accents:
        backend.normalizer = _folded(lowercase, strip_accents)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    backend.decoder = decoders.ByteLevel()
    cls, sep = special_tokens["cls"], special_tokens["sep"]
    backend.post_processor = processors.RobertaProcessing(
        (sep, vocabulary[sep]), (cls, vocabulary[cls]), trim_offsets=True, add_prefix_space=prefix_space
    )
    _add_special_tokens(backend, special_tokens)
    return backend


def build_herbert(
    vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]], special_tokens: Mapping[str, str]
) -> tokenizers.Tokenizer:
    """Build HerBERT's pipeline (Mroczkowski et al. 2021): BERT's words, then BPE with a mark at a word's end."""
    suffix = "</w>"
    model = models.BPE(
        vocab=dict(vocabulary), merges=list(merges), unk_token=special_tokens["unk"], end_of_word_suffix=suffix
    )
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.BPEDecoder(suffix=suffix)
    backend.post_processor = _bert_layout(vocabulary, special_tokens)
    _add_special_tokens(backend, special_tokens)
    return backend


def build_unigram(
    pieces: Sequence[tuple[str, float]], lowercase: bool, strip_accents: bool | None = None
) -> tokenizers.Tokenizer:
    """Build SentencePiece's pipeline around pieces with log probabilities: NFKC, `▁` for the space before a word."""
    unknown = [piece for piece, _ in pieces].index(UNIGRAM_SPECIAL_TOKENS["unk"])
    backend = tokenizers.Tokenizer(models.Unigram(list(pieces), unk_id=unknown, byte_fallback=False))
    backend.normalizer = _folded(lowercase, strip_accents)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Metaspace(prepend_scheme="always"),
            # As SentencePiece, no piece joins letters and punctuation: an answer ends before the full stop.
            pre_tokenizers.Split(tokenizers.Regex(r"▁?[\p{P}\p{Sm}\p{Sc}\p{Sk}]"), "isolated"),
        ]
    )
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    backend.post_processor = _bert_layout({piece: i for i, (piece, _) in enumerate(pieces)})
    _add_special_tokens(backend, UNIGRAM_SPECIAL_TOKENS)
    return backend


UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4
"""Types of SentencePiece's pieces that are not ordinary."""


def build_sentencepiece(
    pieces: Sequence[tuple[str, float, int]],
    charsmap: bytes,
    special_tokens: Mapping[str, str],
    added: Sequence[str],
    lowercase: bool,
    splits_punctuation: bool,
) -> tokenizers.Tokenizer:
    """Build the pipeline of a Unigram model of SentencePiece (Kudo and Richardson 2018), as DeBERTa has it.

    Args:
        pieces: their texts, scores and types, in the order of their ids.
        charsmap: table of characters that are replaced, in SentencePiece's format; empty where none is.
        added: tokens behind the pieces, in the order of their ids; text is cut at them first.

    Raises: ValueError without an unknown piece; whatever the library raises for a broken table.
    """
    unknown = next((i for i, (*_, kind) in enumerate(pieces) if kind == UNKNOWN), None)
    if unknown is None:
        raise ValueError(f"none of its {len(pieces)} pieces stands for what is unknown")
    scores = [(text, score) for text, score, _ in pieces]
    backend = tokenizers.Tokenizer(models.Unigram(scores, unk_id=unknown, byte_fallback=False))
    replaced = [normalizers.Precompiled(charsmap)] if charsmap else []
    spaces = [normalizers.Strip(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")]
    backend.normalizer = normalizers.Sequence([*([normalizers.Lowercase()] if lowercase else []), *replaced, *spaces])
    names = [text for text, _, kind in pieces if kind in (UNKNOWN, CONTROL)]
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *([pre_tokenizers.Punctuation("isolated")] if splits_punctuation else []),
            pre_tokenizers.Metaspace(prepend_scheme="always"),
            split_names(names),
        ]
    )
    backend.decoder = decoders.Metaspace(prepend_scheme="always")
    cut_first = [*(text for text, _, kind in pieces if kind == USER_DEFINED), *added]
    backend.add_tokens([AddedToken(token, normalized=False) for token in cut_first])
    _add_special_tokens(backend, special_tokens)
    ids: dict[str, Any] = {token: backend.token_to_id(token) for token in special_tokens.values()}
    backend.post_processor = _bert_layout(ids, special_tokens)
    return backend


def split_names(names: Iterable[str]) -> Any:
    """Cut names of pieces behind their first characters: no text gives these pieces, but a Unigram model would."""
    first = "|".join(f"{re.escape(name[0])}(?={re.escape(name[1:])})" for name in names)
    return pre_tokenizers.Split(tokenizers.Regex(first), "merged_with_previous")


def _bert_layout(vocabulary: Mapping[str, int], special_tokens: Mapping[str, str] = SPECIAL_TOKENS) -> Any:
    cls, sep = special_tokens["cls"], special_tokens["sep"]
    return processors.TemplateProcessing(
        single=f"{cls} $A {sep}",
        pair=f"{cls} $A {sep} $B:1 {sep}:1",
        special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])],
    )


def _folded(lowercase: bool, strip_accents: bool | None) -> Any:
    """Normalizer to lower case, without accents; it composes again, since decomposition also splits Hangul.

    Args:
        strip_accents: whether accents go; as `lowercase` says when None.
    """
    strips = lowercase if strip_accents is None else strip_accents
    stripped = [normalizers.NFKD(), normalizers.StripAccents()] if strips else []
    parts = [*stripped, *([normalizers.Lowercase()] if lowercase else [])]
    return normalizers.Sequence([*parts, normalizers.NFKC()]) if parts else normalizers.NFKC()


def _add_special_tokens(backend: tokenizers.Tokenizer, special_tokens: Mapping[str, str]) -> None:
    """Add special tokens; the mask includes the space before it, as in RoBERTa and ALBERT: it is a whole word."""
    backend.add_special_tokens(
        [AddedToken(token, lstrip=role == "mask", normalized=False) for role, token in special_tokens.items()]
    )
