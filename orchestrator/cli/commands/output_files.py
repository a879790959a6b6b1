"""The file that `-o` names: looked at before long work begins, written whole or not at all while answers come."""

import os
from collections.abc import Iterable
from pathlib import Path

import click


def check_output(output: str | None) -> None:
    """Raise InputError unless a file can be written where `-o` says; other URIs than `file:` are not looked at."""
    from orchestrator.errors import InputError
    from orchestrator.storage.uris import is_local

    if output is None or not is_local(output):
        return
    path = output_path(output)
    if path.is_dir():
        raise InputError(f"{output} is a folder; name a file in it")
    there = next(parent for parent in path.parents if parent.exists())
    if not there.is_dir():
        raise InputError(f"{output} cannot be written: {there} is no folder; name another file")
    if not os.access(path if _is_stream(path) else there, os.W_OK):
        raise InputError(f"{output} cannot be written: permission denied; name another file")


def output_path(output: str) -> Path:
    """The file itself where `output` is a link; a device or a pipe as it is named."""
    from orchestrator.storage.uris import local_path

    path = local_path(output)
    return path.absolute() if _is_stream(path) else path.resolve()


def write_pieces(pieces: Iterable[bytes], output: str | None) -> None:
    """One after the other, as they come: to stdout where `output` is None or "-", to a device or a pipe, to a file.

    A file stands only when the last piece is written; until then, and where a piece cannot be had, it stays as it was.
    """
    from bert_core.checkpoints.atomic_files import atomic_write

    def write(target: Path | str) -> None:
        with click.open_file(str(target), "wb") as file:
            for piece in pieces:
                file.write(piece)
                file.flush()

    if output is None or output == "-":
        write("-")
    elif _is_stream(path := output_path(output)):
        write(path)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, write)


def _is_stream(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()
