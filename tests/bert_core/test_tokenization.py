"""The tokenizer: loading, saving, encoding, training, and what is wrong with a broken one.

Run alone: pytest tests/bert_core/test_tokenization.py
"""

import gzip
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_core.errors import TokenizerError
from bert_core.tokenization import Tokenizer
from bert_core.tokenizer_pipelines import SPECIAL_TOKENS
from bert_core.tokenizer_training import train_wordpiece
from tests.shared_data import shared_file

TEXTS = [
    "The lighthouse keeper walked along the northern shore, counting boats.",
    "Señor Núñez keeps 27 boats in the harbour; the lighthouse guides them home!",
    "Walking home, the keeper counted: one boat, two boats, three boats.",
] * 5


@pytest.fixture(scope="module")
def uncased() -> Tokenizer:
    return train_wordpiece(TEXTS, vocab_size=160)


@pytest.fixture(scope="module")
def cased() -> Tokenizer:
    return train_wordpiece(TEXTS, vocab_size=160, lowercase=False)


@pytest.fixture
def folder(uncased: Tokenizer, tmp_path: Path) -> Path:
    uncased.save(tmp_path)
    return tmp_path


# Training


def test_special_tokens_come_first(uncased: Tokenizer) -> None:
    assert [uncased.token(i) for i in range(5)] == list(SPECIAL_TOKENS.values())
    assert (uncased.pad_id, uncased.unk_id, uncased.cls_id, uncased.sep_id, uncased.mask_id) == (0, 1, 2, 3, 4)
    ids = (uncased.pad_id, uncased.unk_id, uncased.cls_id, uncased.sep_id, uncased.mask_id)
    assert ids == (0, 1, 2, 3, 4)


def test_frequent_words_are_whole_and_others_are_pieces(uncased: Tokenizer) -> None:
    (ids,) = uncased.encode_ids(["boats keeperboats"])
    tokens = [uncased.token(i) for i in ids]
    assert tokens[0] == "boats"
    assert all(token.startswith("##") for token in tokens[2:])
    assert uncased.decode(ids) == "boats keeperboats"


def test_training_gives_the_same_vocabulary_in_every_process() -> None:
    """The library alone does not: it numbers characters in the order of a randomly seeded hash map."""
    program = (
        "from bert_core.tokenizer_training import train_wordpiece\n"
        "texts = [f'{a}{b} {b}{c}a {c}{a}b' for a in 'abcdefgh' for b in 'ijklmnop' for c in 'qrst']\n"
        "print(train_wordpiece(iter(texts), 120).fingerprint)"
    )
    prints = {
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(3)
    }
    assert len(prints) == 1


def test_training_counts_words_as_often_as_they_occur() -> None:
    texts = ["aab " * 10, "abb " * 9]
    learnt = train_wordpiece(texts, vocab_size=100, min_frequency=10)
    assert learnt.id("aab") != learnt.unk_id
    assert learnt.id("abb") == learnt.unk_id


def test_min_frequency_and_vocab_size_bound_the_vocabulary() -> None:
    large, small = train_wordpiece(TEXTS, 1000), train_wordpiece(TEXTS, 100)
    assert small.vocab_size == 100
    assert large.vocab_size < 1000
    assert train_wordpiece(TEXTS, 1000, min_frequency=1000).vocab_size < 100


def test_rare_characters_leave_room_for_pieces() -> None:
    rare = ["".join(chr(0x4E00 + i) + " " for i in range(3000))]
    learnt = train_wordpiece(TEXTS + rare, vocab_size=300)
    assert learnt.id("boats") != learnt.unk_id
    assert sum(learnt.id(chr(0x4E00 + i)) != learnt.unk_id for i in range(3000)) < 100


@pytest.mark.parametrize("texts", [[], ["", " \n "]])
def test_training_on_nothing_is_refused(texts: list[str]) -> None:
    with pytest.raises(TokenizerError, match="holds no word"):
        train_wordpiece(texts)


def test_training_without_room_is_refused() -> None:
    with pytest.raises(TokenizerError, match="vocab_size 6 has no room"):
        train_wordpiece(TEXTS, vocab_size=6)


# Encoding


def test_uncased_ignores_case_and_accents_and_cased_does_not(uncased: Tokenizer, cased: Tokenizer) -> None:
    assert uncased.lowercase
    assert not cased.lowercase
    assert uncased.encode_ids(["SEÑOR"]) == uncased.encode_ids(["senor"])
    assert cased.encode_ids(["The"]) != cased.encode_ids(["the"])


def test_offsets_point_into_the_text(uncased: Tokenizer) -> None:
    text = "Señor  keeps\u00a0boats."
    (encoding,) = uncased.encode_batch([text])
    words: dict[int, str] = {}
    for word, (start, end) in zip(encoding.word_ids, encoding.offsets, strict=True):
        words[word] = words.get(word, "") + text[start:end]
    assert list(words.values()) == ["Señor", "keeps", "boats", "."]


def test_a_special_token_in_a_text_counts_only_where_it_is_asked_for(uncased: Tokenizer) -> None:
    assert uncased.mask_id in uncased.encode_batch(["the [MASK] boat"])[0].ids
    assert uncased.mask_id not in uncased.encode_ids(["the [MASK] boat"])[0]


@given(st.lists(st.text(max_size=30), max_size=8))
@settings(max_examples=50)
def test_fast_ids_are_those_of_the_encodings(texts: list[str]) -> None:
    tokenizer = _shared()
    plain = [text.replace("[", "(") for text in texts]
    assert tokenizer.encode_ids(plain) == [encoding.ids for encoding in tokenizer.encode_batch(plain)]


def _shared(cache: list[Tokenizer] = []) -> Tokenizer:  # noqa: B006 - made once
    if not cache:
        cache.append(train_wordpiece(TEXTS, vocab_size=160))
    return cache[0]


def test_words_know_their_first_token(uncased: Tokenizer) -> None:
    words = ["keeperboats", "", "boats", "\u200b", "home!"]
    ids, first = uncased.encode_words(words)
    pieces = [uncased.encode_ids([word])[0] for word in words]
    assert ids == [token for part in pieces for token in part]
    assert first == [0, -1, len(pieces[0]), -1, len(pieces[0]) + 1]


def test_an_id_outside_the_vocabulary_is_refused(uncased: Tokenizer) -> None:
    with pytest.raises(TokenizerError, match="token id 9999 is not in the vocabulary"):
        uncased.token(9999)
    assert uncased.id("no such token") == uncased.unk_id


# Folders


def test_a_saved_tokenizer_loads_equal(uncased: Tokenizer, folder: Path) -> None:
    for path in (folder, folder / "tokenizer.json", folder / "vocab.txt"):
        loaded = Tokenizer.load(path)
        assert loaded.fingerprint == uncased.fingerprint
        assert loaded.encode_ids(TEXTS) == uncased.encode_ids(TEXTS)


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("removed", [None, "tokenizer.json"])
def test_transformers_gives_the_same_ids(tmp_path: Path, lowercase: bool, removed: str | None) -> None:
    ours = train_wordpiece(TEXTS, 160, lowercase=lowercase)
    ours.save(tmp_path)
    if removed:
        (tmp_path / removed).unlink()
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = [*TEXTS, "Ünknown 汉字 words-and\u2028[MASK] Señor!"]
    expected = theirs(texts, add_special_tokens=False)["input_ids"]
    assert [encoding.ids for encoding in ours.encode_batch(texts)] == expected
    assert theirs("a", "b")["input_ids"][0] == ours.cls_id
    assert (theirs.pad_token_id, theirs.mask_token_id) == (ours.pad_id, ours.mask_id)


def test_a_tokenizer_saved_by_transformers_loads(folder: Path, tmp_path: Path, uncased: Tokenizer) -> None:
    target = tmp_path / "theirs"
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(target)
    assert Tokenizer.load(target).encode_ids(TEXTS) == uncased.encode_ids(TEXTS)


def test_a_vocabulary_alone_is_cased_when_it_has_capitals(cased: Tokenizer, uncased: Tokenizer, tmp_path: Path) -> None:
    for name, tokenizer in {"cased": cased, "uncased": uncased}.items():
        tokenizer.save(tmp_path / name)
        (tmp_path / name / "tokenizer_config.json").unlink()
        assert Tokenizer.load(tmp_path / name / "vocab.txt").lowercase == tokenizer.lowercase


def test_the_config_beside_a_vocabulary_decides_about_case(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert not Tokenizer.load(folder / "vocab.txt").lowercase


def test_special_tokens_of_other_names_are_found(tmp_path: Path) -> None:
    tokens = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}
    text = json.dumps(
        {
            "version": "1.0",
            "added_tokens": [],
            "normalizer": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}]},
            "pre_tokenizer": {"type": "Whitespace"},
            "model": {
                "type": "WordLevel",
                "vocab": {token: i for i, token in enumerate([*tokens.values(), "boat"])},
                "unk_token": "<unk>",
            },
        }
    )
    (tmp_path / "tokenizer.json").write_text(text)
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.cls_id, tokenizer.mask_id, tokenizer.lowercase) == (2, 4, True)
    tokenizer.save(tmp_path / "again")
    again = Tokenizer.load(tmp_path / "again")
    assert again.fingerprint == tokenizer.fingerprint
    assert not (tmp_path / "again" / "vocab.txt").exists()
    (tmp_path / "tokenizer_config.json").write_text('{"mask_token": {"content": "boat"}}')
    assert Tokenizer.load(tmp_path).mask_id == 5


def _cut(folder: Path) -> str:
    text = (folder / "tokenizer.json").read_text()
    (folder / "tokenizer.json").write_text(text[: len(text) // 2])
    return r"tokenizer\.json is not a whole tokenizer\.json"


def _binary(folder: Path) -> str:
    (folder / "tokenizer.json").write_bytes(b"\xff\xfe\x00")
    return r"tokenizer\.json cannot be read"


def _gone(folder: Path) -> str:
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").unlink()
    return "holds neither tokenizer.json nor vocab.txt"


def _without_mask(folder: Path) -> str:
    (folder / "tokenizer.json").unlink()
    text = (folder / "vocab.txt").read_text()
    (folder / "vocab.txt").write_text(text.replace("[MASK]\n", ""))
    return r"vocab\.txt has no mask token '\[MASK\]'"


def _twice(folder: Path) -> str:
    (folder / "tokenizer.json").unlink()
    with (folder / "vocab.txt").open("a") as file:
        file.write("[PAD]\n")
    return r"vocab\.txt has '\[PAD\]' more than once"


def _bad_config(folder: Path) -> str:
    (folder / "tokenizer_config.json").write_text("{")
    return r"tokenizer_config\.json is not whole JSON"


def _odd_config(folder: Path) -> str:
    (folder / "tokenizer_config.json").write_text("[]")
    return r"tokenizer_config\.json must hold one JSON object"


@pytest.mark.parametrize("damage", [_cut, _binary, _gone, _without_mask, _twice, _bad_config, _odd_config])
def test_a_broken_tokenizer_is_named(folder: Path, damage: Callable[[Path], str]) -> None:
    message = damage(folder)
    with pytest.raises(TokenizerError, match=message) as caught:
        Tokenizer.load(folder)
    assert str(folder) in str(caught.value)


def test_a_path_that_is_no_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="there is no tokenizer at"):
        Tokenizer.load(tmp_path / "nowhere")
    (tmp_path / "model.bin").touch()
    with pytest.raises(TokenizerError, match="is neither a tokenizer"):
        Tokenizer.load(tmp_path / "model.bin")


def test_a_tokenizer_larger_than_the_model_does_not_fit(uncased: Tokenizer) -> None:
    uncased.check_fits(uncased.vocab_size)
    with pytest.raises(TokenizerError, match=rf"has {uncased.vocab_size} entries, the model's vocab_size is 99:"):
        uncased.check_fits(99)


def test_another_vocabulary_of_the_same_size_does_not_agree(uncased: Tokenizer, tmp_path: Path) -> None:
    uncased.save(tmp_path)
    uncased.check_agrees(Tokenizer.load(tmp_path))
    lines = (tmp_path / "vocab.txt").read_text().splitlines()
    lines[-1] = "unheard-of"
    (tmp_path / "other.txt").write_text("\n".join(lines))
    with pytest.raises(TokenizerError, match="is not the checkpoint's"):
        uncased.check_agrees(Tokenizer.load(tmp_path / "other.txt"))


# Processes


def test_a_pickled_tokenizer_is_equal_and_switches_threads_off(
    uncased: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    copy = pickle.loads(pickle.dumps(uncased))
    assert copy.fingerprint == uncased.fingerprint
    assert copy.encode_ids(TEXTS) == uncased.encode_ids(TEXTS)
    assert pickle.loads(pickle.dumps(uncased)) is copy, "parsed once per process"
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false"


def test_padding_and_truncation_in_a_file_do_not_act(folder: Path) -> None:
    definition = json.loads((folder / "tokenizer.json").read_text())
    definition["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    assert len(Tokenizer.load(folder).encode_ids(TEXTS)[0]) > 4


def test_real_text_has_few_unknowns() -> None:
    text = gzip.decompress(shared_file("pretrain/wikitext-2/valid.txt.gz").read_bytes()).decode()
    lines = text.replace("<unk>", "").split("\n")
    tokenizer = train_wordpiece(lines[1000:], vocab_size=4000)
    ids = [token for line in tokenizer.encode_ids(lines[:1000]) for token in line]
    assert ids.count(tokenizer.unk_id) / len(ids) < 0.001
