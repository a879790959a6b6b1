"""A shell on a terminal of its own, in which a test types as a person does."""

import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tests.waiting import PATIENCE_S

SHOW_LINE = "\x0f"
"""Ctrl-O, which each shell below answers with the line as it stands, between < and >, and then forgets the line."""
_READY = "the shell is ready"
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
)
"""Program that makes its terminal the session's own, as a login does, and then becomes the shell."""


@dataclass(frozen=True)
class Shell:
    """Shell for a test: its command without anybody's startup files, and the words by which it reads its completion."""

    command: tuple[str, ...]
    setup: str


SHELLS = {
    "bash": Shell(
        ("bash", "--norc", "--noprofile", "-i"),
        "source <(orchestrator completion bash); "
        r"""show() { printf '\n<%s>\n' "$READLINE_LINE"; READLINE_LINE=; }; bind -x '"\C-o": show'""",
    ),
    "zsh": Shell(
        ("zsh", "-f", "-i"),
        "autoload -U compinit; compinit -u -D; source <(orchestrator completion zsh); "
        r"""show() { printf '\n<%s>\n' "$BUFFER"; BUFFER= }; zle -N show; bindkey '^O' show""",
    ),
    "fish": Shell(
        ("fish", "--no-config", "-i"),
        "orchestrator completion fish | source; "
        r"""function show; printf '\n<%s>\n' (commandline); commandline ''; end; bind \co show""",
    ),
}


class TypedShell:
    """A shell that is at work on a terminal."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal

    def line_after(self, typed: str) -> str:
        """Type a line and a Tab; return the line that stands there then."""
        self.type(f"{typed}\t{SHOW_LINE}")
        return self.read_until(re.compile(r"\n<(.*)>\r?\n"))

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._terminal, text.encode())

    def read_until(self, pattern: re.Pattern[str]) -> str:
        """Read what the terminal shows until it has something; return that, or its first group."""
        shown, give_up_at = "", time.monotonic() + PATIENCE_S
        while not (found := pattern.search(shown)):
            assert time.monotonic() < give_up_at, f"the terminal shows {shown!r}"
            if select.select([self._terminal], [], [], 0.1)[0]:
                shown += os.read(self._terminal, 65536).decode(errors="replace")
        return found.group(pattern.groups)


@contextmanager
def typed_shell(shell: Shell, environment: Mapping[str, str]) -> Iterator[TypedShell]:
    """Start a shell that has read its completion; it ends with the block."""
    terminal, shells_end = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _TAKE_TERMINAL, *shell.command],
        stdin=shells_end,
        stdout=shells_end,
        stderr=shells_end,
        env=dict(environment),
        start_new_session=True,
    )
    os.close(shells_end)
    try:
        typed = TypedShell(terminal)
        typed.type(f"{shell.setup}\n")
        typed.type(f"echo '{_READY[:3]}''{_READY[3:]}'\n")  # as typed it differs from what it prints
        typed.read_until(re.compile(re.escape(_READY)))
        yield typed
    finally:
        os.close(terminal)  # the shell's hang-up
        process.wait(PATIENCE_S)
