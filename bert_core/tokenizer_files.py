"""A tokenizer's files: where they are, what they hold, and the `tokenizers` pipeline that they describe."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from bert_core.errors import TokenizerError

SPECIAL_TOKENS = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
"""By role, in the order of their ids in a vocabulary trained here."""
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt")
"""Either makes a folder a tokenizer's."""
_ROBERTA_SPECIAL_TOKENS = {"pad": "<pad>", "unk": "<unk>", "cls": "<s>", "sep": "</s>", "mask": "<mask>"}


def read_tokenizer(path: Path) -> tuple[tokenizers.Tokenizer, dict[str, str], Path]:
    """The pipeline, its special tokens by role, and the file it came from. Raises: TokenizerError."""
    file = _find_file(path)
    config = _read_config(file.parent)
    whole = file.suffix == ".json"
    backend = _read_backend(file) if whole else _build_from_vocabulary(_read_vocabulary(file), config)
    return backend, _find_special_tokens(backend, config), file


def build_wordpiece(
    vocabulary: Mapping[str, int], lowercase: bool, strip_accents: bool | None = None, chinese: bool = True
) -> tokenizers.Tokenizer:
    """BERT's pipeline around a vocabulary: clean, split on space and punctuation, longest pieces first."""
    special = {role: token for role, token in SPECIAL_TOKENS.items() if token in vocabulary}
    backend = tokenizers.Tokenizer(models.WordPiece(dict(vocabulary), unk_token=SPECIAL_TOKENS["unk"]))
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=strip_accents, handle_chinese_chars=chinese
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece()
    backend.add_special_tokens(list(special.values()))
    if "cls" in special and "sep" in special:
        cls, sep = SPECIAL_TOKENS["cls"], SPECIAL_TOKENS["sep"]
        backend.post_processor = processors.TemplateProcessing(
            single=f"{cls} $A {sep}",
            pair=f"{cls} $A {sep} $B:1 {sep}:1",
            special_tokens=[(cls, vocabulary[cls]), (sep, vocabulary[sep])],
        )
    return backend


def _find_file(path: Path) -> Path:
    if path.is_dir():
        for name in TOKENIZER_FILES:
            if (path / name).is_file():
                return path / name
        raise TokenizerError(f"{path} holds neither tokenizer.json nor vocab.txt; name a folder that holds a tokenizer")
    if not path.exists():
        raise TokenizerError(f"there is no tokenizer at {path}; name a folder with tokenizer.json or vocab.txt")
    if path.suffix not in (".json", ".txt"):
        raise TokenizerError(f"{path} is neither a tokenizer.json nor a vocab.txt")
    return path


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerError(f"{file} cannot be read: {error}; fetch the tokenizer again") from error


def _read_backend(file: Path) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(_read_text(file))
    except TokenizerError:
        raise
    except Exception as error:  # the library raises bare Exceptions
        raise TokenizerError(f"{file} is not a whole tokenizer.json: {error}; fetch or train it again") from error


def _read_vocabulary(file: Path) -> dict[str, int]:
    tokens = _read_text(file).removesuffix("\n").split("\n")
    vocabulary = {token.rstrip("\r"): i for i, token in enumerate(tokens)}
    if len(vocabulary) < len(tokens):
        twice = next(token for token, count in Counter(tokens).items() if count > 1)
        raise TokenizerError(f"{file} has {twice!r} more than once; a vocabulary has each token on one line")
    return vocabulary


def _read_config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        file = folder / name
        if not file.is_file():
            continue
        try:
            values = json.loads(_read_text(file))
        except json.JSONDecodeError as error:
            raise TokenizerError(f"{file} is not whole JSON: {error}; fetch the tokenizer again") from error
        if not isinstance(values, dict):
            raise TokenizerError(f"{file} must hold one JSON object")
        config |= values
    return config


def _build_from_vocabulary(vocabulary: dict[str, int], config: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """BERT's pipeline; where no config says so, a vocabulary without capitals is an uncased one."""
    capitals = any(token != token.lower() for token in vocabulary if not token.startswith("["))
    return build_wordpiece(
        vocabulary,
        lowercase=bool(config.get("do_lower_case", not capitals)),
        strip_accents=config.get("strip_accents"),
        chinese=bool(config.get("tokenize_chinese_chars", True)),
    )


def _find_special_tokens(backend: tokenizers.Tokenizer, config: Mapping[str, Any]) -> dict[str, str]:
    roberta = all(backend.token_to_id(token) is not None for token in _ROBERTA_SPECIAL_TOKENS.values())
    found = dict(_ROBERTA_SPECIAL_TOKENS if roberta else SPECIAL_TOKENS)
    for role in found:
        named = config.get(f"{role}_token")
        named = named.get("content") if isinstance(named, dict) else named
        if isinstance(named, str):
            found[role] = named
    return found
