"""The file that `-o` names, written whole or not at all while answers come."""

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from orchestrator.cli.messages import make_room
from orchestrator.cli.output_option import is_stream, output_path


def write_pieces(pieces: Iterable[bytes], output: str | None) -> None:
    """One after the other, as they come: to stdout where `output` is None or "-", to a device or a pipe, to a file.

    A file stands only when the last piece is written; until then, and where a piece cannot be had, it stays as it was.
    """
    from bert_core.checkpoints.manifest import atomic_write

    def write(target: Path | str) -> None:
        with click.open_file(str(target), "wb") as file:
            for piece in pieces:
                if target == "-":
                    make_room(sys.stdout)
                file.write(piece)
                file.flush()

    if output is None or output == "-":
        write("-")
    elif is_stream(path := output_path(output)):
        write(path)
    else:
        atomic_write(path, write)
