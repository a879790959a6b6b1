"""A tokenizer's files: where they are, what they hold, and the `tokenizers` pipeline that they describe."""

import json
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models, pre_tokenizers

from bert_core.checkpoints.weight_files import is_lfs_pointer
from bert_core.errors import TokenizerError
from bert_core.text.tokenizer_pipelines import (
    BYTE_BPE_SPECIAL_TOKENS,
    SPECIAL_TOKENS,
    UNIGRAM_SPECIAL_TOKENS,
    build_byte_bpe,
    build_herbert,
    build_sentencepiece,
    build_wordpiece,
)

_SENTENCEPIECE = "spm.model"
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", _SENTENCEPIECE)
"""Files of a tokenizer, of which a folder needs one: any kind, WordPiece, BPE with merges.txt beside it, or DeBERTa's
SentencePiece model."""
_ADDED_TOKENS = "added_tokens.json"
_UNREADABLE = ("sentencepiece.bpe.model", "spiece.model", "tokenizer.model", "bpe.codes")
_PUT_WHOLE = (
    "put a tokenizer.json beside it: the one that the model is published with, or that transformers writes with "
    "save_pretrained"
)
_XLM_SPECIAL_TOKENS = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<special1>"}
_KNOWN_SPECIAL_TOKENS = (SPECIAL_TOKENS, UNIGRAM_SPECIAL_TOKENS, BYTE_BPE_SPECIAL_TOKENS, _XLM_SPECIAL_TOKENS)
"""Special tokens of BERT, ALBERT, RoBERTa (CamemBERT, PhoBERT, XLM-R) and XLM (FlauBERT)."""


def read_tokenizer(path: Path) -> tuple[tokenizers.Tokenizer, dict[str, str], Path]:
    """Read the pipeline, its special tokens by role, and the file it came from. Raises: TokenizerError."""
    file = _find_file(path)
    config = _read_config(file.parent)
    if file.name == _SENTENCEPIECE:
        backend = _build_sentencepiece(file, config)
    elif file.name == "vocab.json":
        backend = _build_bpe(file, config)
    elif file.suffix == ".json":
        backend = _read_backend(file)
    else:
        backend = _build_wordpiece(file, config)
    return backend, _find_special_tokens(backend, config), file


def _find_file(path: Path) -> Path:
    if path.is_dir():
        for name in TOKENIZER_FILES:
            if (path / name).is_file():
                return path / name
        for name in _UNREADABLE:
            if (path / name).is_file():
                raise TokenizerError(f"{path / name} alone is not read here; {_PUT_WHOLE}")
        raise TokenizerError(
            f"{path} holds neither {' nor '.join(TOKENIZER_FILES)}; name a folder that holds a tokenizer"
        )
    if not path.exists():
        raise TokenizerError(f"there is no tokenizer at {path}; name a folder with {' or '.join(TOKENIZER_FILES)}")
    if path.name in _UNREADABLE:
        raise TokenizerError(f"{path} alone is not read here; {_PUT_WHOLE}, and name the folder")
    if path.suffix not in (".json", ".txt") and path.name != _SENTENCEPIECE:
        raise TokenizerError(f"{path} is neither a {' nor a '.join(TOKENIZER_FILES)}")
    return path


def _read_bytes(file: Path) -> bytes:
    try:
        if is_lfs_pointer(file):
            raise TokenizerError(f"{file} is a git-lfs pointer; fetch the file there with: git lfs pull")
        return file.read_bytes()
    except OSError as error:
        raise TokenizerError(f"{file} cannot be read: {error}; fetch the tokenizer again") from error


def _read_text(file: Path) -> str:
    """Read a file without its byte order mark, and with the line ends that it has."""
    try:
        return _read_bytes(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{file} cannot be read: {error}; fetch the tokenizer again") from error


def _read_backend(file: Path) -> tokenizers.Tokenizer:
    text = _read_text(file)
    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises bare Exceptions
        raise TokenizerError(f"{file} is not a whole tokenizer.json: {error}; fetch or train it again") from error


def _read_vocabulary(file: Path) -> dict[str, int]:
    """Read the tokens of a vocab.txt. The line is the id: a blank line takes one, and so does each of two equal lines.

    The last of equal lines is the token's id, as in transformers.
    """
    tokens = [line.removesuffix("\r") for line in _read_text(file).removesuffix("\n").split("\n")]
    if all(re.fullmatch(r"\S+ \d+\s*", token) for token in tokens):
        raise TokenizerError(f"{file} is a list of pieces and counts, as PhoBERT's, and no WordPiece; {_PUT_WHOLE}")
    return {token: i for i, token in enumerate(tokens) if token}


def _read_added_tokens(file: Path, vocabulary: Mapping[str, int], config: Mapping[str, Any]) -> dict[str, int]:
    """Read the tokens beside a vocabulary with ids of their own, which text is cut at first.

    They stand in added_tokens.json, or in `added_tokens_decoder` of tokenizer_config.json.
    """
    file = file.parent / _ADDED_TOKENS
    added = _read_object(file) if file.is_file() else {}
    if not added and (listed := config.get("added_tokens_decoder")):
        file = file.parent / "tokenizer_config.json"
        added = {token["content"]: int(i) for i, token in listed.items()}
    tokens: dict[Any, str] = {i: token for token, i in vocabulary.items()}
    for token, i in added.items():
        if not isinstance(i, int) or i < 0 or tokens.setdefault(i, token) != token:
            raise TokenizerError(
                f"{file} gives {token!r} the id {i!r}"
                + (f", which is that of {tokens[i]!r}" if i in tokens else "")
                + "; a token needs a whole number of its own"
            )
    return added


def _read_config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / name).is_file():
            config |= _read_object(folder / name)
    return config


def _read_object(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(_read_text(file))
    except json.JSONDecodeError as error:
        raise TokenizerError(f"{file} is not whole JSON: {error}; fetch the tokenizer again") from error
    if not isinstance(values, dict):
        raise TokenizerError(f"{file} must hold one JSON object; fetch the tokenizer again")
    return values


def _build_bpe(file: Path, config: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """Build RoBERTa's pipeline, or HerBERT's; how others split text into words, their vocabulary does not tell."""
    vocabulary = _read_object(file)
    added = _read_added_tokens(file, vocabulary, config)
    vocabulary |= added
    is_byte_level = vocabulary.keys() >= set(pre_tokenizers.ByteLevel.alphabet())
    if not is_byte_level and not _tokenizer_class(file.parent, config).startswith("Herbert"):
        raise TokenizerError(
            f"{file} lacks bytes that RoBERTa's has, so that it does not tell how text is split into words "
            "(FlauBERT and XLM: by Moses); make a tokenizer.json of it with the tokenizers library and put it there"
        )
    merges_file = file.parent / "merges.txt"
    special_tokens = {role: _named_token(config, role) or token for role, token in BYTE_BPE_SPECIAL_TOKENS.items()}
    for role, token in special_tokens.items():
        if token not in vocabulary:
            raise TokenizerError(f"{file} has no {role} token {token!r}; name the one it has in tokenizer_config.json")
    try:
        _, merges = models.BPE.read_file(str(file), str(merges_file))
        if not is_byte_level:
            backend = build_herbert(vocabulary, merges, special_tokens)
        else:
            prefix_space = bool(config.get("add_prefix_space", False))
            backend = build_byte_bpe(
                vocabulary, merges, lowercase=False, special_tokens=special_tokens, prefix_space=prefix_space
            )
    except Exception as error:  # the library raises bare Exceptions
        raise TokenizerError(f"{file} and {merges_file} make no BPE: {error}; fetch both again") from error
    backend.add_tokens([token for token in added if token not in special_tokens.values()])
    return backend


def _tokenizer_class(folder: Path, config: Mapping[str, Any]) -> str:
    model = folder / "config.json"  # HerBERT's names the class there
    return str(config.get("tokenizer_class") or (_read_object(model) if model.is_file() else {}).get("tokenizer_class"))


def _build_wordpiece(file: Path, config: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """Build BERT's pipeline; where no config tells, a vocabulary without capitals is taken for an uncased one."""
    vocabulary = _read_vocabulary(file)
    added = _read_added_tokens(file, vocabulary, config)
    capitals = any(token != token.lower() for token in vocabulary if not token.startswith("["))
    backend = build_wordpiece(
        vocabulary | added,
        lowercase=bool(config.get("do_lower_case", not capitals)),
        strip_accents=config.get("strip_accents"),
        chinese=bool(config.get("tokenize_chinese_chars", True)),
    )
    backend.add_tokens([token for token in added if token not in SPECIAL_TOKENS.values()])
    return backend


def _build_sentencepiece(file: Path, config: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """Build DeBERTa's pipeline, whose mask token stands behind the pieces of the model."""
    data = _read_bytes(file)
    special_tokens = {role: _named_token(config, role) or token for role, token in SPECIAL_TOKENS.items()}
    lowercase, splits_punctuation = (bool(config.get(name, False)) for name in ("do_lower_case", "split_by_punct"))
    try:
        pieces, charsmap = _read_sentencepiece(data)
        ids = {text: i for i, (text, *_) in enumerate(pieces)}
        added = _read_added_tokens(file, ids, config)
        behind = sorted(added.keys() - ids.keys(), key=added.__getitem__)
        backend = build_sentencepiece(pieces, charsmap, special_tokens, behind, lowercase, splits_punctuation)
    except TokenizerError:
        raise
    except Exception as error:  # the library raises bare Exceptions
        raise TokenizerError(f"{file} is no SentencePiece model that is read here: {error}; {_PUT_WHOLE}") from error
    for role, token in special_tokens.items():
        if token not in ids and role != "mask":
            raise TokenizerError(f"{file} has no {role} token {token!r}; name the one it has in tokenizer_config.json")
    for token, i in added.items():
        if backend.token_to_id(token) != i:
            raise TokenizerError(f"{token!r} has the id {i} beside {file}, which leaves a gap; {_PUT_WHOLE}")
    return backend


_PIECE, _TRAINER, _NORMALIZER = 1, 2, 3
_ONLY: dict[int, dict[int, tuple[str, int]]] = {
    _TRAINER: {3: ("model_type", 1), 24: ("treat_whitespace_as_suffix", 0), 35: ("byte_fallback", 0)},
    _NORMALIZER: {3: ("add_dummy_prefix", 1), 4: ("remove_extra_whitespaces", 1), 5: ("escape_whitespaces", 1)},
}
"""Part of a model → number of a field in it → its name, and the only value here, which is meant without it too."""


def _read_sentencepiece(data: bytes) -> tuple[list[tuple[str, float, int]], bytes]:
    """Read texts, scores and types of the pieces, and the table of replaced characters.

    The format is ModelProto of SentencePiece (src/sentencepiece_model.proto). Raises: ValueError, saying what is wrong.
    """
    pieces, charsmap = [], b""
    for part, content in _read_fields(data):
        fields = dict(_read_fields(content)) if part in (_PIECE, *_ONLY) else {}
        if part == _PIECE:
            (score,) = struct.unpack("<f", fields.get(2, bytes(4)))
            pieces.append((fields[1].decode(), score, int(fields.get(3, 1))))
            continue
        for number, (name, only) in _ONLY.get(part, {}).items():
            if fields.get(number, only) != only:
                raise ValueError(f"{name} is {fields[number]!r}")
        if part == _NORMALIZER:
            charsmap = fields.get(2, b"")
    return pieces, charsmap


def _read_fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field of a message in protobuf's wire format: whole numbers, or bytes."""
    place = 0
    value: int | bytes
    while place < len(data):
        tag, place = _read_varint(data, place)
        match tag & 7:
            case 0:
                value, place = _read_varint(data, place)
            case 1 | 2 | 5 as kind:
                size, place = _read_varint(data, place) if kind == 2 else ({1: 8, 5: 4}[kind], place)
                value, place = data[place : place + size], place + size
            case kind:
                raise ValueError(f"byte {place} begins a field of an unknown kind, {kind}")
        if place > len(data):
            raise ValueError(f"it breaks off, {place - len(data)} bytes too early")
        yield tag >> 3, value


def _read_varint(data: bytes, place: int) -> tuple[int, int]:
    """Read a number of 7 bits a byte, the lowest first; returns the place behind it as well."""
    value = shift = 0
    while data[place] >= 128:
        value, place, shift = value | (data[place] & 127) << shift, place + 1, shift + 7
    return value | data[place] << shift, place + 1


def _find_special_tokens(backend: tokenizers.Tokenizer, config: Mapping[str, Any]) -> dict[str, str]:
    """Find special tokens by role: those that the config names, and the rest from the first known set that fits."""
    held = (
        known
        for known in _KNOWN_SPECIAL_TOKENS
        if all(backend.token_to_id(_named_token(config, role) or token) is not None for role, token in known.items())
    )
    found = {role: _named_token(config, role) or token for role, token in next(held, SPECIAL_TOKENS).items()}
    if found["cls"] == found["sep"]:
        # XLM and Flaubert classify by their separator, and begin with another token.
        found["cls"] = _named_token(config, "bos") or found["cls"]
    return found


def _named_token(config: Mapping[str, Any], role: str) -> str | None:
    named = config.get(f"{role}_token")
    named = named.get("content") if isinstance(named, dict) else named
    return named if isinstance(named, str) else None
