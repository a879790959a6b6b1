"""Learning a vocabulary from text: WordPiece, byte-level BPE, Unigram.

The same text gives the same tokenizer, byte for byte, in every process. Memory grows with the number of different
words only.
"""

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate, pairwise
from threading import Thread
from typing import NamedTuple, Self

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import models, pre_tokenizers, trainers

from bert_core.errors import TokenizerError
from bert_core.text.characters import num_common
from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_pipelines import (
    BYTE_BPE_SPECIAL_TOKENS,
    SPECIAL_TOKENS,
    UNIGRAM_SPECIAL_TOKENS,
    build_byte_bpe,
    build_unigram,
    build_wordpiece,
)

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

LONGEST_PIECE = 16
"""Characters of the longest piece, as in SentencePiece."""
_LONGEST_WORD = 256
"""Characters at which a longer word (a line without a space) is cut, since a pass takes a step for each."""
_MOST_CHARACTERS = 8_000_000
"""Characters of different words: the most frequent words that fit are used, so that memory stays below some 3 GB."""
_SEEDS_PER_PIECE = 5
_KEPT_SHARE = 0.75
_PASSES_PER_ROUND = 2
_LEAST_COUNT = 0.5
"""Expected count below which a longer piece is dropped; a character counts at least as often."""
_TIMES_AT_ONCE = 4096
"""Times at most that a frequent word is repeated in one text."""


def learn_pieces(words: Mapping[str, int], num_pieces: int, min_frequency: int) -> dict[str, float]:
    """Learn all characters and the best `num_pieces` longer pieces, or fewer, with their log probabilities.

    Longer pieces begin as substrings that occur at least `min_frequency` times. Of very many words the rarest are
    ignored. A Unigram model (Kudo 2018, section 3.2) gives each piece a probability, a segmentation the product of its
    pieces', a word the sum over all its segmentations. Training begins with many substrings, fits their probabilities
    by expectation maximization, and drops those whose loss costs the words' likelihood least, until the wanted number
    is left. The `tokenizers` library adds floating-point numbers in the order of a randomly seeded hash map and of its
    threads: near ties go either way, and each process learns other pieces. Here the order is fixed.

    A word of n characters is n + 1 nodes, one before each character and one at the end. An arc is a piece that leads
    from one node of a word to a later one. Letters: P nodes of all words, A arcs, K pieces, W words.
    """
    counts = _most_frequent(words)
    num_seeds = _SEEDS_PER_PIECE * num_pieces
    pieces, _, _ = _find_pieces(_Words.join(counts), num_seeds, min_frequency)
    num_characters = sum(len(piece) == 1 for piece in pieces)
    # The longer pieces become words too, that never occur: the probability of such a word without the arc that
    # spans it is that of the piece's other segmentations.
    words_and_pieces = _Words.join(counts, pieces[num_characters:])
    same, expected, arcs = _find_pieces(words_and_pieces, num_seeds, min_frequency)
    assert same == pieces, "words that never occur change no count"
    lattice = _Lattice.build(words_and_pieces, arcs, num_characters)
    is_character = np.arange(len(pieces)) < num_characters
    while True:
        for _ in range(_PASSES_PER_ROUND):
            alive = is_character | (expected >= _LEAST_COUNT)
            likely = np.where(alive, np.maximum(expected, _LEAST_COUNT), 1.0)
            scores = np.log(likely / likely[alive].sum())
            lattice = lattice.keep(alive)
            expected, others = lattice.expect(scores)
        longer = np.flatnonzero(alive & ~is_character)
        if len(longer) <= num_pieces:
            return {pieces[i]: float(scores[i]) for i in np.flatnonzero(alive)}
        # The loss, if each use of a piece becomes its other segmentations; in single precision, since the last bits
        # of an exponential differ between processors.
        loss = (expected[longer] * (scores - others)[longer]).astype(np.float32)
        num_kept = max(num_pieces, int(_KEPT_SHARE * len(longer)))
        expected[longer[np.argsort(-loss, kind="stable")[num_kept:]]] = 0.0


def _most_frequent(words: Mapping[str, int]) -> dict[str, int]:
    """Pick the words to learn from, long ones cut."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for start in range(0, len(word), _LONGEST_WORD):
            counts[word[start : start + _LONGEST_WORD]] += count
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    num_characters = accumulate(map(len, ranked))
    return {word: counts[word] for word, total in zip(ranked, num_characters, strict=True) if total <= _MOST_CHARACTERS}


@dataclass(frozen=True)
class _Words:
    """Words laid end to end, a node for each character and one more before each word's first."""

    characters: IntArray  # (P,) code points; the value at a word's first node is never used
    room: IntArray  # (P,) characters of the word after this node
    weights: FloatArray  # (P,) how often the node's word occurs
    lasts: IntArray  # (W,) each word's last node
    num_counted: int
    """Number of words that occur; the others follow them."""

    @classmethod
    def join(cls, counts: Mapping[str, int], others: Sequence[str] = ()) -> Self:
        words = [*counts, *others]
        sizes = np.array([len(word) + 1 for word in words], np.int64)
        lasts = np.cumsum(sizes) - 1
        characters = np.frombuffer("".join(f"\0{word}" for word in words).encode("utf-32-le"), np.uint32)
        weights = np.concatenate([np.fromiter(counts.values(), np.float64), np.zeros(len(others))])
        room = np.repeat(lasts, sizes) - np.arange(len(characters))
        return cls(characters.astype(np.int64), room, np.repeat(weights, sizes), lasts, len(counts))


class _Arcs(NamedTuple):
    starts: NDArray[np.int32]  # (A,) nodes
    ends: NDArray[np.int32]  # (A,)
    pieces: NDArray[np.int32]  # (A,)


def _find_pieces(words: _Words, num_seeds: int, min_frequency: int) -> tuple[list[str], FloatArray, _Arcs]:
    """Find the characters, then the longer substrings that cover most text; how often each occurs (K,), and where.

    A substring of n characters is numbered from its first n - 1 and its last, so that numbers rise with the
    alphabet, and what is too rare is not looked at again.
    """
    alphabet, letters = np.unique(words.characters, return_inverse=True)
    levels: list[_Arcs] = []
    counts: list[FloatArray] = []
    starts, numbers = np.arange(len(letters)), np.zeros(len(letters), np.int64)
    for length in range(1, LONGEST_PIECE + 1):
        inside = words.room[starts] >= length
        starts, numbers = starts[inside], numbers[inside]
        keys = numbers * len(alphabet) + letters[starts + length]
        _, numbers = np.unique(keys, return_inverse=True)
        count: FloatArray = np.bincount(numbers, words.weights[starts]).astype(np.float64)
        frequent = count >= (min_frequency if length > 1 else 0)
        starts, numbers = starts[frequent[numbers]], (np.cumsum(frequent) - 1)[numbers[frequent[numbers]]]
        counts.append(count[frequent])
        first_number = sum(map(len, counts[:-1]))
        levels.append(_Arcs(*(part.astype(np.int32) for part in (starts, starts + length, numbers + first_number))))
    num_characters = len(counts[0])
    lengths = np.repeat(np.arange(1, LONGEST_PIECE + 1), [len(count) for count in counts])
    count = np.concatenate(counts)
    by_cover = np.argsort(-(count * lengths)[num_characters:], kind="stable")[:num_seeds] + num_characters
    chosen = np.concatenate([np.arange(num_characters), np.sort(by_cover)])
    renumbered = np.full(len(count), -1, np.int32)
    renumbered[chosen] = np.arange(len(chosen))
    arcs = _Arcs(*map(np.concatenate, zip(*levels, strict=True)))
    arcs = arcs._replace(pieces=renumbered[arcs.pieces])
    arcs = _Arcs(*(part[arcs.pieces >= 0] for part in arcs))
    return _spell(words, arcs, len(chosen)), count[chosen], arcs


def _spell(words: _Words, arcs: _Arcs, num_pieces: int) -> list[str]:
    """Spell the pieces, each read off one of its arcs."""
    an_arc = np.zeros(num_pieces, np.int64)
    an_arc[arcs.pieces] = np.arange(len(arcs.pieces))
    text = words.characters.astype("<u4").tobytes().decode("utf-32-le")
    return [text[start + 1 : end + 1] for start, end in zip(arcs.starts[an_arc], arcs.ends[an_arc], strict=True)]


@dataclass(frozen=True)
class _Lattice:
    """All segmentations of all words; arcs that end equally deep in their words stand together, for one step."""

    words: _Words
    arcs: _Arcs
    """Arcs, sorted by the depth of their ends, then by their ends."""
    owners: NDArray[np.int32]  # (P,) the piece that the node's word is, 0 for the words that occur
    depths: IntArray  # (P,) characters of the word up to the node
    num_characters: int

    @classmethod
    def build(cls, words: _Words, arcs: _Arcs, num_characters: int) -> Self:
        sizes = np.diff(words.lasts, prepend=-1)
        is_piece = np.arange(len(sizes)) >= words.num_counted
        numbers = np.where(is_piece, np.arange(len(sizes)) - words.num_counted + num_characters, 0)
        owners = np.repeat(numbers, sizes).astype(np.int32)
        # A piece's own word lacks the arc that spans it.
        arcs = _Arcs(*(part[(arcs.pieces != owners[arcs.starts]) | (arcs.pieces == 0)] for part in arcs))
        depths = np.repeat(sizes - 1, sizes) - words.room
        order = np.argsort(depths[arcs.ends] * len(depths) + arcs.ends, kind="stable")
        return cls(words, _Arcs(*(part[order] for part in arcs)), owners, depths, num_characters)

    def keep(self, alive: BoolArray) -> Self:
        """Remove the arcs of dead pieces, and those of the words that these pieces are."""
        kept = alive[self.arcs.pieces] & alive[self.owners[self.arcs.starts]]
        return replace(self, arcs=_Arcs(*(part[kept] for part in self.arcs)))

    def expect(self, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Expected count of each piece in the words, (K,), and the log probability of its other segmentations.

        Forward: the log probability of reaching a node. Backward: a node's expected visits are shared out among the
        arcs that end in it (Kudo 2018, section 3.2, the E step).
        """
        starts, ends, pieces = self.arcs
        firsts = np.flatnonzero(np.diff(ends, prepend=-1))  # of the arcs with one end
        reached = np.zeros(len(self.owners))
        steps = list(self._steps(firsts))
        for arcs, groups in steps:
            paths = reached[starts[arcs]] + scores[pieces[arcs]]
            highest = np.maximum.reduceat(paths, groups)
            sizes = np.diff(groups, append=len(paths))
            total = np.add.reduceat(np.exp(paths - np.repeat(highest, sizes)), groups)
            reached[ends[arcs][groups]] = highest + np.log(total)
        visits = np.zeros(len(self.owners))
        visits[self.words.lasts] = self.words.weights[self.words.lasts]
        uses = np.empty(len(pieces))
        for arcs, _ in reversed(steps):
            shares = np.exp(reached[starts[arcs]] + scores[pieces[arcs]] - reached[ends[arcs]])
            uses[arcs] = visits[ends[arcs]] * shares
            np.add.at(visits, starts[arcs], uses[arcs])
        others = np.concatenate([np.zeros(self.num_characters), reached[self.words.lasts[self.words.num_counted :]]])
        expected: FloatArray = np.bincount(pieces, uses, len(scores)).astype(np.float64)
        return expected, others

    def _steps(self, firsts: IntArray) -> Iterator[tuple[slice, IntArray]]:
        """Yield the arcs of each depth, and where among them those of each node begin."""
        ends = self.arcs.ends
        depths = self.depths[ends[firsts]]
        bounds = [0, *(np.flatnonzero(np.diff(depths)) + 1).tolist(), len(firsts)]
        for low, high in pairwise(bounds):
            stop = int(firsts[high]) if high < len(firsts) else len(ends)
            yield slice(int(firsts[low]), stop), firsts[low:high] - firsts[low]


logger = logging.getLogger(__name__)

LONGEST_WORDPIECE_WORD = 100
"""Letters of the longest word that WordPiece cuts; a longer one (base64, a text without blanks) is unknown whole."""
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

    The library promises no fixed vocabulary; see `learn_pieces`. A language that is written without spaces has
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


def _choose_alphabet(counts: Counter[str], vocab_size: int) -> list[str]:
    """Choose the most frequent characters, in order; rare ones (of other scripts, say) must leave room for pieces.

    A script of thousands of characters gets those that the text nearly consists of, or else most of it were unknown.
    Raises: TokenizerError when there is no room.
    """
    wanted = max(100, vocab_size // 30, num_common(counts))
    num_characters = min(len(counts), (vocab_size - len(SPECIAL_TOKENS)) // 3, wanted)
    if num_characters < 1:
        raise TokenizerError(f"vocab_size {vocab_size} has no room for characters; 100 is the least that makes sense")
    return sorted(sorted(counts, key=lambda character: (-counts[character], character))[:num_characters])


def _repeat_words(words: Mapping[str, int]) -> Iterator[str]:
    for word, count in words.items():
        for start in range(0, count, _TIMES_AT_ONCE):
            yield f"{word} " * min(_TIMES_AT_ONCE, count - start)
