"""Decompressed bytes of an input file, in bounded memory; damage, and an ending that does not fit, are noticed."""

import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO

import pyarrow as pa

from orchestrator.corpus.input_files import InputFile, open_raw
from orchestrator.errors import CorpusError
from orchestrator.storage.compression import COMPRESSIONS

CHUNK_BYTES = 1 << 20
_ZSTD_PIECE_BYTES = 1 << 14
"""Size of a read from a .zst file. Arrow fills a piece or fails, so this much may be lost where a file is damaged."""


class DamagedFileError(CorpusError):
    """A file ends early or cannot be decompressed; the bytes that were read before are good."""


def read_chunks(file: InputFile, on_read: Callable[[int], None] = lambda _: None) -> Iterator[bytes]:
    """Decompressed content of a file, in pieces; `on_read` gets the number of stored bytes read so far.

    Raises: CorpusError when the file cannot be opened or has a wrong ending, DamagedFileError when it ends early.
    """
    num_bytes = 0
    with open_raw(file) as raw:
        _check_compression(file, raw)
        if not file.num_bytes:
            return
        try:
            read = _decompress(raw, file.compression)
            while chunk := read():
                num_bytes += len(chunk)
                on_read(raw.tell())
                yield chunk
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            raise DamagedFileError(
                f"{file.path} is damaged after {num_bytes} bytes of its content: {error}; fetch it again"
            ) from None


def _check_compression(file: InputFile, raw: IO[bytes]) -> None:
    """Check that a file's first bytes fit its ending. Raises: CorpusError."""
    begin = raw.read(6)
    raw.seek(0)
    actual = next((ending for ending, magic in COMPRESSIONS.items() if begin.startswith(magic)), "")
    if begin and actual != file.compression:
        what = f"holds {actual[1:]} data" if actual else "is not compressed"
        plain = file.name[: len(file.name) - len(file.compression)]
        raise CorpusError(f"{file.path} {what}; rename it to {plain}{actual}")


def _decompress(raw: IO[bytes], compression: str) -> Callable[[], bytes]:
    """A function that returns the next piece of the content, also of files made of several compressed parts.

    Pieces may be small: bytes that were collected for a larger one would be lost where a file is damaged.
    """
    if compression == ".gz":
        return partial(gzip.GzipFile(fileobj=raw).read1, CHUNK_BYTES)
    if compression == ".xz":
        return partial(lzma.LZMAFile(raw).read1, CHUNK_BYTES)
    if compression == ".zst":
        return partial(pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd").read, _ZSTD_PIECE_BYTES)
    return partial(raw.read, CHUNK_BYTES)
