"""The option `-o/--output FILE` of every command that writes a file, whose place is looked at before anything begins.

A folder is never made for a file: its name is more often a slip than wanted, and the file is looked for elsewhere then.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_WHERE = "Its folder must be there."


def output_option(help_text: str) -> Callable[[F], F]:
    """Add `-o/--output FILE` to a command; a place that cannot be written is refused before the command begins."""
    return click.option("-o", "--output", metavar="FILE", callback=_check_given, help=f"{help_text}. {_WHERE}")


def _check_given(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if not context.resilient_parsing:
        check_output(value)
    return value


def check_output(output: str | None) -> None:
    """Check that a file can be written where `-o` says, in a folder that is there.

    Standard output ("-") and other URIs than `file:` are not looked at.

    Raises: InputError.
    """
    if output is None or output == "-":
        return
    from orchestrator.errors import InputError
    from orchestrator.storage.uris import is_local

    if not is_local(output):
        return
    path = output_path(output)
    if path.is_dir():
        raise InputError(f"{output} is a folder; name a file in it")
    there = next(parent for parent in path.parents if parent.exists())
    if not there.is_dir():
        raise InputError(f"{output} cannot be written: {there} is no folder; name another file")
    if there != path.parent:
        raise InputError(f"{output}: there is no folder {path.parent}; make it first (mkdir -p), or name another file")
    if not os.access(path if is_stream(path) else there, os.W_OK):
        raise InputError(f"{output} cannot be written: permission denied; name another file")


def output_path(output: str) -> Path:
    """The file itself where `output` is a link; a device or a pipe as it is named."""
    from orchestrator.storage.uris import local_path

    path = local_path(output)
    return path.absolute() if is_stream(path) else path.resolve()


def is_stream(path: Path) -> bool:
    """Whether a path is a device or a pipe."""
    return path.exists() and not path.is_file() and not path.is_dir()
