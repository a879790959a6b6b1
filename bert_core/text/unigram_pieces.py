"""Learning the pieces of a Unigram model (Kudo 2018, section 3.2) from counted words.

The model gives each piece a probability, a segmentation the product of its pieces', a word the sum over all its
segmentations. Training begins with many frequent substrings, fits their probabilities by expectation maximization,
drops those whose loss costs the words' likelihood least, and so on until the wanted number is left.

The `tokenizers` library has a trainer for this, but it adds floating-point numbers in the order of a randomly seeded
hash map and of its threads: near ties go one way or the other, and each process learns other scores and pieces. Here
the order is fixed.

A word of n characters is n + 1 nodes, one before each character and one at the end. An arc is a piece that leads from
one node of a word to a later one. Letters: P nodes of all words, A arcs, K pieces, W words.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

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


def learn_pieces(words: Mapping[str, int], num_pieces: int, min_frequency: int) -> dict[str, float]:
    """Learn all characters and the best `num_pieces` longer pieces, or fewer, with their log probabilities.

    Longer pieces begin as substrings that occur at least `min_frequency` times. Of very many words the rarest are
    ignored.
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
