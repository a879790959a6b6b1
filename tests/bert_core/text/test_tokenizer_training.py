"""Training vocabularies: what they hold, that every process learns the same, and what is refused.

Run alone: pytest tests/bert_core/text/test_tokenizer_training.py
"""

import gzip
import subprocess
import sys
from collections.abc import Callable

import pytest

from bert_core.errors import TokenizerError
from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_pipelines import BYTE_BPE_SPECIAL_TOKENS, SPECIAL_TOKENS, UNIGRAM_SPECIAL_TOKENS
from bert_core.text.tokenizer_training import TRAINERS, train_byte_bpe, train_unigram, train_wordpiece
from tests.shared_data import shared_file

TEXTS = [
    "The lighthouse keeper walked along the northern shore, counting boats.",
    "Señor Núñez keeps 27 boats in the harbour; the lighthouse guides them home!",
    "Walking home, the keeper counted: one boat, two boats, three boats.",
] * 5


@pytest.fixture(scope="module")
def uncased() -> Tokenizer:
    return train_wordpiece(TEXTS, vocab_size=160)


@pytest.mark.parametrize(
    ("algorithm", "special_tokens"),
    [("wordpiece", SPECIAL_TOKENS), ("byte_bpe", BYTE_BPE_SPECIAL_TOKENS), ("unigram", UNIGRAM_SPECIAL_TOKENS)],
)
def test_special_tokens_come_first(algorithm: str, special_tokens: dict[str, str]) -> None:
    learned = TRAINERS[algorithm](TEXTS, 300, True, 2)
    assert [learned.token(i) for i in range(5)] == list(special_tokens.values())
    by_role = {role: getattr(learned, f"{role}_id") for role in special_tokens}
    assert by_role == {role: i for i, role in enumerate(special_tokens)}


def test_frequent_words_are_whole_and_others_are_pieces(uncased: Tokenizer) -> None:
    (ids,) = uncased.encode_ids(["boats keeperboats"])
    tokens = [uncased.token(i) for i in ids]
    assert tokens[0] == "boats"
    assert all(token.startswith("##") for token in tokens[2:])
    assert uncased.decode(ids) == "boats keeperboats"


@pytest.mark.parametrize("algorithm", TRAINERS)
def test_training_gives_the_same_vocabulary_in_every_process(algorithm: str) -> None:
    """Of the library's trainers only that of byte-level BPE does: the others go by randomly seeded hash maps."""
    program = (
        "from bert_core.text.tokenizer_training import TRAINERS\n"
        "texts = [f'{a}{b} {b}{c}a {c}{a}b' for a in 'abcdefgh' for b in 'ijklmnop' for c in 'qrst']\n"
        f"print(TRAINERS['{algorithm}'](iter(texts), 300 if '{algorithm}' == 'byte_bpe' else 90, True, 2).fingerprint)"
    )
    prints = {
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    }
    assert len(prints) == 1


def test_training_counts_words_as_often_as_they_occur() -> None:
    texts = ["aab " * 10, "abb " * 9]
    learned = train_wordpiece(texts, vocab_size=100, min_frequency=10)
    assert learned.id("aab") != learned.unk_id
    assert learned.id("abb") == learned.unk_id


@pytest.mark.parametrize(("algorithm", "vocab_size"), [("wordpiece", 100), ("byte_bpe", 280), ("unigram", 50)])
def test_min_frequency_and_vocab_size_bound_the_vocabulary(algorithm: str, vocab_size: int) -> None:
    train = TRAINERS[algorithm]
    large, small = train(TEXTS, 2000, True, 2), train(TEXTS, vocab_size, True, 2)
    assert small.vocab_size <= vocab_size
    assert small.vocab_size < large.vocab_size < 2000
    assert train(TEXTS, 2000, True, 30).vocab_size < large.vocab_size


@pytest.mark.parametrize("train", [train_wordpiece, train_unigram])
def test_rare_characters_leave_room_for_pieces(train: Callable[..., Tokenizer]) -> None:
    rare = ["".join(chr(0x4E00 + i) + " " for i in range(3000))]
    learned = train(TEXTS + rare, vocab_size=300)
    assert len(learned.encode_ids(["boats"])[0]) == 1
    assert sum(learned.id(chr(0x4E00 + i)) != learned.unk_id for i in range(3000)) < 100


@pytest.mark.parametrize("algorithm", TRAINERS)
def test_special_tokens_written_in_a_text_are_no_pieces(algorithm: str) -> None:
    learned = TRAINERS[algorithm](["a<unk> b<pad> <s> [MASK] c[CLS]"] * 50, 300, False, 2)
    assert len({learned.token(i) for i in range(learned.vocab_size)}) == learned.vocab_size
    assert not {learned.unk_id, learned.pad_id, learned.cls_id, learned.mask_id} & set(
        learned.encode_ids(["a<unk> b<pad> <s> [MASK] c[CLS]"])[0]
    )


def test_no_byte_is_unknown_to_byte_level_bpe() -> None:
    learned = train_byte_bpe(TEXTS, 300)
    (ids,) = learned.encode_ids(["漢字 \x07 \U0001f600"])
    assert learned.unk_id not in ids
    assert learned.decode(ids).strip() == "漢字 \x07 \U0001f600"


@pytest.mark.parametrize("algorithm", TRAINERS)
def test_capitals_and_accents_count_unless_uncased(algorithm: str) -> None:
    uncased, cased = (TRAINERS[algorithm](TEXTS, 400, lowercase, 2) for lowercase in (True, False))
    assert (uncased.lowercase, cased.lowercase) == (True, False)
    assert uncased.encode_ids(["SEÑOR"]) == uncased.encode_ids(["senor"])
    assert cased.encode_ids(["The"]) != cased.encode_ids(["the"])


@pytest.mark.parametrize("algorithm", TRAINERS)
@pytest.mark.parametrize("texts", [[], ["", " \n "]])
def test_training_on_nothing_is_refused(algorithm: str, texts: list[str]) -> None:
    with pytest.raises(TokenizerError, match=r"holds no word|no two bytes"):
        TRAINERS[algorithm](texts, 300, True, 2)


@pytest.mark.parametrize(("algorithm", "vocab_size"), [("wordpiece", 6), ("byte_bpe", 261), ("unigram", 6)])
def test_training_without_room_is_refused(algorithm: str, vocab_size: int) -> None:
    with pytest.raises(TokenizerError, match=f"vocab_size {vocab_size} has no room"):
        TRAINERS[algorithm](TEXTS, vocab_size, True, 2)


@pytest.mark.parametrize("algorithm", TRAINERS)
def test_real_text_has_few_unknowns(algorithm: str) -> None:
    text = gzip.decompress(shared_file("pretrain/wikitext-2/valid.txt.gz").read_bytes()).decode()
    lines = text.replace("<unk>", "").split("\n")
    tokenizer = TRAINERS[algorithm](lines[1000:], 4000, True, 2)
    ids = [token for line in tokenizer.encode_ids(lines[:1000]) for token in line]
    assert ids.count(tokenizer.unk_id) / len(ids) < 0.001
    assert len(ids) < len("".join(lines[:1000])) / 3
