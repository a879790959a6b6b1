"""Tokenizers from vocab.txt, vocab.json and merges.txt, spm.model as they are published, and files that are refused.

Run alone: pytest tests/bert_core/text/test_tokenizer_files.py
"""

import json
import re
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers.convert_slow_tokenizer import DebertaV2Converter, import_protobuf

from bert_core.errors import TokenizerError
from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_pipelines import BYTE_BPE_SPECIAL_TOKENS
from bert_core.text.tokenizer_training import train_byte_bpe, train_unigram

ModelProto: Any = import_protobuf().ModelProto
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


def charsmap(replaced: Mapping[str, str]) -> bytes:
    """SentencePiece's table of replaced characters: a double array over their bytes (Darts-clone), and the texts."""
    blocks, units, texts = {b"": 256}, {0: 256 << 10}, b""
    for character, text in replaced.items():
        key = character.encode()
        for end in range(1, len(key) + 1):
            if key[:end] not in blocks:
                blocks[key[:end]] = 256 * (len(blocks) + 1)
                place = blocks[key[: end - 1]] + key[end - 1]
                units[place] = (place ^ blocks[key[:end]]) << 10 | key[end - 1]
        units[blocks[key[:-1]] + key[-1]] |= 1 << 8
        units[blocks[key]] = 1 << 31 | len(texts)
        texts += text.encode() + b"\0"
    array = struct.pack(f"<{256 * (len(blocks) + 1)}I", *(units.get(i, 0) for i in range(256 * (len(blocks) + 1))))
    return struct.pack("<I", len(array)) + array + texts


def deberta_model() -> ModelProto:
    """A SentencePiece model as DeBERTa's: control symbols, the unknown piece, then pieces by their scores."""
    model, types = ModelProto(), ModelProto.SentencePiece
    kinds = dict.fromkeys(("[PAD]", "[CLS]", "[SEP]"), types.CONTROL)
    kinds |= {"[UNK]": types.UNKNOWN, "[E1]": types.USER_DEFINED}
    learned = json.loads(train_unigram([*TEXTS, "fine boats ..."] * 2, 200, lowercase=False)._backend.to_str())
    for piece, score in [*((token, 0.0) for token in kinds), *learned["model"]["vocab"][5:], ("...", -5.0)]:
        model.pieces.add(piece=piece, score=score, type=kinds.get(piece, types.NORMAL))
    model.trainer_spec.unk_id = 3
    model.normalizer_spec.precompiled_charsmap = charsmap(
        {"…": "...", "ﬁ": "fi", "\n": " ", "\t": " ", "\r": " ", "\u00a0": " ", "\u2028": " "}
    )
    return model


def write_deberta(folder: Path, model: ModelProto) -> None:
    (folder / "spm.model").write_bytes(model.SerializeToString())


@pytest.mark.parametrize("choices", [{}, {"do_lower_case": True}, {"split_by_punct": True}])
def test_a_sentencepiece_model_cuts_as_in_transformers(tmp_path: Path, choices: dict[str, bool]) -> None:
    model = deberta_model()
    write_deberta(tmp_path, model)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(choices))
    ids = {piece.piece: i for i, piece in enumerate(model.pieces)}
    source = {"do_lower_case": False, "split_by_punct": False, **choices, "vocab_file": tmp_path / "spm.model"}
    ours = Tokenizer.load(tmp_path)
    reference = DebertaV2Converter(SimpleNamespace(**source, convert_tokens_to_ids=ids.get)).converted()

    def compare(text: str) -> None:
        expected = reference.encode(text, add_special_tokens=False)
        (encoding,) = ours.encode_batch([text])
        assert (encoding.ids, encoding.offsets) == (expected.ids, expected.offsets)

    for text in (*TEXTS, *TRICKY, "ﬁne… boats", "a [E1] boat"):
        compare(text)
    plain = ANY_TEXT.filter(lambda text: "[" not in text)  # names of control symbols are text here
    given(plain)(settings(max_examples=100, deadline=None)(compare))()
    assert ours.encode_ids(["ﬁne…"]) == ours.encode_ids(["fine..."])
    # The class of transformers 5 leaves the model's own replacements out.
    theirs = transformers.DebertaV2Tokenizer([(piece.piece, piece.score) for piece in model.pieces], **choices)
    assert ours.encode_ids(TEXTS) == theirs(TEXTS, add_special_tokens=False)["input_ids"]
    assert [ours.pad_id, ours.cls_id, ours.sep_id, ours.unk_id, ours.mask_id] == [0, 1, 2, 3, len(ids)]
    assert ours.mask_id == theirs.mask_token_id
    pair, layout = theirs("two boats", "home"), ours.segment_layout
    a, b = ours.encode_ids(["two boats", "home"])
    assert pair["input_ids"] == [layout.prefix, *a, *layout.between, *b, layout.suffix]
    assert pair["token_type_ids"][-1] == layout.type_of_second
    assert ours.word_boundaries.mark.text == "▁"
    ours.save(tmp_path / "whole")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "whole")
    assert again([*TEXTS, "a [MASK] b"], add_special_tokens=False)["input_ids"] == [
        *ours.encode_ids(TEXTS),
        ours.encode_masked("a [MASK] b"),
    ]


def test_no_text_plants_a_control_symbol(tmp_path: Path) -> None:
    write_deberta(tmp_path, deberta_model())
    tokenizer = Tokenizer.load(tmp_path)
    (ids,) = tokenizer.encode_ids(["a [CLS] b[SEP][MASK] [PAD]"])
    assert not {tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id, tokenizer.pad_id} & set(ids)


def test_added_tokens_stand_behind_the_pieces(tmp_path: Path) -> None:
    model = deberta_model()
    write_deberta(tmp_path, model)
    size = len(model.pieces)
    (tmp_path / "added_tokens.json").write_text(json.dumps({"[MASK]": size + 1, "[E2]": size}))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.mask_id == size + 1
    assert size in tokenizer.encode_ids(["a [E2] boat"])[0]
    (tmp_path / "added_tokens.json").write_text(json.dumps({"[E2]": size + 7}))
    with pytest.raises(TokenizerError, match=r"'\[E2\]'.*spm\.model"):
        Tokenizer.load(tmp_path)


def _changed(field: str, value: Any) -> Callable[[ModelProto], None]:
    part, _, name = field.partition(".")
    return lambda model: setattr(getattr(model, part), name, value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_changed("trainer_spec.model_type", 2), "model_type"),
        (_changed("trainer_spec.byte_fallback", True), "byte_fallback"),
        (_changed("trainer_spec.treat_whitespace_as_suffix", True), "treat_whitespace_as_suffix"),
        (_changed("normalizer_spec.add_dummy_prefix", False), "add_dummy_prefix"),
        (_changed("normalizer_spec.remove_extra_whitespaces", False), "remove_extra_whitespaces"),
        (_changed("normalizer_spec.escape_whitespaces", False), "escape_whitespaces"),
        (lambda model: model.pieces.pop(3), "unknown"),
        (lambda model: model.pieces.pop(2), r"sep token '\[SEP\]'"),
    ],
)
def test_another_sentencepiece_model_is_refused(
    tmp_path: Path, change: Callable[[ModelProto], object], said: str
) -> None:
    model = deberta_model()
    change(model)
    write_deberta(tmp_path, model)
    with pytest.raises(TokenizerError, match=rf"spm\.model.*{said}"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(
    "data", [b"", b"\x0a\xff", b"\x0b", b"\x0a\x02\x0a\x00", b"\x80", b"\x08\x01", b"\x0a\x02\x80"]
)
def test_a_broken_sentencepiece_model_is_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "spm.model").write_bytes(data)
    with pytest.raises(TokenizerError, match=r"spm\.model"):
        Tokenizer.load(tmp_path)


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
