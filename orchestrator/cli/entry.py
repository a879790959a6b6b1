"""Entry point of the `orchestrator` command: turns errors and signals into messages and exit statuses.

0 done · 1 the run failed, was stopped or lost · 2 wrong usage or bad input · 3 no such run, model or task
4 registry trouble · 5 cluster trouble · 129/130/143 interrupted by SIGHUP/SIGINT/SIGTERM
"""

import errno
import gc
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn

import click

from bert_core.errors import BertCoreError
from orchestrator.base.console import redirect_to_null, say_interrupted, show_progress
from orchestrator.base.errors import OrchestratorError, interruption_under_way
from orchestrator.cli.messages import at_work, notify, write_message
from orchestrator.cli.tree import COMPLETION_VARIABLE, cli, message_of

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SAME_SIGNAL_S = 0.5
"""Time in which a second signal counts as the first one, delivered twice."""
_RECORDING_S = 2.0
"""Longest time that a second signal waits for the record of a run's end."""
STOPPING = "stopping; Ctrl-C again leaves at once"
"""Said as soon as a signal has come while a run is at work; what is saved is told by the run."""
_BY: dict[int, str] = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "SIGTERM (`kill`)",
    signal.SIGHUP: "SIGHUP (the terminal was closed)",
}
"""Cause of an interruption, by the number of its signal."""


class Interrupted(KeyboardInterrupt):
    def __init__(self, number: int) -> None:
        super().__init__(f"interrupted by {_BY[number]}")
        self.number = number


def main() -> NoReturn:
    """Run the command line of this process and exit with its status; or answer a shell that completes a command."""
    if COMPLETION_VARIABLE in os.environ:
        warnings.simplefilter("ignore")
        cli.main(prog_name="orchestrator")
    for number in _SIGNALS:
        _handle(number, _interrupt)
    if "--debug" not in sys.argv and not sys.warnoptions:
        warnings.simplefilter("ignore")
    status = run_command_line(sys.argv[1:])
    try:
        if sys.stdout is not None:  # None: the shell closed it (`>&-`)
            sys.stdout.flush()
    except BrokenPipeError:
        redirect_to_null(sys.stdout)
    except OSError as error:
        status = _fail(f"the output cannot be written: {error.strerror}", 1, debug=False)
        redirect_to_null(sys.stdout)
    gc.freeze()  # the interpreter would look for cycles once more, for a fifth of a short command's time
    sys.exit(status)


def run_command_line(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit status. An error becomes one message on stderr."""
    debug = "--debug" in arguments
    try:
        with show_progress(), cli.make_context("orchestrator", list(arguments)) as context:
            status = cli.invoke(context)
        return status if isinstance(status, int) else 0
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        write_message(error.format_message() + "\n")
        return 2
    except click.ClickException as error:
        usage = isinstance(error, click.UsageError) and error.ctx
        hint = f"\nSee `{usage.command_path} --help`." if usage else ""
        return _fail(message_of(error) + hint, 2, debug)
    except (OrchestratorError, BertCoreError) as error:
        return _fail(str(error), getattr(error, "exit_status", 2), debug)
    except BrokenPipeError:
        redirect_to_null(sys.stdout)
        return 0
    except (click.Abort, KeyboardInterrupt) as error:
        if debug:
            traceback.print_exc()
        message = getattr(error, "reason", str(error)) or "interrupted"  # how to go on has been told
        notify(message[0].upper() + message[1:])  # what was asked for is no error
        return getattr(error, "exit_status", 128 + getattr(error, "number", signal.SIGINT))
    except OSError as error:
        if error.errno == errno.ENOSPC:
            place = error.filename or "the output"
            return _fail(f"{place} cannot be written: no space is left; make room, then try again", 1, debug)
        if error.filename is not None:
            return _fail(f"{error.filename}: {error.strerror}", 2, debug)
        return _fail_unexpectedly(error, debug)
    except Exception as error:
        if isinstance(error, ImportError) and str(error).startswith("Install "):  # fsspec asks for a package by itself
            return _fail(f"{error}, or give a --storage that needs no other package", 2, debug)
        return _fail_unexpectedly(error, debug)


def _fail_unexpectedly(error: Exception, debug: bool) -> int:
    text = " ".join(str(error).split())[:300]
    hint = "" if debug else " (run again with --debug for the traceback)"
    return _fail(f"unexpected {type(error).__name__}: {text}{hint}", 1, debug)


def _fail(message: str, status: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    notify(message, "Error: ")
    return status


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Handle a signal: the first one raises `Interrupted`, so that runs are recorded as stopped; a second one exits.

    `timeout` and some shells signal the process and then its group: a signal within `SAME_SIGNAL_S` is no second one.
    """
    first_at = time.monotonic()

    def leave(second: int, frame: FrameType | None) -> None:
        if time.monotonic() - first_at > SAME_SIGNAL_S:
            for line, record_end in at_work:
                # In a thread, for a moment at most: the main thread may hold whatever lock.
                thread = threading.Thread(target=record_end, daemon=True)
                thread.start()
                thread.join(_RECORDING_S)
                say_interrupted(line)
            os._exit(128 + second)

    interruption_under_way.set()
    if at_work:
        say_interrupted(STOPPING)
    for again in _SIGNALS:
        _handle(again, leave)
    raise Interrupted(number)


def _handle(number: int, handler: Callable[[int, FrameType | None], None]) -> None:
    """Handle a signal, unless whoever started this process wants it ignored: `nohup`, or `&` in a script."""
    if signal.getsignal(number) != signal.SIG_IGN:
        signal.signal(number, handler)
