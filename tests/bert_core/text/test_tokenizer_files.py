"""Tokenizers from vocab.txt, vocab.json and merges.txt as they are published, and files that are refused.

Run alone: pytest tests/bert_core/text/test_tokenizer_files.py
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from bert_core.errors import TokenizerError
from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_pipelines import BYTE_BPE_SPECIAL_TOKENS
from bert_core.text.tokenizer_training import train_byte_bpe

TEXTS = [
    "The lighthouse keeper walked along the northern shore, counting boats.",
    "Zażółć gęślą jaźń; the keeper's 27 boats don't 'll go home!",
] * 5
TRICKY = [
    "", " ", "\n", "  two  spaces ", "\ttab\r\nline", "don't we'LL I'm 're", "a<mask>b <mask>. <s>x</s><pad>",
    "27,500.3 %", "\u00a0no break\u2028line\u200bzero", "汉字かな 가나다 🤗👩\u200d👧", "É é e\u0301 ﬁ Ⅸ",
    "\x00\x07 control", "▁Ġ </w> @@ ##",
]  # fmt: skip
ANY_TEXT = st.text(st.one_of(st.sampled_from("the boats' lx27ż,.\n "), st.characters(codec="utf-8")), max_size=30)


def write_bpe(folder: Path, model: dict) -> None:
    (folder / "vocab.json").write_text(json.dumps(model["vocab"], ensure_ascii=False), encoding="utf-8")
    lines = "".join(f"{left} {right}\n" for left, right in model["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{lines}", encoding="utf-8")
    # As the published tokenizer.json of RoBERTa has it.
    (folder / "special_tokens_map.json").write_text('{"mask_token": {"content": "<mask>", "lstrip": true}}')


def write_roberta(folder: Path) -> None:
    write_bpe(folder, json.loads(train_byte_bpe(TEXTS, 400)._backend.to_str())["model"])
    (folder / "config.json").write_text('{"model_type": "roberta"}')


def write_herbert(folder: Path) -> None:
    backend = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special_tokens = list(BYTE_BPE_SPECIAL_TOKENS.values())
    trainer = trainers.BpeTrainer(
        vocab_size=200, special_tokens=special_tokens, end_of_word_suffix="</w>", show_progress=False
    )
    backend.train_from_iterator(TEXTS, trainer)
    write_bpe(folder, json.loads(backend.to_str())["model"])
    (folder / "config.json").write_text('{"model_type": "bert", "tokenizer_class": "HerbertTokenizerFast"}')


@pytest.mark.parametrize("prefix_space", [False, True])
@pytest.mark.parametrize(
    ("write", "theirs"),
    [(write_roberta, transformers.RobertaTokenizer), (write_herbert, transformers.HerbertTokenizer)],
)
def test_a_vocabulary_and_its_merges_cut_as_transformers_does(
    tmp_path: Path, write: Callable[[Path], None], theirs: type, prefix_space: bool
) -> None:
    write(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": prefix_space}))
    ours, reference = Tokenizer.load(tmp_path), theirs.from_pretrained(tmp_path)

    def compare(text: str) -> None:
        expected = reference(text, add_special_tokens=False, return_offsets_mapping=True, split_special_tokens=True)
        (encoding,) = ours.encode_batch([text])
        assert encoding.ids == expected["input_ids"]
        assert encoding.offsets == expected["offset_mapping"]

    for text in (*TEXTS, *TRICKY):
        compare(text)
    given(ANY_TEXT)(settings(max_examples=100, deadline=None)(compare))()
    pair = reference("two boats", "home", return_token_type_ids=True)
    a, b = (encoding.ids for encoding in ours.encode_batch(["two boats", "home"]))
    layout = ours.segment_layout
    assert pair["input_ids"] == [layout.prefix, *a, *layout.between, *b, layout.suffix]
    assert pair["token_type_ids"][-1] == layout.type_of_second
    assert ours.decode(a) == reference.decode(a)
    ours.save(tmp_path / "whole")
    assert Tokenizer.load(tmp_path / "whole").fingerprint == ours.fingerprint


def modernbert() -> tuple[tokenizers.Tokenizer, list[str]]:
    """The pipeline that ModernBERT and Ettin are published with, and its special tokens."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    backend.train_from_iterator(TEXTS, trainer)
    backend.add_tokens(["    ", "  "])
    return backend, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def mmbert() -> tuple[tokenizers.Tokenizer, list[str]]:
    """The pipeline that mmBERT is published with, Gemma 2's, and its special tokens."""
    backend = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    special_tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=500, special_tokens=special_tokens + byte_tokens, show_progress=False)
    backend.train_from_iterator(TEXTS, trainer)
    definition = json.loads(backend.to_str())
    definition["added_tokens"] = definition["added_tokens"][: len(special_tokens)]  # bytes are ordinary tokens
    pad, eos, bos, unk, mask = special_tokens
    return tokenizers.Tokenizer.from_str(json.dumps(definition)), [pad, unk, bos, eos, mask]


@pytest.mark.parametrize(("build", "mark"), [(modernbert, "Ġ"), (mmbert, "▁")])
def test_a_tokenizer_of_modernbert_cuts_as_in_transformers(
    tmp_path: Path, build: Callable[[], tuple[tokenizers.Tokenizer, list[str]]], mark: str
) -> None:
    backend, tokens = build()
    backend.add_special_tokens([tokenizers.AddedToken(token, lstrip=token == tokens[-1]) for token in tokens])
    cls, sep = tokens[2:4]
    ids = [(token, backend.token_to_id(token)) for token in (cls, sep)]
    backend.post_processor = processors.TemplateProcessing(f"{cls} $A {sep}", f"{cls} $A {sep} $B:1 {sep}:1", ids)
    backend.save(str(tmp_path / "tokenizer.json"))
    config = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), tokens, strict=True))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"} | config))
    ours, reference = Tokenizer.load(tmp_path), transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in (*TEXTS, *TRICKY):
        expected = reference(text, add_special_tokens=False, return_offsets_mapping=True, split_special_tokens=True)
        (encoding,) = ours.encode_batch([text])
        assert (encoding.ids, encoding.offsets) == (expected["input_ids"], expected["offset_mapping"])
    assert [ours.token(i) for i in (ours.pad_id, ours.unk_id, ours.cls_id, ours.sep_id, ours.mask_id)] == tokens
    first, second = (encoding.ids for encoding in ours.encode_batch(["two boats", "home"]))
    layout = ours.segment_layout
    pair = [layout.prefix, *first, *layout.between, *second, layout.suffix]
    assert pair == reference("two boats", "home")["input_ids"]
    assert ours.word_boundaries.mark.text == mark


def _no_mask(folder: Path) -> None:
    (folder / "vocab.json").write_text((folder / "vocab.json").read_text().replace("<mask>", "<other>"))


def _words_by_moses(folder: Path) -> None:
    write_herbert(folder)
    (folder / "config.json").write_text('{"model_type": "flaubert"}')


def _phobert(folder: Path) -> None:
    (folder / "vocab.json").unlink()
    (folder / "vocab.txt").write_text(", 1034245\n. 1006223\nlà 301252\nTr@@ 52\n")
    (folder / "bpe.codes").write_text("n g</w> 120\n")


@pytest.mark.parametrize(
    ("change", "file"),
    [
        (lambda folder: (folder / "merges.txt").unlink(), "merges.txt"),
        (lambda folder: (folder / "merges.txt").write_text("#version: 0.2\nqqq zzz\n"), "merges.txt"),
        (_no_mask, "vocab.json"),
        (_words_by_moses, "vocab.json"),
        (_phobert, "vocab.txt"),
        (lambda folder: (folder / "vocab.json").rename(folder / "spiece.model"), "spiece.model"),
    ],
)
def test_what_cannot_be_read_exactly_is_refused(tmp_path: Path, change: Callable[[Path], object], file: str) -> None:
    write_roberta(tmp_path)
    change(tmp_path)
    with pytest.raises(TokenizerError, match=re.escape(file)) as caught:
        Tokenizer.load(tmp_path)
    assert str(tmp_path) in str(caught.value)


VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "dog", "mat", "sat", "##s"]
VOCABULARIES = {
    "byte order mark": b"\xef\xbb\xbf" + "\n".join(VOCABULARY).encode(),
    "carriage returns": "\r\n".join(VOCABULARY).encode(),
    "a carriage return in a line": "\n".join([*VOCABULARY[:6], "q\rz", *VOCABULARY[6:]]).encode(),
    "blank lines": "\n".join([*VOCABULARY[:6], "", "", *VOCABULARY[6:]]).encode(),
    "blank lines at the end": "\n".join([*VOCABULARY, "", "", ""]).encode(),
    "a line twice": "\n".join([*VOCABULARY, "cat", ""]).encode(),
}


@pytest.mark.parametrize("content", VOCABULARIES.values(), ids=VOCABULARIES.keys())
def test_the_id_of_a_piece_is_its_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "vocab.txt").write_bytes(content)
    tokenizer = Tokenizer.load(tmp_path)
    lines = [line.removesuffix("\r") for line in content.decode("utf-8-sig").split("\n")]
    ids = {line: i for i, line in enumerate(lines) if line}
    assert tokenizer.encode_ids(["cat dogs sat"]) == [[ids[piece] for piece in ("cat", "dog", "##s", "sat")]]
    assert tokenizer.vocab_size == max(ids.values()) + 1
    assert [tokenizer.token(i) for i in ids.values()] == list(ids)
    tokenizer.save(tmp_path / "saved")
    (tmp_path / "saved" / "tokenizer.json").unlink()
    assert Tokenizer.load(tmp_path / "saved").fingerprint == tokenizer.fingerprint


def test_an_id_that_the_vocabulary_leaves_out_has_a_name(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(VOCABULARIES["blank lines"])
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.token(6) == "[6]"
    with pytest.raises(TokenizerError):
        tokenizer.token(tokenizer.vocab_size)


@pytest.mark.parametrize("name", ["added_tokens.json", "tokenizer_config.json"])
def test_added_tokens_have_their_ids(tmp_path: Path, name: str) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY))
    added = {"[E1]": 10, "[MASK]": 4, "new york": 12}
    decoder = {"added_tokens_decoder": {i: {"content": token} for token, i in added.items()}}
    (tmp_path / name).write_text(json.dumps(added if name == "added_tokens.json" else decoder))
    tokenizer = Tokenizer.load(tmp_path)
    (ids,) = tokenizer.encode_ids(["[E1] cats New York [MASK]"])
    assert [tokenizer.token(i) for i in ids[:4]] == ["[E1]", "cat", "##s", "new york"]
    assert ids[:4] == [10, 5, 9, 12]
    assert tokenizer.mask_id not in ids
    assert tokenizer.vocab_size == 13
    tokenizer.save(tmp_path / "saved")
    assert Tokenizer.load(tmp_path / "saved").fingerprint == tokenizer.fingerprint


def test_added_tokens_of_a_bpe_have_their_ids(tmp_path: Path) -> None:
    write_roberta(tmp_path)
    size = Tokenizer.load(tmp_path).vocab_size
    (tmp_path / "added_tokens.json").write_text(json.dumps({"[E1]": size}))
    assert Tokenizer.load(tmp_path).encode_ids(["[E1]boats"])[0][0] == size


@pytest.mark.parametrize("token_id", [5, -1, "x", None])
def test_an_added_token_without_an_id_of_its_own_is_refused(tmp_path: Path, token_id: object) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(VOCABULARY))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"[E1]": token_id}))
    with pytest.raises(TokenizerError, match=r"added_tokens\.json.*\[E1\]"):
        Tokenizer.load(tmp_path)


def test_a_pointer_of_git_lfs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    with pytest.raises(TokenizerError, match=r"tokenizer\.json.*git lfs pull"):
        Tokenizer.load(tmp_path)
