"""Roles of files by their names: which is for training, which for validation, which for the test."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from orchestrator.errors import InputError
from orchestrator.results import Split
from orchestrator.tasks.text_files import plain_name

_WORDS: Mapping[str, Split] = {
    "train": "train",
    "training": "train",
    "dev": "validation",
    "development": "validation",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "trial": "validation",
    "testa": "validation",
    "test": "test",
    "testb": "test",
    "testing": "test",
}
_ROLE = re.compile(rf"(?<![a-z])({'|'.join(sorted(_WORDS, key=len, reverse=True))})(?![a-z])")

_VERSION = re.compile(r"[-_. ]*v?\d+(\.\d+)*$")


def role_of(path: str) -> Split | None:
    """The split that a file's name speaks of, its folder's name left aside.

    >>> role_of("data/eng.testa"), role_of("wnut17train.conll"), role_of("training_set.csv.gz"), role_of("latest.csv")
    ('validation', 'train', 'train', None)
    """
    found = _ROLE.findall(_file_name(path).removesuffix(".annotated"))
    return _WORDS[found[-1]] if found else None


def assign_roles(paths: Sequence[str]) -> Mapping[Split, str]:
    """One file for each split. A single file is for training, whatever its name.

    Raises: InputError when names do not tell the files apart, or none of several is for training.
    """
    if len(paths) == 1:
        return {"train": paths[0]}
    roles: dict[Split, str] = {}
    for path in paths:
        role = role_of(path)
        if role is None:
            raise InputError(
                f"{path}: its name does not say what it is for; of several labeled files, let each name have train, "
                "dev or test in it (as in reviews.train.csv), or give one file, which is then split"
            )
        if role in roles:
            raise InputError(
                f"{roles[role]} and {path} are both for {role} by their names; give one of them, or join them"
            )
        roles[role] = path
    if "train" not in roles:
        raise InputError(f"{' and '.join(paths)}: none is for training by its name; give a file with train in its name")
    return roles


def data_name(paths: Sequence[str]) -> str:
    """A name for what files hold, made of letters of any script, digits, `-` and `_`.

    It is that of the file for training, else that of its folder.

    Several files of which none is named for training are known by their folder.

    >>> data_name(["my reviews.csv.gz"]), data_name(["dev.tsv", "glue/SST-2/train.tsv"]), data_name(["wiki.train.txt"])
    ('my_reviews', 'SST-2', 'wiki')
    >>> data_name(["squad/train-v1.1.json.xz"]), data_name(["wikigold.conll.txt"])
    ('squad', 'wikigold')
    >>> data_name(["notes/0.txt.gz", "notes/1.txt.gz"]), data_name(["жалобы и café.csv"])
    ('notes', 'жалобы_и_café')
    """
    training = next((path for path in paths if role_of(path) == "train"), None)
    path = PurePosixPath(training or paths[0])
    plain = path.name[: len(plain_name(path.name))]
    stem = plain.rsplit(".", 1)[0] if "." in plain.lstrip(".") else plain
    kept = _VERSION.sub("", _ROLE.sub("", stem)) if role_of(path.name) else stem
    kept = kept.removesuffix(".conll")
    names = (_plain(name) for name in (kept, path.parent.name))
    candidates = [name for name in names if name]
    if len(paths) > 1 and training is None:
        candidates.reverse()
    return next(iter(candidates), "data")


def _plain(name: str) -> str:
    """A name without the signs that a path or a spec may not have: its words of letters, digits and `-`."""
    kept = (sign if _is_kept(sign) else " " for sign in unicodedata.normalize("NFC", name))
    return "_".join("".join(kept).split()).strip("_-")


def _is_kept(sign: str) -> bool:
    """Whether a character is `-`, a letter, a digit, or a mark on a letter, which many scripts write vowels with."""
    return sign == "-" or sign.isalnum() or unicodedata.category(sign).startswith("M")


def _file_name(path: str) -> str:
    return PurePosixPath(plain_name(path)).name
