"""Learning a vocabulary from text: WordPiece, byte-level BPE, Unigram.

The same text gives the same tokenizer, byte for byte, in every process. Memory grows with the number of different
words only.
"""

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import accumulate
from threading import Thread

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from bert_core.errors import TokenizerError
from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_pipelines import (
    BYTE_BPE_SPECIAL_TOKENS,
    SPECIAL_TOKENS,
    UNIGRAM_SPECIAL_TOKENS,
    build_byte_bpe,
    build_unigram,
    build_wordpiece,
)
from bert_core.text.unigram_pieces import learn_pieces

logger = logging.getLogger(__name__)

LONGEST_WORDPIECE_WORD = 100
"""Letters of the longest word that WordPiece cuts; a longer one (base64, a text without blanks) is unknown whole."""
_COVERED_SHARE = 0.9995
"""Share of a text's characters that an alphabet covers where there is room, as in SentencePiece (Kudo 2018)."""
_LONGEST_RUN = 256
"""Letters, digits or signs in a row that byte-level BPE learns as one word: time grows with the square of it."""
_RUN = re.compile(rf"[^\W\d_]{{{_LONGEST_RUN}}}|\d{{{_LONGEST_RUN}}}|(?:[^\w\s]|_){{{_LONGEST_RUN}}}")


def train_wordpiece(
    texts: Iterable[str],
    vocab_size: int = 30522,
    lowercase: bool = True,
    min_frequency: int = 2,
    strip_accents: bool | None = None,
) -> Tokenizer:
    """Learn a WordPiece vocabulary: special tokens first (ids 0 to 4), then characters, then pieces by merging.

    The same text gives the same vocabulary. The library alone does not promise that: it numbers the characters in the
    order of a randomly seeded hash map, and equal counts are merged by number. So the text is read once to count its
    words; then the characters get fixed numbers, and the vocabulary is learned from the counted words. Memory grows
    with the number of different words only. Words that WordPiece never cuts (LONGEST_WORDPIECE_WORD) teach nothing:
    they are left out, and a warning tells their number.

    Raises: TokenizerError when the text holds no word, or `vocab_size` has no room for the characters.
    """
    numbers = {token: i for i, token in enumerate(SPECIAL_TOKENS.values())}
    words = _without_long_words(_count_words(texts, build_wordpiece(numbers, lowercase, strip_accents)))
    alphabet = _choose_alphabet(_count_characters(words), vocab_size)
    inside = set().union(*(word[1:] for word in words))
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
    _train(learner, _repeat_words(words), trainer)
    return Tokenizer(build_wordpiece(learner.get_vocab(), lowercase, strip_accents), SPECIAL_TOKENS)


def train_byte_bpe(
    texts: Iterable[str],
    vocab_size: int = 50265,
    lowercase: bool = False,
    min_frequency: int = 2,
    strip_accents: bool | None = None,
) -> Tokenizer:
    """Learn byte pairs (Radford et al. 2019; RoBERTa's vocabulary has 50265): special tokens, all bytes, then merges.

    Here the library does promise the same vocabulary: the bytes are numbered in a fixed order before any word is seen.
    A run of letters without a blank is cut (_LONGEST_RUN), or time would grow with the square of its length.

    Raises: TokenizerError when the text repeats nothing, or `vocab_size` has no room beside the bytes.
    """
    special_tokens = list(BYTE_BPE_SPECIAL_TOKENS.values())
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    least = len(special_tokens) + len(alphabet)
    if vocab_size <= least:
        raise TokenizerError(f"vocab_size {vocab_size} has no room beside {least} bytes and special tokens; raise it")
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        show_progress=False,
        special_tokens=special_tokens,
        initial_alphabet=alphabet,
    )
    numbers = {token: i for i, token in enumerate(special_tokens)}
    learner = build_byte_bpe(numbers, [], lowercase, strip_accents=strip_accents)
    _train(learner, (part for text in texts for part in _RUN.sub(r"\g<0>\n", text).split("\n")), trainer)
    learned = json.loads(learner.to_str())["model"]
    if not learned["merges"]:
        raise TokenizerError(f"no two bytes of the text occur together {min_frequency} times; check the corpus files")
    merges = [(left, right) for left, right in learned["merges"]]
    return Tokenizer(
        build_byte_bpe(learned["vocab"], merges, lowercase, strip_accents=strip_accents), BYTE_BPE_SPECIAL_TOKENS
    )


def train_unigram(
    texts: Iterable[str],
    vocab_size: int = 30000,
    lowercase: bool = True,
    min_frequency: int = 2,
    strip_accents: bool | None = None,
) -> Tokenizer:
    """Learn Unigram pieces (Kudo 2018; ALBERT's vocabulary has 30000): special tokens, then pieces by probability.

    The library promises no fixed vocabulary; see `unigram_pieces`. A language that is written without spaces has
    lines for words, nearly all of them different: lower the text's `max_bytes` there.

    Raises: TokenizerError when the text holds no word, or `vocab_size` has no room for the characters.
    """
    special_tokens = [(token, 0.0) for token in UNIGRAM_SPECIAL_TOKENS.values()]
    words = _count_words(texts, build_unigram(special_tokens, lowercase, strip_accents))
    alphabet = _choose_alphabet(_count_characters(words), vocab_size)
    learned = learn_pieces(words, vocab_size - len(special_tokens) - len(alphabet), min_frequency)
    kept = ((piece, round(score, 6)) for piece, score in learned.items() if len(piece) > 1 or piece in alphabet)
    pieces = sorted(kept, key=lambda entry: (-entry[1], entry[0]))
    return Tokenizer(build_unigram([*special_tokens, *pieces], lowercase, strip_accents), UNIGRAM_SPECIAL_TOKENS)


TRAINERS: dict[str, Callable[..., Tokenizer]] = {
    "wordpiece": train_wordpiece,
    "byte_bpe": train_byte_bpe,
    "unigram": train_unigram,
}
"""Kind of tokenizer → function of texts, vocabulary size, lower case or not, least frequency, whether accents are
stripped (None: as lower case says)."""


def _count_words(texts: Iterable[str], pipeline: tokenizers.Tokenizer) -> dict[str, int]:
    """Count words, by the library's threads: a trainer that may merge nothing keeps just the words and counts.

    Raises: TokenizerError when there is none.
    """
    counter = trainers.WordPieceTrainer(vocab_size=0, show_progress=False)
    reader = tokenizers.Tokenizer(models.WordPiece(unk_token=SPECIAL_TOKENS["unk"]))
    reader.normalizer, reader.pre_tokenizer = pipeline.normalizer, pipeline.pre_tokenizer
    _train(reader, iter(texts), counter)
    state = json.loads(counter.__getstate__())
    words: dict[str, int] = state["WordPieceTrainer"]["bpe_trainer"]["words"]
    if not words:
        raise TokenizerError("the text to learn a vocabulary from holds no word; check the corpus files")
    return dict(sorted(words.items()))


def _train(learner: tokenizers.Tokenizer, texts: Iterator[str], trainer: trainers.Trainer) -> None:
    """Train in a thread: the library looks at no signal until it is done, and the thread that waits does."""
    is_over = False
    errors: list[BaseException] = []

    def read() -> Iterator[str]:
        for text in texts:
            if is_over:
                return
            yield text

    def work() -> None:
        try:
            learner.train_from_iterator(read(), trainer)
        except BaseException as error:
            errors.append(error)

    thread = Thread(target=work, daemon=True)
    thread.start()
    try:
        thread.join()
    finally:
        is_over = True
    if errors:
        raise errors[0]


def _without_long_words(words: Mapping[str, int]) -> dict[str, int]:
    """Leave out the words that WordPiece never cuts. Raises: TokenizerError when no other is there."""
    kept = {word: count for word, count in words.items() if len(word) <= LONGEST_WORDPIECE_WORD}
    if not kept:
        raise TokenizerError(
            f"every word of the text has more than {LONGEST_WORDPIECE_WORD} letters, and WordPiece reads none so long; "
            "put blanks between words, or train byte_bpe or unigram"
        )
    if num_left_out := sum(words.values()) - sum(kept.values()):
        _warn_once(
            f"left out {num_left_out:,} of {sum(words.values()):,} words: they have more than "
            f"{LONGEST_WORDPIECE_WORD} letters, and WordPiece reads each as unknown ([UNK])"
        )
    return kept


@cache
def _warn_once(text: str) -> None:
    """Warn, but not again when the same text is learned from again, as a plan does to measure the time."""
    logger.warning(text)


def _count_characters(words: Mapping[str, int]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    return counts


def _choose_alphabet(counts: Mapping[str, int], vocab_size: int) -> list[str]:
    """Choose the most frequent characters, in order; rare ones (of other scripts, say) must leave room for pieces.

    A script of thousands of characters gets those that the text nearly consists of, or else most of it were unknown.
    Raises: TokenizerError when there is no room.
    """
    covered = accumulate(sorted(counts.values(), reverse=True))
    num_common = 1 + sum(number < _COVERED_SHARE * sum(counts.values()) for number in covered)
    wanted = max(100, vocab_size // 30, num_common)
    num_characters = min(len(counts), (vocab_size - len(SPECIAL_TOKENS)) // 3, wanted)
    if num_characters < 1:
        raise TokenizerError(f"vocab_size {vocab_size} has no room for characters; 100 is the least that makes sense")
    return sorted(sorted(counts, key=lambda character: (-counts[character], character))[:num_characters])


def _repeat_words(words: Mapping[str, int], chunk: int = 4096) -> Iterator[str]:
    for word, count in words.items():
        for start in range(0, count, chunk):
            yield f"{word} " * min(chunk, count - start)
