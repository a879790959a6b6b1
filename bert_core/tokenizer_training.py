"""Learning a vocabulary from text: WordPiece, byte-level BPE, Unigram.

The same text gives the same tokenizer, byte for byte, in every process. Memory grows with the number of different
words only.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from bert_core.errors import TokenizerError
from bert_core.tokenization import Tokenizer
from bert_core.tokenizer_pipelines import (
    BYTE_BPE_SPECIAL_TOKENS,
    SPECIAL_TOKENS,
    build_byte_bpe,
    build_wordpiece,
)

_NO_WORD = "the text to learn a vocabulary from holds no word; check the corpus files"


def train_wordpiece(
    texts: Iterable[str], vocab_size: int = 30522, lowercase: bool = True, min_frequency: int = 2
) -> Tokenizer:
    """Learn a WordPiece vocabulary: special tokens first (ids 0 to 4), then characters, then pieces by merging.

    The same text gives the same vocabulary. The library alone does not promise that: it numbers the characters in the
    order of a randomly seeded hash map, and equal counts are merged by number. So the text is read once to count its
    words; then the characters get fixed numbers and the counted words are learnt from. Memory grows with the number
    of different words only.

    Raises: TokenizerError when the text holds no word, or `vocab_size` has no room for the characters.
    """
    cleaner = build_wordpiece({token: i for i, token in enumerate(SPECIAL_TOKENS.values())}, lowercase)
    words = _count_words(texts, cleaner)
    if not words:
        raise TokenizerError(_NO_WORD)
    inside: set[str] = set()
    counts: Counter[str] = Counter()
    for word, count in words.items():
        inside.update(word[1:])
        for character in word:
            counts[character] += count
    num_characters = min(len(counts), (vocab_size - len(SPECIAL_TOKENS)) // 3, max(100, vocab_size // 30))
    if num_characters < 1:
        raise TokenizerError(f"vocab_size {vocab_size} has no room for characters; 100 is the least that makes sense")
    by_count = sorted(counts, key=lambda character: (-counts[character], character))
    alphabet = sorted(by_count[:num_characters])
    fixed = [*SPECIAL_TOKENS.values(), *alphabet, *(f"##{c}" for c in alphabet if c in inside)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        show_progress=False,
        special_tokens=fixed,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
    )
    learner = tokenizers.Tokenizer(models.WordPiece(unk_token=SPECIAL_TOKENS["unk"]))
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    learner.train_from_iterator(_repeat_words(words), trainer)
    return Tokenizer(build_wordpiece(learner.get_vocab(), lowercase), SPECIAL_TOKENS)


def train_byte_bpe(
    texts: Iterable[str], vocab_size: int = 50265, lowercase: bool = False, min_frequency: int = 2
) -> Tokenizer:
    """Learn byte pairs (Radford et al. 2019; RoBERTa's vocabulary has 50265): special tokens, all bytes, then merges.

    Here the library does promise the same vocabulary: the bytes are numbered in a fixed order before any word is seen.

    Raises: TokenizerError when the text holds no word, or `vocab_size` has no room for the bytes.
    """
    special_tokens = list(BYTE_BPE_SPECIAL_TOKENS.values())
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    least = len(special_tokens) + len(alphabet)
    if vocab_size < least:
        raise TokenizerError(f"vocab_size {vocab_size} has no room for the {least} bytes and special tokens; raise it")
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        show_progress=False,
        special_tokens=special_tokens,
        initial_alphabet=alphabet,
    )
    numbers = {token: i for i, token in enumerate(special_tokens)}
    learner = build_byte_bpe(numbers, [], lowercase)
    learner.train_from_iterator(iter(texts), trainer)
    learnt = json.loads(learner.to_str())["model"]
    if not learnt["merges"] and not json.loads(trainer.__getstate__())["BpeTrainer"]["words"]:
        raise TokenizerError(_NO_WORD)
    merges = [(left, right) for left, right in learnt["merges"]]
    return Tokenizer(build_byte_bpe(learnt["vocab"], merges, lowercase), BYTE_BPE_SPECIAL_TOKENS)


def _count_words(texts: Iterable[str], cleaner: tokenizers.Tokenizer) -> dict[str, int]:
    """Words and their counts, counted by the library's threads: a trainer that may merge nothing keeps just these."""
    counter = trainers.WordPieceTrainer(vocab_size=0, show_progress=False)
    cleaner.train_from_iterator(iter(texts), counter)
    state = json.loads(counter.__getstate__())
    words: dict[str, int] = state["WordPieceTrainer"]["bpe_trainer"]["words"]
    return dict(sorted(words.items()))


def _repeat_words(words: Mapping[str, int], chunk: int = 4096) -> Iterator[str]:
    for word, count in words.items():
        for start in range(0, count, chunk):
            yield f"{word} " * min(chunk, count - start)
