"""Commands that carry runs out: `demo`, `run`, `resume`, `submit`, `stop`, `wait`; and the commands to go on with."""

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.base.console import ignoring_broken_pipe, is_terminal, show_progress
from orchestrator.base.errors import ClusterError, HoursReached
from orchestrator.base.run_states import RunState, is_run_id, new_run_id
from orchestrator.base.settings import ASKED_AT_VARIABLE
from orchestrator.cli.frame import (
    command,
    current_settings,
    given_options,
    overrides_argument,
    resume_command,
    spec_argument,
)
from orchestrator.cli.messages import at_work, notify, say_now, write_message
from orchestrator.cli.next_commands import model_commands
from orchestrator.cli.output import show_text
from orchestrator.cli.registry_reading import run_id_of, tell_earlier
from orchestrator.cli.tree import RUNS
from orchestrator.cluster.connection import dashboard_address

if TYPE_CHECKING:
    from orchestrator.execution.jobs import SubmittedJob
    from orchestrator.registry.records import RunRecord
    from orchestrator.specs import AnySpec


_name_option = click.option("--name", metavar="NAME", help="Name of the run. Default: that of the spec.")
_timeout_option = partial(click.option, "--timeout", "timeout_s", type=click.FloatRange(0), metavar="SECONDS")


@command(example="demo")
def demo() -> int:
    """Run the whole life cycle on synthetic text, in minutes.

    Tokenizer, pretraining, fine-tuning on three tasks, and what pretraining brought. Needs no network and no GPU.
    """
    say_now("making a small world of text")
    from orchestrator.demo.tour import run_demo
    from orchestrator.execution.runner import run_spec

    settings = current_settings()
    run_spec = partial(run_spec, settings=settings)
    return run_demo(settings, lambda spec: _carry_out(partial(run_spec, spec), is_shown=False), given_options())


@command(example="run reviews.yaml\nrun reviews.yaml stages.finetuning.recipe.epochs=1 --name short")
@spec_argument
@overrides_argument
@_name_option
@click.option("--run-id", hidden=True, help="Id of the run, which was drawn where it was submitted.")
def run(spec_path: str, overrides: tuple[str, ...], name: str | None, run_id: str | None) -> None:
    """Run a spec, on this machine or a Ray cluster.

    The run's id goes to stdout. Ctrl-C saves a checkpoint and stops; `resume` continues. With --address HOST:PORT the
    cluster is driven from here; `submit` needs only its dashboard, and the run goes on when this terminal closes.
    KEY=VALUE sets a field of the spec: a dotted path and a YAML value.
    """
    if run_id is not None and not is_run_id(run_id):
        raise click.UsageError(f"--run-id: {run_id!r} is no id of a run: 12 digits of 0-9 and a-f")
    if spec_path in RUNS and not Path(spec_path).exists():
        raise click.UsageError(f"no spec at {spec_path}; for recorded runs: orchestrator runs {spec_path}")
    if is_run_id(spec_path) and not Path(spec_path).exists():
        raise click.UsageError(f"{spec_path} is the id of a run; to go on with it: orchestrator resume {spec_path}")
    say_now(f"reading the spec {spec_path}")
    spec = _load_named(spec_path, overrides, name)
    tell_earlier(spec, "this run {}; Ctrl-C stops")
    from orchestrator.execution.runner import run_spec  # torch among it: a wrong spec is told before

    _carry_out(partial(run_spec, spec, settings=current_settings(), run_id=run_id, overrides=overrides))


def _load_named(spec_path: str, overrides: Sequence[str], name: str | None) -> "AnySpec":
    from orchestrator.specs.loading import load_spec

    return load_spec(spec_path, [*overrides, f"name={json.dumps(name, ensure_ascii=False)}"] if name else overrides)


@command(example="resume 7f3a execution.num_workers=2\nresume my-sweep trials=40")
@click.argument("run_id", metavar="RUN")
@overrides_argument
@click.option("--allow-drift", is_flag=True, help="Ignore changed data, models or versions; tags the run `drift`.")
@click.option("--check", is_flag=True, hidden=True, help="Only check that it can go on here; the run goes to stdout.")
def resume(run_id: str, overrides: tuple[str, ...], allow_drift: bool, check: bool) -> None:
    """Resume an interrupted run, with the same id.

    Pretraining continues from its last checkpoint, a sweep with its unfinished trials. KEY=VALUE changes a field of
    `execution` for this attempt (for a stage: stages.NAME.execution.…); `identity` fields cannot change. A sweep
    also takes trials=N, a larger number of trials, even after it has completed.
    """
    say_now(f"looking up run {run_id}")
    settings, run_id = current_settings(), run_id_of(run_id)
    if check:
        from orchestrator.execution.runner import check_resume

        record = check_resume(run_id, overrides, settings=settings, allow_drift=allow_drift)
        show_text(json.dumps({"id": record.id, "name": record.name, "kind": record.kind, "state": record.state}))
        return
    from orchestrator.execution.runner import resume_run

    again = [*(["--allow-drift"] if allow_drift else []), *overrides]
    _carry_out(partial(resume_run, run_id, overrides, settings=settings, allow_drift=allow_drift), *again)


def _carry_out(work: Callable[..., "RunRecord"], *again: str, is_shown: bool = True) -> "RunRecord":
    """Carry out a run; who interrupts it is told how to go on.

    Args:
        work: tells the run's id to its `on_started`.
        again: words that a person will want to type again when going on.
        is_shown: whether the id goes to stdout once it is recorded, and commands to go on with follow the run's end.
    """
    from orchestrator.execution.launch_folder import with_absolute_registry
    from orchestrator.execution.stopping import record_abandoned, where_it_stopped

    started: list[str] = []

    def go_on(run_id: str, *more: str) -> str:
        return f"go on with: {' '.join([resume_command(run_id), *map(shlex.quote, (*again, *more))])}"

    def on_started(run_id: str) -> None:
        settings = with_absolute_registry(current_settings())  # a resume works in the folder of the run's origin
        started.append(run_id)
        at_work.append((f"left without saving; {go_on(run_id)}", partial(record_abandoned, run_id, settings)))
        if is_shown:
            with ignoring_broken_pipe(sys.stdout):
                show_text(run_id)

    try:
        record = work(on_started=on_started)
    except KeyboardInterrupt as error:
        for run_id in started:
            more = [error.again] if isinstance(error, HoursReached) else []
            notify(f"{where_it_stopped(run_id, error, current_settings())}; {go_on(run_id, *more)}")
        raise
    finally:
        del at_work[len(at_work) - len(started) :]
    for run_id in started if is_shown else ():
        for line in next_steps(run_id):
            notify(line)
    return record


@command(
    example="submit pretrain.yaml --address http://127.0.0.1:8265\nsubmit --resume 7f3a --address http://127.0.0.1:8265"
)
@click.argument("spec_path", metavar="[SPEC.yaml]", required=False)
@overrides_argument
@click.option("--resume", "resumed", metavar="RUN", help="Resume this run instead of starting a spec.")
@click.option("--allow-drift", is_flag=True, help="With --resume: ignore changed data, models or versions.")
@_name_option
@click.option("--no-wait", is_flag=True, help="Return when the job is accepted; do not follow its log.")
def submit(
    spec_path: str | None,
    overrides: tuple[str, ...],
    resumed: str | None,
    allow_drift: bool,
    name: str | None,
    no_wait: bool,
) -> int:
    """Submit a spec as a Ray job on a cluster.

    --address (or RAY_API_SERVER_ADDRESS) is the URL of the cluster's dashboard. The head node checks models, files and
    free resources first; a spec that cannot run is not submitted. The run's id, which is the job's id, goes to stdout;
    then the log is followed. Ctrl-C stops following, not the run.
    """
    if resumed is None and spec_path is None:
        raise click.UsageError("give a SPEC.yaml, or --resume RUN")
    if resumed is None and allow_drift:
        raise click.UsageError("--allow-drift goes with --resume RUN")
    say_now(f"reading the spec {spec_path}" if resumed is None else f"looking up run {resumed} on the cluster")
    from orchestrator.execution.jobs import SPEC_FILE, spec_files, submit_resume, submit_run

    settings = current_settings()
    if resumed is None:
        assert spec_path is not None
        spec, address = _load_named(spec_path, overrides, name), dashboard_address(settings)
        _check_on_head(["plan", SPEC_FILE], address, spec_files(spec))
        job = submit_run(spec, new_run_id(), settings, address)
    else:
        changed = [word for word in (spec_path, *overrides) if word]  # no spec: the first word is the first override
        address, drift = dashboard_address(settings), ["--allow-drift"] if allow_drift else []
        found = json.loads(_check_on_head(["resume", "--check", *drift, "--", resumed, *changed], address))
        if found["state"] == RunState.COMPLETED:  # which the head has said
            return 0
        metadata = {"job_name": found["name"], "kind": found["kind"]}
        job = submit_resume(found["id"], changed, metadata, allow_drift, settings, address)
    notify(f"submitted to {job.address} as job {job.id}")
    with ignoring_broken_pipe(sys.stdout):
        show_text(job.run_id)
        sys.stdout.flush()
    if no_wait:
        notify(_how_to_follow(job.run_id))
        return 0
    return _follow(job)


def _check_on_head(words: Sequence[str], address: str, files: Mapping[str, bytes] | None = None) -> bytes:
    """Have the head check what is to be submitted; returns its stdout, or ends here with its exit status."""
    from orchestrator.execution.head_commands import ask_head

    say_now(f"checking it on the head of the cluster at {address}")
    answer = ask_head(words, current_settings(), address, files=files)
    with ignoring_broken_pipe(sys.stderr):
        click.echo(answer.err, nl=False, err=True)
    if answer.status:
        notify("nothing was submitted")
        click.get_current_context().exit(answer.status)
    return answer.out


def _follow(job: "SubmittedJob") -> int:
    from orchestrator.execution.jobs import exit_status, follow

    try:
        return exit_status(follow(job, write_message), job.id)
    except (KeyboardInterrupt, ClusterError) as error:
        what = "the run goes on" if isinstance(error, KeyboardInterrupt) else "the run may go on"
        notify(f"{what}, and is no longer followed from here\n{_how_to_follow(job.run_id)}")
        raise


def _how_to_follow(run_id: str) -> str:
    orchestrator = f"orchestrator{given_options()}"
    return f"follow it:  {orchestrator} runs logs --follow {run_id}\nstop it:    {orchestrator} stop {run_id}"


@command(example="stop 7f3a")
@click.argument("run_id", metavar="RUN")
@click.option("--force", is_flag=True, help="Kill the run without saving a checkpoint.")
@_timeout_option(default=600, help="Maximum wait; 0 returns at once.")
def stop(run_id: str, force: bool, timeout_s: float) -> None:
    """Stop a run on any machine, after saving a checkpoint.

    Like Ctrl-C in its terminal. A submitted job is stopped through the cluster's --address. `resume` continues it.
    """
    from orchestrator.execution.stopping import stop_run

    run_id, settings = run_id_of(run_id), current_settings()
    record = stop_run(run_id, settings=settings, force=force, timeout_s=timeout_s or None, say=notify)
    if record.state == RunState.STOPPED:
        notify(f"go on with: {resume_command(record.id)}")


@command(example="wait 7f3a && orchestrator runs show 7f3a")
@click.argument("run_id", metavar="RUN")
@_timeout_option(help="Maximum wait; no limit by default.")
def wait(run_id: str, timeout_s: float | None) -> int:
    """Wait until a run has ended.

    Exit status: 0 completed; 1 failed, stopped, lost, or still running after --timeout; 3 no such run.
    """
    from orchestrator.execution.waiting import outcome_line, wait_for_run

    settings, run_id = current_settings(), run_id_of(run_id)
    with show_progress() as progress:
        told = progress.status if is_terminal(sys.stderr) else None
        record = wait_for_run(run_id, settings=settings, timeout_s=timeout_s, on_progress=told)
    notify(outcome_line(record))
    return 0 if record.state == RunState.COMPLETED else 1


def next_steps(run_id: str) -> list[str]:
    """Lines for a person whose run has completed: where its files are, and commands to go on with.

    Of a job on a cluster, whose files are not here, only the command to look at it. What goes wrong here costs the
    lines alone: the run is complete.
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
