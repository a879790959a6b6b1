"""Progress of long work, on stderr: lines that stay, and on a terminal a status line and a view that are redrawn.

    logger.info(…)                       a line that stays, from any module; a run's log gets it too
    logger.warning(…)                    the same, with "warning: " before it
    logger.info(…, extra=UNDER_WAY)      what is being done now: the terminal's status line; a line elsewhere
    progress.status(…)                   the same, for lines that follow one another quickly
    progress.show(view)                  the view of a run, below the status line; only on a terminal

`terminal` is the handler, `run_views` are the values that it is shown and their lines.
"""

from orchestrator.base.console.log_lines import (
    UNDER_WAY,
    LineFormatter,
    Pace,
    attached,
    counted,
    duration,
    names_text,
    size_text,
)
from orchestrator.base.console.terminal import (
    Progress,
    clear_screen,
    ignoring_broken_pipe,
    is_terminal,
    redirect_to_null,
    say_interrupted,
    show_progress,
    terminal_width,
)

__all__ = [
    "UNDER_WAY",
    "LineFormatter",
    "Pace",
    "Progress",
    "attached",
    "clear_screen",
    "counted",
    "duration",
    "ignoring_broken_pipe",
    "is_terminal",
    "names_text",
    "redirect_to_null",
    "say_interrupted",
    "show_progress",
    "size_text",
    "terminal_width",
]
