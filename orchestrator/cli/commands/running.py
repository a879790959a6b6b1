"""Commands that carry a spec out: `demo`, `run`, `plan`, `submit`, `resume`."""

import shlex
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import click

from orchestrator.cli.frame import (
    GlobalOptionsCommand,
    current_settings,
    given_options,
    overrides_argument,
    reading_options,
    spec_argument,
)
from orchestrator.cli.last_words import last_words
from orchestrator.cli.output import notify, show_rows, show_text, write_message
from orchestrator.progress import reader_may_leave

if TYPE_CHECKING:
    from orchestrator.registry import RunRecord


@click.command(cls=GlobalOptionsCommand, example="orchestrator demo")
def demo() -> int:
    """The whole life cycle on generated text, in minutes."""
    from orchestrator.demo.tour import run_demo

    return run_demo(current_settings())


@click.command(
    cls=GlobalOptionsCommand, example="orchestrator run experiments/sweep_sst2.yaml recipe.epochs=1 --name first-try"
)
@spec_argument
@overrides_argument
@click.option("--name", help="The experiment's name; the spec's own, or its file's, when left out.")
@click.option("--dry-run", is_flag=True, help="Only say what it needs, as `orchestrator plan` does.")
def run(spec_path: str, overrides: tuple[str, ...], name: str | None, dry_run: bool) -> int:
    """Carry out a spec as a new run.

    The run's id goes to stdout. KEY=VALUE sets a field of the spec: a dotted path and a YAML value.
    """
    from orchestrator.execution.runner import run_spec
    from orchestrator.specs.loading import load_spec

    if dry_run:
        return _plan(spec_path, overrides, None, None)
    spec = load_spec(spec_path, overrides)
    spec = spec.model_copy(update={"name": name}) if name else spec
    return _carried_out(partial(run_spec, spec, settings=current_settings()))


@click.command(
    cls=GlobalOptionsCommand, example="orchestrator plan experiments/pretrain_base.yaml execution.num_workers=8"
)
@spec_argument
@overrides_argument
@reading_options
def plan(spec_path: str, overrides: tuple[str, ...], form: str | None, output: str | None) -> int:
    """Show what a spec needs, before anything is started.

    Steps, resources, memory, disk. What cannot run is refused: on the cluster of --address, else on this machine.
    """
    return _plan(spec_path, overrides, form, output)


def _plan(spec_path: str, overrides: tuple[str, ...], form: str | None, output: str | None) -> int:
    from dataclasses import asdict

    from orchestrator.execution.room import check_room
    from orchestrator.execution.runner import plan_spec
    from orchestrator.specs.loading import load_spec

    settings = current_settings()
    spec = load_spec(spec_path, overrides)
    rows = [asdict(row) for row in plan_spec(spec, settings=settings)]
    show_rows(rows, list(rows[0]) if rows else [], form, output)
    check_room(spec, settings)
    return 0


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator submit experiments/pretrain_base.yaml \\\n    --address http://127.0.0.1:8265",
)
@spec_argument
@overrides_argument
@click.option("--name", help="The experiment's name; the spec's own, or its file's, when left out.")
@click.option("--no-wait", is_flag=True, help="Leave when the job is accepted; do not follow its log.")
def submit(spec_path: str, overrides: tuple[str, ...], name: str | None, no_wait: bool) -> int:
    """Carry out a spec as a Ray job on a cluster.

    Its log is followed; the job's id goes to stdout, the run's id stands in its log. --address (or
    RAY_API_SERVER_ADDRESS) is the cluster's dashboard. Ctrl-C stops following, not the job.
    """
    from orchestrator.execution.jobs import follow, submit_run
    from orchestrator.specs.loading import load_spec

    spec = load_spec(spec_path, overrides)
    job = submit_run(spec.model_copy(update={"name": name}) if name else spec, current_settings())
    notify(f"submitted to {job.address}; its log again:\n  ray job logs {job.id} --address {job.address} -f")
    show_text(job.id)
    if no_wait:
        return 0
    return follow(job, write_message)


@click.command(cls=GlobalOptionsCommand, example="orchestrator resume 7f3a execution.num_workers=2")
@click.argument("run_id", metavar="RUN")
@overrides_argument
@click.option("--allow-drift", is_flag=True, help="Go on although data, models or versions changed; tags the run.")
def resume(run_id: str, overrides: tuple[str, ...], allow_drift: bool) -> int:
    """Go on with a run that was interrupted.

    Pretraining continues from its last checkpoint, a sweep with its unfinished trials; the id stays. RUN is an id or
    the beginning of one. KEY=VALUE changes a field of `execution` for this attempt (a stage's is
    stages.NAME.execution.…); what shapes the result cannot change.
    """
    from orchestrator.execution.runner import resume_run

    settings = current_settings()
    return _carried_out(partial(resume_run, run_id, overrides, settings=settings, allow_drift=allow_drift), *overrides)


def _carried_out(carry_out: Callable[..., "RunRecord"], *again: str) -> int:
    """Show the run's id as soon as it is recorded; an interrupted person is told how to go on.

    `again` are words of the command that a person will want to type again when going on.
    """
    from orchestrator.execution.stopping import where_it_stopped

    started: list[str] = []
    words = ExitStack()

    def go_on(run_id: str) -> str:
        return f"go on with: orchestrator{given_options()} {shlex.join(['resume', run_id, *again])}"

    def on_started(run_id: str) -> None:
        started.append(run_id)
        words.enter_context(last_words(go_on(run_id)))
        with reader_may_leave(sys.stdout):
            show_text(run_id)

    try:
        with words:
            carry_out(on_started=on_started)
    except KeyboardInterrupt as error:
        for run_id in started:
            notify(f"{where_it_stopped(run_id, error, current_settings())}; {go_on(run_id)}")
        raise
    for run_id in started:
        notify(f"completed; look at it with: orchestrator{given_options()} runs show {run_id}")
    return 0
