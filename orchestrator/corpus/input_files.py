"""Files that a source names: found, told apart, opened.

A name is a local path, or a URI of an allowed scheme that fsspec or pyarrow knows. Patterns keep their order, files of
one pattern are sorted by path, and a file that is found twice (links, loops, overlapping patterns) is used once.
"""

import glob
import hashlib
import logging
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal

import pyarrow as pa
import pyarrow.fs
from fsspec.implementations.arrow import ArrowFSWrapper

from bert_core.checkpoints.manifest import digest_stream
from orchestrator.base.errors import CorpusError, InputError
from orchestrator.base.nearest import similar_file
from orchestrator.specs import TextSource
from orchestrator.storage.file_access import open_read
from orchestrator.storage.hub import HubPlace, find_on_hub, is_hub, pin
from orchestrator.storage.text_lines import COMPRESSIONS
from orchestrator.storage.uris import filesystem_of, is_local, local_path, version_of

logger = logging.getLogger(__name__)
Format = Literal["text", "jsonl", "parquet"]

FORMATS: dict[str, Format] = {
    ".txt": "text",
    ".text": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}
_TEXT_PER_COMPRESSED_BYTE = 3
_ENDINGS = f"{' '.join(FORMATS)}, also followed by {' '.join(COMPRESSIONS)}"


@dataclass(frozen=True)
class InputFile:
    """One file of a corpus."""

    path: str
    format: Format
    compression: str
    """Ending of the compression, `.gz`, `.xz` or `.zst`; empty for a plain file."""
    num_bytes: int
    version: str
    """Value that changes when the file does: its time of modification, or an object store's tag."""
    entry: int = 0
    """Number of the entry of `corpus.files` by which the file was found."""
    mean_copies: float = 1.0
    """Number of times that each of its documents is read, on average."""

    @property
    def estimated_text_bytes(self) -> float:
        """Bytes of text that are read from it, about: unpacked, and as often as its entry is sampled."""
        is_compressed = bool(self.compression) or self.format == "parquet"
        return self.num_bytes * self.mean_copies * (_TEXT_PER_COMPRESSED_BYTE if is_compressed else 1)


def find_files(source: TextSource) -> tuple[InputFile, ...]:
    """All files that `source` names, in order. Raises: CorpusError, also when a pattern matches nothing."""
    files: dict[str, InputFile] = {}
    for entry, pattern in enumerate(source.files):
        found = list(_find_local(pattern, source) if is_local(pattern) else _find_remote(pattern, source))
        for identity, file in found:
            files.setdefault(identity, replace(file, entry=entry))
        if not found:
            raise CorpusError(
                f"corpus.files: {pattern!r} matches no file; check the path, "
                f"and that files in a folder end in {_ENDINGS}, or set corpus.format (--input-format)"
            )
    sizes = [0] * len(source.files)
    for file in files.values():
        sizes[file.entry] += file.num_bytes
    copies = mean_copies(sizes, source.sampling_exponent)
    return tuple(replace(file, mean_copies=copies[file.entry]) for file in files.values())


def _find_local(pattern: str, source: TextSource) -> Iterator[tuple[str, InputFile]]:
    # The path is made absolute, as a Ray worker on another machine has another working directory.
    pattern = str(local_path(pattern).absolute())
    is_pattern = glob.has_magic(pattern) and not os.path.lexists(pattern)
    matches = sorted(glob.glob(pattern, recursive=True)) if is_pattern else [pattern]  # noqa: PTH207 - any root
    for name in matches:
        if Path(name).is_dir():
            for path in sorted(_walk(name)):
                if _wanted(path, source):
                    yield from _local_file(path, source, named=False)
        elif os.path.lexists(name) or not is_pattern:
            yield from _local_file(name, source, named=not is_pattern)


def _walk(folder: str) -> Iterator[str]:
    """Paths of the files below a folder. Links are followed, but no folder is entered twice."""
    entered: set[tuple[int, int]] = set()
    for root, folders, names in os.walk(folder, followlinks=True, onerror=_raise_unreadable):
        status = Path(root).stat()
        if (status.st_dev, status.st_ino) in entered:
            folders.clear()
            continue
        entered.add((status.st_dev, status.st_ino))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (f"{root}/{name}" for name in names)


def _raise_unreadable(error: OSError) -> None:
    raise CorpusError(f"the folder {error.filename} cannot be read: {error.strerror}; check its permissions")


def _local_file(path: str, source: TextSource, named: bool) -> Iterator[tuple[str, InputFile]]:
    try:
        status = Path(path).stat()
    except OSError as error:
        remedy = similar_file(Path(path)) or "; check the path"
        raise CorpusError(f"corpus.files: {path} cannot be read: {error.strerror}{remedy}") from None
    if stat.S_ISREG(status.st_mode):
        identity = f"{status.st_dev}:{status.st_ino}"
        yield identity, _input_file(path, source, status.st_size, str(status.st_mtime_ns))
    elif named:
        raise CorpusError(f"corpus.files: {path} is neither a file nor a folder")


def _find_remote(pattern: str, source: TextSource) -> Iterator[tuple[str, InputFile]]:
    if is_hub(pattern):
        named = pin(pattern)
        for path, num_bytes in find_on_hub(named):
            if not _is_hidden(path, named) and (path == named or _wanted(path, source)):
                yield path, _input_file(path, source, num_bytes, str(HubPlace.parse(path).revision))
        return
    filesystem, plain = _filesystem(pattern)
    scheme = pattern.partition("://")[0]
    try:
        is_named = not glob.has_magic(plain) or filesystem.exists(plain)
        names = [plain] if is_named else sorted(filesystem.glob(plain))
        for name in names:
            infos = filesystem.find(name, detail=True).values() if filesystem.isdir(name) else [filesystem.info(name)]
            for info in sorted(infos, key=lambda info: str(info["name"])):
                path = info["name"] if "://" in info["name"] else f"{scheme}://{info['name']}"
                if not _is_hidden(path, pattern) and (info["name"] == name or _wanted(path, source)):
                    version = version_of(info) or _digest(filesystem, info["name"], path)
                    yield path, _input_file(path, source, int(info["size"] or 0), version)
    except FileNotFoundError:
        return
    except OSError as error:
        raise CorpusError(f"corpus.files: {pattern} cannot be listed: {error}; check address and access") from None


def _is_hidden(path: str, pattern: str) -> bool:
    """Whether more parts of a path begin with a dot than its pattern names; local patterns and folders skip those."""
    return path.count("/.") > pattern.count("/.")


def _digest(filesystem: Any, name: str, path: str) -> str:
    """SHA-256 of a remote file, in place of a version; says that the file had to be read for it."""
    logger.warning(f"{path}: its store lists no version of it, so all of it is read to notice whether it has changed")
    with filesystem.open(name, "rb") as file:
        return digest_stream(file)


def _filesystem(uri: str) -> tuple[Any, str]:
    """File system of a URI, and the path in it: fsspec's, or pyarrow's where fsspec lacks a package."""
    try:
        return filesystem_of(uri)
    except InputError as refused:
        raise CorpusError(f"corpus.files: {refused}") from None
    except (ImportError, ValueError) as missing:
        try:
            arrow, plain = pyarrow.fs.FileSystem.from_uri(uri)
        except (pa.ArrowException, OSError):
            raise CorpusError(
                f"corpus.files: {uri}: {missing}; install it, or give a local path or another URI"
            ) from None
        return ArrowFSWrapper(arrow), plain


def _wanted(path: str, source: TextSource) -> bool:
    """Whether a file in a folder belongs to the corpus: it is not hidden, and has a known ending."""
    name = PurePosixPath(path).name
    return not name.startswith((".", "_")) and (source.format != "auto" or _ending(name)[0] in FORMATS)


def _ending(name: str) -> tuple[str, str]:
    """Ending and compression of a file's name, such as `.jsonl` and `.xz`."""
    path = PurePosixPath(name.lower())
    if path.suffix in COMPRESSIONS:
        return PurePosixPath(path.stem).suffix, path.suffix
    return path.suffix, ""


def _input_file(path: str, source: TextSource, num_bytes: int, version: str) -> InputFile:
    ending, compression = _ending(PurePosixPath(path).name)
    form = FORMATS.get(ending) if source.format == "auto" else source.format
    if form is None:
        raise CorpusError(
            f"corpus.files: the ending of {path} does not say how to read it; "
            f"known are {_ENDINGS}: rename it or set corpus.format (--input-format) to text, jsonl or parquet"
        )
    if form == "parquet" and compression:
        raise CorpusError(f"corpus.files: {path} is compressed, and Parquet is so in itself; unpack the file")
    return InputFile(path, form, compression, num_bytes, version)


def open_raw(file: InputFile) -> IO[bytes]:
    """Open a file for its bytes as they are stored. Raises: CorpusError when it cannot be opened."""
    try:
        if is_local(file.path) or is_hub(file.path):
            return open_read(file.path)
        filesystem, plain = _filesystem(file.path)
        remote: IO[bytes] = filesystem.open(plain, "rb")
        return remote
    except OSError as error:
        raise CorpusError(f"{file.path} cannot be opened: {error}; check that it exists and may be read") from None


def mean_copies(num_bytes: Sequence[int], exponent: float) -> list[float]:
    """Average number of times that each language's documents are read: q_i / p_i, 1 for a language without text.

    Devlin et al. (2018, the multilingual README: "exponentially smoothed weighting", exponent 0.7) and Conneau and
    Lample (2019, section 3.1): a language with the share p_i of the text is sampled with q_i = p_i^a / Σ_j p_j^a, so
    that small ones are seen more often. They draw sentences during training, and p_i counts those. Here p_i counts
    stored bytes, and a document is read as often as the whole number below, and once more if a hash of its text says
    so. So the corpus keeps its size, copies of a document stay together in training or in validation, and the numbering
    of examples does not depend on languages.
    """
    total = sum(num_bytes)
    if exponent == 1 or not total:
        return [1.0] * len(num_bytes)
    shares = [size / total for size in num_bytes]
    norm = sum(share**exponent for share in shares if share)
    return [share ** (exponent - 1) / norm if share else 1.0 for share in shares]


def num_copies(text: str, mean: float) -> int:
    """Number of times that this document is read."""
    if mean == 1.0:
        return 1
    digest = hashlib.blake2b(text.encode(), digest_size=8, person=b"sampling").digest()
    return int(mean + int.from_bytes(digest, "big") / 2**64)
