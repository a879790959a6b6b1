"""How the bytes of input files are unpacked, and what is said of damaged ones.

Run alone: pytest tests/orchestrator/corpus/test_decompression.py
"""

import gzip
import lzma
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from orchestrator.corpus.decompression import CHUNK_BYTES, DamagedFileError, read_chunks
from orchestrator.corpus.input_files import InputFile, find_files
from orchestrator.errors import CorpusError
from orchestrator.specs import TextSource


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


PACKERS: dict[str, Callable[[bytes], bytes]] = {".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd}


def content(path: Path) -> bytes:
    (file,) = find_files(TextSource(files=(str(path),)))
    return b"".join(read_chunks(file))


@pytest.mark.parametrize("ending", PACKERS)
def test_concatenated_members_are_read_through(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(PACKERS[ending](b"one\n" * 400_000) + PACKERS[ending](b"two"))
    assert content(path) == b"one\n" * 400_000 + b"two"


@pytest.mark.parametrize("ending", PACKERS)
@pytest.mark.parametrize("lost", [1, 10, 300])
@pytest.mark.heavy
def test_a_file_cut_short_is_named_with_the_place(tmp_path: Path, ending: str, lost: int) -> None:
    path = tmp_path / f"a.txt{ending}"
    packed = PACKERS[ending](os.urandom(CHUNK_BYTES + 100_000))
    path.write_bytes(packed[:-lost])
    with pytest.raises(DamagedFileError, match=r"a\.txt"):
        content(path)


@pytest.mark.parametrize("ending", PACKERS)
def test_an_ending_that_lies_is_named(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.txt{ending}"
    path.write_bytes(b"plain text")
    with pytest.raises(CorpusError, match=r"a\.txt"):
        content(path)
    path = tmp_path / "b.txt"
    path.write_bytes(PACKERS[ending](b"text"))
    with pytest.raises(CorpusError, match=rf"holds {ending[1:]} data; rename it to b\.txt\{ending}$"):
        content(path)


@pytest.mark.parametrize("ending", ["", *PACKERS])
def test_an_empty_file_is_empty(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"a.txt{ending}").touch()
    assert content(tmp_path / f"a.txt{ending}") == b""


def test_a_file_that_is_gone_when_it_is_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"gone\.txt"):
        list(read_chunks(InputFile(str(tmp_path / "gone.txt"), "text", "", 10, "")))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "secret.txt"
    path.write_text("text")
    path.chmod(0)
    with pytest.raises(CorpusError, match=r"secret\.txt"):
        content(path)
