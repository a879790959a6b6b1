"""Files of data by their names and first lines: the layout, the split that each is for, a name for what they hold."""

import re
import shlex
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import PurePosixPath
from typing import Literal

from orchestrator.base.errors import InputError
from orchestrator.base.results import Split
from orchestrator.storage.text_lines import stream_lines
from orchestrator.storage.uris import local_path
from orchestrator.tasks.table_files import TABLE_NAMES, is_json_table, table_name
from orchestrator.tasks.text_files import check_file, plain_name
from orchestrator.tasks.types.conll import FEW_LINES, has_other_tags, has_tag_columns, is_named_conll

Layout = Literal["table", "entities", "tags", "questions", "text"]
"""Rows with columns; CoNLL columns, whose tags mark entities or not; SQuAD's JSON; plain text."""

_HEAD_LINES = 200
_MOST = 0.95
"""Share of the first lines that show what all are like."""
_LABELED_LINES = {
    r".*\S\t.*\S": "have columns with tabs between them; let its name end in .tsv, its first line name the columns",
    "__label__": "begin with fastText's labels (__label__x); write CSV with the columns text and label",
}
"""Words on lines that are more than text, by a pattern of their beginning."""
_SPLIT_OF: Mapping[str, Split] = {
    **dict.fromkeys(("training", "train"), "train"),
    **dict.fromkeys(("validation", "development", "valid", "trial", "testa", "dev", "val"), "validation"),
    **dict.fromkeys(("testing", "testb", "test"), "test"),
}
_SPLIT_WORD = re.compile(rf"(?<![a-z])({'|'.join(sorted(_SPLIT_OF, key=len, reverse=True))})(?![a-z])")
_VERSION = re.compile(r"[-_. ]*v?\d+(\.\d+)*$")


def detect_layout(path: str, *, is_text: bool = False) -> Layout:
    """Find the layout of a file. Raises: InputError for a file that is missing, empty, binary or of no known layout.

    Args:
        is_text: whether a person says so, of lines that look like others with labels.
    """
    try:
        check_file(path)
    except IsADirectoryError:
        raise InputError(_folder_problem(path)) from None
    is_table = table_name(path) is not None or is_json_table(path)
    may_be_columns = not is_table or table_name(path) == "TSV"
    lines = list(islice(stream_lines(path), _HEAD_LINES)) if may_be_columns else []
    if is_table and not any(line.startswith("#") for line in lines[:1]):
        return "table"
    beginning = "".join(lines)
    if beginning.lstrip("\ufeff \r\n\t").startswith(("{", "[")) and plain_name(path).endswith(".json"):
        if re.search(r'"data"\s*:\s*\[\s*\{', beginning):
            return "questions"
        others = 'records (a list of objects, or one on each line) nor laid out as SQuAD (an object with a list "data")'
        raise InputError(f"{path} is JSON ({' '.join(beginning.split())[:50]} …) and neither {others}; write records")
    if has_tag_columns(lines):
        return "entities"
    rows = [line.rstrip("\r\n") for line in lines if line.strip() and not line.startswith("#")]
    has_sentences = not is_text and any(not line.strip() for line in lines)
    is_conllu = _are_most(rows, lambda line: line.count("\t") == 9 and line[0].isdigit())
    if is_conllu or (has_sentences and has_other_tags(rows)):
        return "tags"
    if is_table:
        return "table"
    if is_named_conll(path):
        return "tags" if plain_name(path).endswith(".conllu") else "entities"
    for beginning, looks in _LABELED_LINES.items():
        if not is_text and len(rows) > FEW_LINES and _are_most(rows, re.compile(beginning).match):
            raise InputError(f"{path}: its lines {looks}; as plain text they are read by --kind pretraining alone")
    return "text"


def _are_most(lines: Sequence[str], test: Callable[[str], object]) -> bool:
    return bool(lines) and sum(1 for line in lines if test(line)) >= _MOST * len(lines)


def _folder_problem(path: str) -> str:
    endings = [PurePosixPath(plain_name(file.name)).suffix for file in local_path(path).iterdir()]
    endings = [ending for ending in endings if ending in TABLE_NAMES] or [".txt"]
    ending = max(endings, key=endings.count)
    return f"{path} is a folder; name its files, as in: orchestrator init {shlex.quote(path.rstrip('/'))}/*{ending}"


def role_of(path: str) -> Split | None:
    """The split that a file's name speaks of, its folder's name left aside.

    >>> role_of("data/eng.testa"), role_of("wnut17train.conll"), role_of("training_set.csv.gz"), role_of("latest.csv")
    ('validation', 'train', 'train', None)
    """
    found = _SPLIT_WORD.findall(PurePosixPath(plain_name(path)).name.removesuffix(".annotated"))
    return _SPLIT_OF[found[-1]] if found else None


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

    It is that of the file for training, else that of its folder. Several files of which none is named for training are
    known by their folder.

    >>> data_name(["my reviews.csv.gz"]), data_name(["dev.tsv", "glue/SST-2/train.tsv"]), data_name(["wiki.train.txt"])
    ('my_reviews', 'SST-2', 'wiki')
    >>> data_name(["squad/train-v1.1.json.xz"]), data_name(["жалобы и café.csv"]), data_name(["a/0.txt", "a/1.txt"])
    ('squad', 'жалобы_и_café', 'a')
    """
    training = next((path for path in paths if role_of(path) == "train"), None)
    path = PurePosixPath(training or paths[0])
    stem = PurePosixPath(path.name[: len(plain_name(path.name))]).stem
    kept = _VERSION.sub("", _SPLIT_WORD.sub("", stem)) if role_of(path.name) else stem
    names = [_plain(name) for name in (kept.removesuffix(".conll"), path.parent.name)]
    if len(paths) > 1 and training is None:
        names.reverse()
    return next(filter(None, names), "data")


def _plain(name: str) -> str:
    """A name without the signs that a path or a spec may not have: letters, their marks, digits and `-` stay."""
    kept = (sign if sign == "-" or unicodedata.category(sign)[0] in "LMN" else " " for sign in name)
    return "_".join(unicodedata.normalize("NFC", "".join(kept)).split()).strip("_-")
