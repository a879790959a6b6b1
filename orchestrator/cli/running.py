"""Commands that carry runs out: `demo`, `plan`, `run`, `resume`, `stop`, `wait`."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cells import cell
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
from orchestrator.cli.messages import at_work, notify, say_now, status_line
from orchestrator.cli.next_commands import model_commands
from orchestrator.cli.output import show_record, show_rows, show_text
from orchestrator.cli.reading import format_options
from orchestrator.cli.registry_reading import run_id_of
from orchestrator.cli.tree import HINTS
from orchestrator.cluster.connection import give_way
from orchestrator.errors import HoursReached
from orchestrator.progress import is_terminal, reader_may_leave
from orchestrator.run_ids import is_run_id
from orchestrator.settings import ASKED_AT_VARIABLE

if TYPE_CHECKING:
    from orchestrator.registry.records import RunRecord
    from orchestrator.specs import Spec


@click.command(cls=GlobalOptionsCommand, example="orchestrator demo")
def demo() -> int:
    """Run the whole life cycle on synthetic text, in minutes."""
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


@click.command(cls=GlobalOptionsCommand, example="orchestrator run reviews.yaml recipe.epochs=1 --name first-try")
@spec_argument
@overrides_argument
@name_option
@nice_option
@click.option(
    "--run-id", callback=_whole_id, hidden=True, help="Id of the run, which was drawn where it was submitted."
)
def run(
    spec_path: str,
    overrides: tuple[str, ...],
    name: str | None,
    nice: bool,
    run_id: str | None,
) -> int:
    """Run a spec, on this machine or a Ray cluster.

    The run's id goes to stdout. With --address HOST:PORT the cluster is driven from here; `submit` needs only its
    dashboard, and the run goes on when this terminal closes. KEY=VALUE sets a field of the spec: a dotted path and a
    YAML value.
    """
    hint = HINTS.get(f"run {spec_path}")
    if hint is not None and not Path(spec_path).exists():
        raise click.UsageError(f"no spec at {spec_path}; for recorded runs: {hint}")
    say_now(f"reading the spec {spec_path}")
    from orchestrator.specs.loading import load_spec

    if nice:
        give_way()
    spec = load_spec(spec_path, overrides)
    spec = spec.model_copy(update={"name": name}) if name else spec
    _tell_earlier(spec)
    from orchestrator.execution.runner import run_spec  # torch among it: a wrong spec is told before

    settings = current_settings()
    return _carried_out(partial(run_spec, spec, settings=settings, run_id=run_id, overrides=overrides))


def _tell_earlier(spec: "Spec") -> None:
    """Tell of a completed run of the same spec: it may be all that is wanted."""
    from orchestrator.errors import RegistryError
    from orchestrator.registry import Registry

    with suppress(RegistryError), Registry(current_settings().registry, read_only=True) as registry:
        earlier = registry.newest_completed(spec.fingerprint())
        if earlier is None:
            return
        score = registry.metrics.latest(earlier.id).get(str(earlier.metric))
        scored = "" if score is None else f" ({earlier.metric} {cell(score)})"
        shown = f"orchestrator{given_options()} runs show {earlier.id}"
        notify(f"run {earlier.id} completed this spec before{scored}: {shown}\nthis run repeats it; Ctrl-C stops")


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator plan reviews.yaml execution.num_workers=8",
)
@spec_argument
@overrides_argument
@format_options
def plan(spec_path: str, overrides: tuple[str, ...], form: str | None) -> int:
    """Check a spec and estimate steps, time, memory and disk.

    The time comes from an earlier run of the spec, or is measured by a few steps on this machine. A spec that cannot
    run on the cluster of --address (default: this machine) is refused. With a dashboard URL, models, files and free
    resources are checked on the head node.
    """
    say_now(f"reading the spec {spec_path}")
    from dataclasses import asdict

    from orchestrator.specs.loading import load_spec

    spec = load_spec(spec_path, overrides)
    from orchestrator.execution.room import check_room  # torch among it: a wrong spec is told before
    from orchestrator.execution.runner import plan_spec
    from orchestrator.kinds import resolved_inputs

    inputs = resolved_inputs(spec, current_settings())
    rows = [asdict(row) for row in plan_spec(spec, inputs)]
    show_rows(rows, list(rows[0]) if rows else [], form, None)
    check_room(spec, inputs)
    return 0


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator resume 7f3a execution.num_workers=2\norchestrator resume my-sweep trials=40",
)
@click.argument("run_id", metavar="RUN")
@overrides_argument
@click.option("--allow-drift", is_flag=True, help="Ignore changed data, models or versions (tag drift).")
@nice_option
@click.option("--check", is_flag=True, hidden=True, help="Only check that it can go on here; the run goes to stdout.")
def resume(run_id: str, overrides: tuple[str, ...], allow_drift: bool, nice: bool, check: bool) -> int:
    """Resume an interrupted run, with the same id.

    Pretraining continues from its last checkpoint, a sweep with its unfinished trials. KEY=VALUE changes a field of
    `execution` for this attempt (for a stage: stages.NAME.execution.…); `identity` fields cannot change. A sweep
    also takes trials=N, a larger number of trials, even after it has completed.
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


_STOP_TIMEOUT_S = 600.0


@click.command(cls=GlobalOptionsCommand, example="orchestrator stop 7f3a")
@click.argument("run_id", metavar="RUN")
@click.option("--force", is_flag=True, help="Kill the run without saving a checkpoint.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0),
    default=_STOP_TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="Maximum wait for its end; 0 returns at once.",
)
def stop(run_id: str, force: bool, timeout_s: float) -> None:
    """Stop a run on any machine, after saving a checkpoint.

    Like Ctrl-C in its terminal. A submitted job is stopped through the cluster's --address. `resume` continues it.
    """
    from orchestrator.execution.stopping import stop_run
    from orchestrator.run_states import RunState

    record = stop_run(
        run_id_of(run_id),
        settings=current_settings(),
        force=force,
        timeout_s=timeout_s or None,
        say=notify,
    )
    if record.state == RunState.STOPPED:
        notify(f"go on with: {resume_command(record.id)}")


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator wait 7f3a && orchestrator runs show 7f3a",
)
@click.argument("run_id", metavar="RUN")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0), metavar="SECONDS", help="Maximum wait; no limit by default."
)
def wait(run_id: str, timeout_s: float | None) -> int:
    """Wait until a run has ended.

    Exit status: 0 completed; 1 failed, stopped, lost, or still running after --timeout; 3 no such run.
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


def next_steps(run_id: str) -> list[str]:
    """Lines for a person whose run has completed: where its files are, and commands, each on an indented line.

    Of a job on a cluster, whose files and model are not here, only the command to look at it. The run is complete
    without these lines: what goes wrong here costs the lines alone.
    """
    from orchestrator.registry.registry import Registry
    from orchestrator.reports.run_facts import RunFacts

    outcome, commands = "completed", [f"orchestrator{given_options()} runs show {run_id}"]
    if not os.environ.get(ASKED_AT_VARIABLE):
        with suppress(Exception), Registry(current_settings().registry, read_only=True) as registry:
            facts = RunFacts(registry, registry.run(run_id))
            folder = facts.files["folder"]
            outcome = f"completed; its files: {folder}" if folder else outcome
            commands += model_commands(facts)
    return [outcome, "go on with:", *(f"  {command}" for command in commands)]
