"""Drawing of what is shown over and over on a terminal: status line, stage, the view of a run. The one place for it.

A frame is drawn anew several times a second, for the terminal's size of that moment. A line that is too long is cut; of
a table that is too wide, columns are left out and named.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from orchestrator.progress.log_lines import counted, duration
from orchestrator.progress.run_views import RunView, Shown, SweepView, TrainingView, TrialView
from orchestrator.progress.tables import Column, fitting, rich_table

_ELAPSED_FROM_S = 1.0
_BAR_WIDTH = 24
_LINES_BESIDE_TRIALS = 6
"""Lines of the terminal that a sweep's rows leave free."""


class Frame:
    """Renderable of what `read` returns at each drawing."""

    def __init__(self, read: Callable[[], Shown]) -> None:
        self._read = read
        self._spinner: Spinner | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the present frame."""
        if self._spinner is None:
            self._spinner = Spinner("line" if options.ascii_only else "dots")
        shown = self._read()
        yield _row(self._spinner.render(console.get_time()), _head(shown))
        if isinstance(shown.view, TrainingView):
            yield from _training_lines(shown.view)
        elif isinstance(shown.view, SweepView):
            most_rows = max(1, console.height - _LINES_BESIDE_TRIALS)
            yield from _sweep_lines(shown.view, most_rows, options.max_width)


def _head(shown: Shown) -> Text:
    """The first line: the stage, what is being done, and for how long."""
    parts = [f"stage {shown.stage.number} of {shown.stage.num_stages}, {shown.stage.name}"] if shown.stage else []
    parts += [shown.status] if shown.status else []
    parts += [_name(shown.view)] if shown.view and not shown.status else []
    elapsed = time.monotonic() - shown.since
    return _line("  ".join(parts) + (f"  {duration(elapsed)}" if elapsed >= _ELAPSED_FROM_S else ""))


def _name(view: RunView) -> str:
    if isinstance(view, TrainingView):
        return "training"
    running = f"{len(view.running)} running"
    if view.num_trials is None:
        return f"{counted(view.num_ended, 'trial')} ended, {running}"
    return f"{view.num_ended} of {view.num_trials} trials ended, {running}, {view.num_waiting} waiting"


def _training_lines(view: TrainingView) -> Iterator[RenderableType]:
    left = "" if view.left_s is None else f"  {duration(view.left_s)} left"
    bar = ProgressBar(total=max(1, view.num_steps), completed=view.step, width=_BAR_WIDTH)
    share = view.step / max(1, view.num_steps)
    yield _row(bar, _line(f"step {view.step:,}/{view.num_steps:,}  {share:.0%}{left}"))
    if view.measured:
        yield _line("  ".join(view.measured))
    if view.held_out:
        yield _line(view.held_out)


def _sweep_lines(view: SweepView, most_rows: int, width: int) -> Iterator[RenderableType]:
    columns = _trial_columns(view.running[:most_rows], view.metric)
    shown = fitting(columns, width, _spare(columns))
    left_out = [column.name for column in columns if column not in shown]
    if view.running and shown:
        yield rich_table(shown, width, one_line=True)
    if len(view.running) > most_rows:
        yield _line(f"and {len(view.running) - most_rows} more trials that run")
    last = [view.best] if view.best else []
    last += [f"about {duration(view.left_s)} left"] if view.left_s and round(view.left_s) else []
    last += [f"left out: {', '.join(left_out)}"] if left_out else []
    if last:
        yield _line("  ".join(last))


def _trial_columns(trials: Sequence[TrialView], metric: str) -> list[Column]:
    varied = dict.fromkeys(name for trial in trials for name in trial.varied)
    return [
        _numbers("trial", (str(trial.number) for trial in trials)),
        *(Column(name, (name, *(trial.varied.get(name, "") for trial in trials))) for name in varied),
        _numbers("epoch", map(_epochs, trials)),
        _numbers(metric, (_score(trial.last) for trial in trials)),
        _numbers("best", (_score(trial.best) for trial in trials)),
    ]


def _spare(columns: Sequence[Column]) -> list[str]:
    """Columns to leave out first: what is the same for all trials, then what sets them apart; the score is never."""
    _, *varied, epoch, _, best = columns
    alike = [column.name for column in varied if len(set(column.texts[1:])) == 1]
    apart = [column.name for column in varied if column.name not in alike]
    return [*alike[::-1], *apart[::-1], epoch.name, best.name, "trial"]


def _numbers(name: str, texts: Iterable[str]) -> Column:
    return Column(name, (name, *texts), is_number=True)


def _score(score: float | None) -> str:
    return "–" if score is None else f"{score:.4f}"


def _epochs(trial: TrialView) -> str:
    return f"{trial.epoch:.1f}" + ("" if trial.num_epochs is None else f"/{trial.num_epochs:g}")


def _line(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")


def _row(*cells: RenderableType) -> Table:
    """Cells beside one another on one line."""
    row = Table.grid(padding=(0, 1, 0, 0))
    for _ in cells[:-1]:
        row.add_column(no_wrap=True)
    row.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    row.add_row(*cells)
    return row
