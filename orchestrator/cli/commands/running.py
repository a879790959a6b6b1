"""Commands that carry a spec out from here: `demo`, `run`, `plan`, `resume`."""

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import click

from orchestrator.cli.commands.next_steps import next_steps
from orchestrator.cli.commands.registry_reading import run_id_of
from orchestrator.cli.frame import (
    GlobalOptionsCommand,
    current_settings,
    given_options,
    name_option,
    nice_option,
    overrides_argument,
    resume_command,
    spec_argument,
)
from orchestrator.cli.messages import at_work, notify, say_now
from orchestrator.cli.output import show_record, show_rows, show_text
from orchestrator.cli.reading import reading_options
from orchestrator.cluster.connection import give_way
from orchestrator.errors import HoursReached
from orchestrator.progress import reader_may_leave
from orchestrator.run_ids import is_run_id

if TYPE_CHECKING:
    from orchestrator.registry import RunRecord
    from orchestrator.specs import Spec


@click.command(cls=GlobalOptionsCommand, example="orchestrator demo")
def demo() -> int:
    """The whole life cycle on generated text, in minutes."""
    say_now("making a small world of text")
    from orchestrator.demo.tour import run_demo
    from orchestrator.execution.runner import run_spec

    settings = current_settings()

    def carry_out(spec: "Spec") -> "RunRecord":
        with _interruptible() as began:
            return run_spec(spec, settings=settings, on_started=began)

    return run_demo(settings, carry_out, given_options())


def _whole_id(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and not is_run_id(value):
        raise click.BadParameter(f"{value!r} is no id of a run: 12 digits of 0-9 and a-f")
    return value


@click.command(
    cls=GlobalOptionsCommand, example="orchestrator run experiments/sweep_sst2.yaml recipe.epochs=1 --name first-try"
)
@spec_argument
@overrides_argument
@name_option
@click.option("--dry-run", is_flag=True, help="Only say what it needs, as `orchestrator plan` does.")
@nice_option
@click.option(
    "--run-id", callback=_whole_id, hidden=True, help="Id of the run, which was drawn where it was submitted."
)
def run(
    spec_path: str,
    overrides: tuple[str, ...],
    name: str | None,
    dry_run: bool,
    nice: bool,
    run_id: str | None,
) -> int:
    """Carry out a spec as a new run.

    The run's id goes to stdout. KEY=VALUE sets a field of the spec: a dotted path and a YAML value.
    """
    say_now(f"reading the spec {spec_path}")
    from orchestrator.specs.loading import load_spec

    if dry_run:
        return _plan(spec_path, overrides, None, None)
    if nice:
        give_way()
    spec = load_spec(spec_path, overrides)
    spec = spec.model_copy(update={"name": name}) if name else spec
    from orchestrator.execution.runner import run_spec  # torch among it: a wrong spec is told before

    settings = current_settings()
    return _carried_out(partial(run_spec, spec, settings=settings, run_id=run_id, overrides=overrides))


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator plan experiments/pretrain_base.yaml execution.num_workers=8",
)
@spec_argument
@overrides_argument
@reading_options
def plan(spec_path: str, overrides: tuple[str, ...], form: str | None, output: str | None) -> int:
    """Show what a spec needs, before anything is started.

    Steps, passes over the text, time, resources, memory, disk. The time is that of an earlier run of the spec, or comes
    from a few steps that are made on this machine. What cannot run is refused: on the cluster of --address, else on
    this machine. Of a dashboard's address (http://…) it is the cluster's head that looks for names, files and room.
    """
    say_now(f"reading the spec {spec_path}")
    return _plan(spec_path, overrides, form, output)


def _plan(spec_path: str, overrides: tuple[str, ...], form: str | None, output: str | None) -> int:
    from dataclasses import asdict

    from orchestrator.specs.loading import load_spec

    spec = load_spec(spec_path, overrides)
    from orchestrator.execution.room import check_room  # torch among it: a wrong spec is told before
    from orchestrator.execution.runner import plan_spec
    from orchestrator.kinds import resolved_inputs

    inputs = resolved_inputs(spec, current_settings())
    rows = [asdict(row) for row in plan_spec(spec, inputs)]
    show_rows(rows, list(rows[0]) if rows else [], form, output)
    check_room(spec, inputs)
    return 0


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator resume 7f3a execution.num_workers=2",
)
@click.argument("run_id", metavar="RUN")
@overrides_argument
@click.option("--allow-drift", is_flag=True, help="Go on although data, models or versions changed; tags the run.")
@nice_option
@click.option("--check", is_flag=True, hidden=True, help="Only check that it can go on here; the run goes to stdout.")
def resume(run_id: str, overrides: tuple[str, ...], allow_drift: bool, nice: bool, check: bool) -> int:
    """Go on with a run that was interrupted.

    Pretraining continues from its last checkpoint, a sweep with its unfinished trials; the id stays. RUN is an id, the
    beginning of one, or a name. KEY=VALUE changes a field of `execution` for this attempt (a stage's is
    stages.NAME.execution.…); what shapes the result cannot change. A sweep goes on with more points by trials=N, also
    one that has completed: those that are there stay.
    """
    say_now(f"looking up run {run_id}")
    settings, run_id = current_settings(), run_id_of(run_id)
    if check:
        return _check_resume(run_id, overrides, allow_drift)
    from orchestrator.execution.starting import announced

    with announced(run_id, settings):  # before the import of torch, which takes long
        from orchestrator.execution.runner import resume_run

        if nice:
            give_way()
        again = [*(["--allow-drift"] if allow_drift else []), *(["--nice"] if nice else []), *overrides]
        resumed = partial(resume_run, run_id, overrides, settings=settings, allow_drift=allow_drift)
        return _carried_out(resumed, *again)


def _check_resume(run_id: str, overrides: tuple[str, ...], allow_drift: bool) -> int:
    from orchestrator.execution.runner import check_resume

    record = check_resume(run_id, overrides, settings=current_settings(), allow_drift=allow_drift)
    show_record({"id": record.id, "name": record.name, "kind": record.kind, "state": record.state}, "json", None)
    return 0


def _carried_out(carry_out: Callable[..., "RunRecord"], *again: str) -> int:
    """Show the run's id as soon as it is recorded, and commands to go on with after its end.

    `again` are words of the command that a person will want to type again when going on.
    """
    started: list[str] = []
    with _interruptible(*again) as began:

        def on_started(run_id: str) -> None:
            began(run_id)
            started.append(run_id)
            with reader_may_leave(sys.stdout):
                show_text(run_id)

        carry_out(on_started=on_started)
    for run_id in started:
        for line in next_steps(run_id):
            notify(line)
    return 0


@contextmanager
def _interruptible(*again: str) -> Iterator[Callable[[str], None]]:
    """Function that is told the id of the run that the block carries out: who interrupts it is told how to go on.

    `again` are words of the command that a person will want to type again when going on.
    """
    from orchestrator.execution.origin import means_the_same_anywhere
    from orchestrator.execution.stopping import record_left, where_it_stopped

    started: list[str] = []

    def go_on(run_id: str, *more: str) -> str:
        return f"go on with: {resume_command(run_id)}{''.join(f' {shlex.quote(word)}' for word in (*again, *more))}"

    def began(run_id: str) -> None:
        settings = means_the_same_anywhere(current_settings())  # a resume works in the folder of the run's origin
        started.append(run_id)
        at_work.append((f"left without saving; {go_on(run_id)}", partial(record_left, run_id, settings)))

    try:
        yield began
    except KeyboardInterrupt as error:
        for run_id in started:
            more = [error.again] if isinstance(error, HoursReached) else []
            notify(f"{where_it_stopped(run_id, error, current_settings())}; {go_on(run_id, *more)}")
        raise
    finally:
        del at_work[len(at_work) - len(started) :]
