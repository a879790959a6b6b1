"""The tokenizer: loading, saving, encoding, and what is wrong with a broken one.

Run alone: pytest tests/bert_core/text/test_tokenization.py
"""

import json
import os
import pickle
import re
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers

from bert_core.errors import TokenizerError
from bert_core.examples.segments import SegmentLayout
from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_files import _KNOWN_SPECIAL_TOKENS
from bert_core.text.tokenizer_training import TRAINERS, train_wordpiece

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


# Encoding


def test_offsets_point_into_the_text(uncased: Tokenizer) -> None:
    text = "Señor  keeps\u00a0boats."
    (encoding,) = uncased.encode_batch([text])
    words: dict[int, str] = {}
    for word, (start, end) in zip(encoding.word_ids, encoding.offsets, strict=True):
        words[word] = words.get(word, "") + text[start:end]
    assert list(words.values()) == ["Señor", "keeps", "boats", "."]


def test_a_special_token_in_a_text_counts_only_where_it_is_asked_for(uncased: Tokenizer) -> None:
    (encoding,) = uncased.encode_batch(["the [MASK] boat"])
    assert uncased.mask_id in uncased.encode_masked("the [MASK] boat")
    assert uncased.mask_id not in encoding.ids
    assert uncased.encode_ids(["the [MASK] boat"]) == [encoding.ids]


@given(st.lists(st.text(max_size=30), max_size=8))
@settings(max_examples=50)
def test_fast_ids_are_those_of_the_encodings(texts: list[str]) -> None:
    tokenizer = _trained("wordpiece")
    assert tokenizer.encode_ids(texts) == [encoding.ids for encoding in tokenizer.encode_batch(texts)]


@given(st.sampled_from(sorted(TRAINERS)), st.lists(st.text(st.characters(codec="utf-8"), max_size=8), max_size=6))
@settings(max_examples=60, deadline=None)
def test_words_of_a_sentence_are_cut_as_each_alone(algorithm: str, words: list[str]) -> None:
    tokenizer = _trained(algorithm)
    ids, first = tokenizer.encode_words(words)
    pieces = [tokenizer.encode_words([word])[0] for word in words]
    assert ids == [token for part in pieces for token in part]
    starts = np.cumsum([0, *map(len, pieces)])
    assert first == [int(start) if part else -1 for start, part in zip(starts, pieces, strict=False)]


@pytest.mark.parametrize("algorithm", TRAINERS)
def test_a_word_has_the_same_pieces_in_a_text_and_among_words(algorithm: str) -> None:
    tokenizer = _trained(algorithm)
    words = ["boats", "keeperboats", "Núñez", "27", "shore"]
    assert tokenizer.encode_words(words)[0] == tokenizer.encode_ids([" ".join(words)])[0]


def test_words_begin_with_their_space_where_a_text_does_not(tmp_path: Path) -> None:
    """As RoBERTa was published: `add_prefix_space` is off, and words given one by one still need it."""
    _trained("byte_bpe").save(tmp_path)
    text = (tmp_path / "tokenizer.json").read_text()
    (tmp_path / "tokenizer.json").write_text(text.replace('"add_prefix_space": true', '"add_prefix_space": false'))
    published = Tokenizer.load(tmp_path)
    ids, first = published.encode_words(["boats", "boats"])
    assert ids[: first[1]] == ids[first[1] :]
    assert published.encode_ids([" boats boats"]) == [ids]
    assert published.encode_ids(["boats boats"]) != [ids]
    assert published.encode_sentences(["boats boats", "boats"]) == [ids, ids[: first[1]]], "of a running text"


def test_no_text_plants_a_special_token_that_is_a_piece() -> None:
    """The Unigram model that XLM-R is published with has its special tokens among its pieces, with the best scores."""
    special = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unk": "<unk>", "mask": "<mask>"}
    letters = sorted({*"\N{LOWER ONE EIGHTH BLOCK}boats/", *"".join(special.values())})
    pieces = [*((token, 0.0) for token in special.values()), *((letter, -5.0) for letter in letters)]
    backend = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=3, byte_fallback=False))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    backend.add_special_tokens(list(special.values()))
    tokenizer, text = Tokenizer(backend, special), "boats ".join(["", *special.values()])
    encoded = [*tokenizer.encode_ids([text]), *tokenizer.encode_sentences([text]), tokenizer.encode_words([text])[0]]
    assert all(min(ids) >= len(special) for ids in encoded)
    assert tokenizer.encode_masked("<mask>")[-1] == tokenizer.mask_id


@given(st.sampled_from(sorted(TRAINERS)), st.text(st.characters(codec="utf-8"), max_size=30))
@settings(max_examples=60, deadline=None)
def test_offsets_rise_and_stay_within_the_text(algorithm: str, text: str) -> None:
    (encoding,) = _trained(algorithm).encode_batch([text])
    starts, ends = np.array(encoding.offsets, np.int64).reshape(-1, 2).T
    assert (np.diff(starts) >= 0).all()
    assert (np.diff(ends) >= 0).all()
    assert (starts >= 0).all()
    assert (starts <= ends).all()
    assert (ends <= len(text)).all()


@lru_cache
def _trained(algorithm: str) -> Tokenizer:
    return TRAINERS[algorithm](TEXTS, 400, False, 2)


# Folders


def test_a_saved_tokenizer_loads_equal(uncased: Tokenizer, folder: Path) -> None:
    for path in (folder, folder / "tokenizer.json", folder / "vocab.txt"):
        loaded = Tokenizer.load(path)
        assert loaded.fingerprint == uncased.fingerprint
        assert loaded.encode_ids(TEXTS) == uncased.encode_ids(TEXTS)


@pytest.mark.parametrize(("lowercase", "strip_accents"), [(True, None), (False, None), (True, False)])
@pytest.mark.parametrize(
    ("algorithm", "removed"),
    [("wordpiece", ""), ("wordpiece", "tokenizer.json"), ("byte_bpe", ""), ("unigram", "")],
)
def test_transformers_gives_the_same_ids(
    tmp_path: Path, lowercase: bool, strip_accents: bool | None, algorithm: str, removed: str
) -> None:
    ours = TRAINERS[algorithm](TEXTS, 400, lowercase, 2, strip_accents)
    ours.save(tmp_path)
    if removed:
        (tmp_path / removed).unlink()
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    texts = [*TEXTS, f"Ünknown 汉字  words-and\u2028a {ours.token(ours.mask_id)}\n Señor!", "", " 가 ﬁ"]
    expected = theirs(texts, add_special_tokens=False)["input_ids"]
    assert [ours.encode_masked(text) for text in texts] == expected
    for role in ("pad", "unk", "cls", "sep", "mask"):
        assert getattr(theirs, f"{role}_token_id") == getattr(ours, f"{role}_id")
    assert ours.decode(expected[0]) == theirs.decode(expected[0])
    again = Tokenizer.load(tmp_path)
    assert again.encode_ids(texts) == ours.encode_ids(texts)


@pytest.mark.parametrize("algorithm", TRAINERS)
def test_the_layout_of_a_pair_is_that_of_transformers(tmp_path: Path, algorithm: str) -> None:
    ours = TRAINERS[algorithm](TEXTS, 400, True, 2)
    ours.save(tmp_path)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    a, b = ours.encode_ids(["two boats", "home"])
    pair = theirs("two boats", "home", return_token_type_ids=True)
    layout = ours.segment_layout
    assert pair["input_ids"] == [layout.prefix, *a, *layout.between, *b, layout.suffix]
    assert len(pair["input_ids"]) == len(a) + len(b) + layout.num_pair_specials
    num_first = 1 + len(a) + len(layout.between)
    assert pair["token_type_ids"] == [0] * num_first + [layout.type_of_second] * (len(b) + 1)
    assert theirs("two boats")["input_ids"] == [layout.prefix, *a, layout.suffix]
    assert ("token_type_ids" in theirs("two boats")) == (layout.type_of_second == 1)
    assert (len(layout.between), layout.type_of_second) == ((2, 0) if algorithm == "byte_bpe" else (1, 1))


def test_a_pipeline_without_a_layout_has_that_of_bert(folder: Path) -> None:
    definition = json.loads((folder / "tokenizer.json").read_text()) | {"post_processor": None}
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    plain = Tokenizer.load(folder)
    assert plain.segment_layout == SegmentLayout(plain.cls_id, (plain.sep_id,), plain.sep_id, type_of_second=1)


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


@pytest.mark.parametrize("tokens", _KNOWN_SPECIAL_TOKENS, ids=["bert", "albert", "roberta", "xlm"])
def test_special_tokens_of_other_families_are_found(tmp_path: Path, tokens: dict[str, str]) -> None:
    _write_words(tmp_path, [*tokens.values(), "boat"])
    tokenizer = Tokenizer.load(tmp_path)
    assert [getattr(tokenizer, f"{role}_id") for role in tokens] == list(range(5))
    assert tokenizer.lowercase
    tokenizer.save(tmp_path / "again")
    again = Tokenizer.load(tmp_path / "again")
    assert again.fingerprint == tokenizer.fingerprint
    assert not (tmp_path / "again" / "vocab.txt").exists()


def test_special_tokens_go_by_the_config_first(tmp_path: Path) -> None:
    _write_words(tmp_path, ["<pad>", "<unk>", "<s>", "</s>", "<mask>", "boat"])
    (tmp_path / "tokenizer_config.json").write_text('{"mask_token": {"content": "boat"}}')
    assert Tokenizer.load(tmp_path).mask_id == 5


def test_a_tokenizer_that_classifies_by_its_separator_begins_with_another_token(tmp_path: Path) -> None:
    _write_words(tmp_path, ["<s>", "</s>", "<pad>", "<unk>", "<special1>"])
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": "<s>", "cls_token": "</s>", "sep_token": "</s>"}')
    flaubert = Tokenizer.load(tmp_path)
    assert (flaubert.cls_id, flaubert.sep_id, flaubert.mask_id) == (0, 1, 4)


def test_special_tokens_that_nobody_names_are_missed(tmp_path: Path) -> None:
    _write_words(tmp_path, ["<unk>", "boat"])
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        Tokenizer.load(tmp_path)


def _write_words(folder: Path, tokens: list[str]) -> None:
    definition = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}]},
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {
            "type": "WordLevel",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "unk_token": next(token for token in tokens if "unk" in token.lower()),
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(definition))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer.json", b'{"version": "1.0", "added'),
        ("tokenizer.json", b"\xff\xfe\x00"),
        ("tokenizer_config.json", b"{"),
        ("tokenizer_config.json", b"[]"),
    ],
)
def test_a_broken_tokenizer_is_named(folder: Path, file: str, content: bytes) -> None:
    (folder / file).write_bytes(content)
    with pytest.raises(TokenizerError, match=re.escape(str(folder / file))):
        Tokenizer.load(folder)


def test_a_vocabulary_without_a_special_token_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text((folder / "vocab.txt").read_text().replace("[MASK]\n", ""))
    with pytest.raises(TokenizerError, match=r"vocab\.txt"):
        Tokenizer.load(folder)
    (folder / "vocab.txt").unlink()
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        Tokenizer.load(folder)


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
