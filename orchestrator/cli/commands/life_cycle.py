"""Commands about a run that another process carries out: `stop`, `wait`."""

import sys

import click

from orchestrator.cli.commands.registry_reading import run_id_of
from orchestrator.cli.frame import GlobalOptionsCommand, current_settings, resume_command
from orchestrator.cli.messages import notify, status_line
from orchestrator.progress import is_terminal

_STOP_TIMEOUT_S = 600.0


@click.command(cls=GlobalOptionsCommand, example="orchestrator stop 7f3a")
@click.argument("run_id", metavar="RUN")
@click.option("--force", is_flag=True, help="Let it leave at once, without saving anything.")
@click.option("--no-wait", is_flag=True, help="Leave when it has been asked; do not wait for its end.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0),
    default=_STOP_TIMEOUT_S,
    show_default=True,
    help="Seconds to wait for its end.",
)
def stop(run_id: str, force: bool, no_wait: bool, timeout_s: float) -> None:
    """Stop a run, on whatever machine it works.

    It does what it does on Ctrl-C: it saves a checkpoint where it can, records its end, and ends its own processes.
    Works for submitted jobs as well, by the cluster's --address alone. `resume` goes on with it.
    """
    from orchestrator.execution.stopping import stop_run
    from orchestrator.run_states import RunState

    record = stop_run(
        run_id_of(run_id),
        settings=current_settings(),
        force=force,
        timeout_s=None if no_wait else timeout_s,
        say=notify,
    )
    if record.state == RunState.STOPPED:
        notify(f"go on with: {resume_command(record.id)}")


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator wait 7f3a && orchestrator runs show 7f3a",
)
@click.argument("run_id", metavar="RUN")
@click.option("--timeout", "timeout_s", type=click.FloatRange(0), help="Seconds to wait at most.")
def wait(run_id: str, timeout_s: float | None) -> int:
    """Wait until a run has ended.

    The exit status is the outcome: 0 completed, 1 failed, stopped, lost or still at work when the time is over, 3 no
    such run. On a terminal a line shows how far it is.
    """
    from orchestrator.execution.waiting import outcome_line, wait_for_run
    from orchestrator.run_states import RunState

    settings, run_id = current_settings(), run_id_of(run_id)
    if is_terminal(sys.stderr):
        with status_line() as show:
            record = wait_for_run(run_id, settings=settings, timeout_s=timeout_s, on_progress=show)
    else:
        record = wait_for_run(run_id, settings=settings, timeout_s=timeout_s)
    notify(outcome_line(record))
    return 0 if record.state == RunState.COMPLETED else 1
