"""Compressed files of a registry's rows: written as the ending of their name says, read as their first bytes say."""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import zstandard

BROKEN = (EOFError, zlib.error, gzip.BadGzipFile, zstandard.ZstdError)
"""Errors of a file that is cut short or damaged."""
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


def is_compressed(start: bytes) -> bool:
    """Whether a file that begins so is compressed in a way that can be read here."""
    return start.startswith((_GZIP, _ZSTD))


@contextmanager
def write_compressed(path: Path, ending: str) -> Iterator[IO[bytes]]:
    """Open a file for writing, compressed by the ending of its name, `.gz` or `.zst`; any other means plain bytes."""
    with path.open("wb") as raw:
        if ending == ".gz":
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as file:
                yield file  # type: ignore[misc]
        elif ending == ".zst":
            with zstandard.ZstdCompressor(level=6).stream_writer(raw, closefd=False) as writer:
                yield writer
        else:
            yield raw


@contextmanager
def read_decompressed(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, decompressed as its first bytes tell. Raises: OSError, and what `BROKEN` lists."""
    with path.open("rb") as raw:
        start = raw.read(4)
        raw.seek(0)
        if start.startswith(_GZIP):
            with gzip.GzipFile(fileobj=raw) as file:
                yield file  # type: ignore[misc]
        elif start.startswith(_ZSTD):
            yield io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(raw))
        else:
            yield raw
