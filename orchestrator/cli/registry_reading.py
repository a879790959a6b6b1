"""Reading the registry in commands."""

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from orchestrator.base.console import counted, names_text
from orchestrator.base.errors import NotFoundError, RegistryError, SeveralRunsError
from orchestrator.base.formatting import cell
from orchestrator.base.run_states import is_run_id
from orchestrator.cli.frame import command, current_settings, given_options
from orchestrator.cli.messages import notify
from orchestrator.cli.reading import list_options

if TYPE_CHECKING:
    from orchestrator.registry import Registry
    from orchestrator.registry.records import RunRecord
    from orchestrator.specs import Spec

NUM_LISTED = 5
"""Runs of one name that a message lists."""
NUM_PARAMETERS_SHOWN = 4
"""Columns of what varies in a table for a person; files and `--wide` have all."""


def open_registry() -> "Registry":
    """Open the registry for reading; before the first run it is empty. Raises: RegistryError for a mistyped one."""
    from orchestrator.registry import Registry

    settings = current_settings()
    registry = Registry(settings.registry, read_only=True)
    if "registry" in settings.given:
        registry.refuse_missing()
    return registry


def open_for_writing() -> "Registry":
    """Open the registry for writing; one that is not there is told, not made. Raises: RegistryError."""
    from orchestrator.registry import Registry

    with open_registry() as registry:
        if registry.current_revision() is None:
            raise RegistryError(no_runs(registry))
    return Registry(current_settings().registry)


def table_command(name: str | None = None, *, example: str) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function that gets an open registry and the command's own parameters, and shows rows."""

    def make(function: Callable[..., None]) -> click.Command:
        @wraps(function)
        def show(**given: Any) -> None:
            with open_registry() as registry:
                function(registry, **given)

        attributes = vars(show)
        own = attributes.pop("__click_params__", [])  # in the help they stand before those of every list
        list_options(show)
        attributes["__click_params__"] += own
        return command(name, example=example)(show)

    return make


def find_run(
    registry: "Registry", wanted: str, *, only: bool = False, or_task: bool = False, or_model: bool = False
) -> "RunRecord":
    """The run or trial that a person means: by its exact name, its whole id, or the beginning of its id.

    Of several runs of a name the newest, which is said. Raises: NotFoundError, with the nearest name.

    Args:
        only: whether a name that several runs have is an error, for a command that takes something away.
        or_task: whether the nearest name may be a task's, for a command that takes tasks, too.
        or_model: whether a model's name stands for the run that registered it.
    """
    try:
        run = registry.run(wanted, or_task=or_task)
    except NotFoundError as no_run:
        if or_model and not isinstance(no_run, SeveralRunsError):
            with suppress(NotFoundError):
                return registry.run(registry.models.get(wanted).run_id or wanted)
        raise
    num_called = registry.num_called(run) if run.name == wanted and not run.id.startswith(wanted) else 1
    if num_called > 1 and only:
        from orchestrator.registry.query_language import quoted

        table = registry.run_table(f"name = {quoted(run.name)}", trials=run.parent_id is not None)
        ids = names_text(table.values("id"), NUM_LISTED)
        raise SeveralRunsError(f"{num_called} runs are called {run.name}; give the id of one: {ids}")
    if num_called > 1:
        others = "runs list" if run.parent_id is None else "runs list --trials"
        notify(f"{num_called} runs are called {run.name}; this is the newest, {run.id} (`{others}` has the others)")
    return run


def run_id_of(wanted: str) -> str:
    """Whole id of the run that `find_run` finds. A whole id stays as it is: a run that has just been submitted may not
    be recorded yet. Raises: NotFoundError."""
    from orchestrator.registry.database import retry_while_unavailable

    if is_run_id(wanted):
        return wanted

    def look_up() -> str:
        with open_registry() as registry:
            return find_run(registry, wanted).id

    return retry_while_unavailable(look_up)


def tell_earlier(spec: "Spec", what_follows: str) -> None:
    """Tell of a completed run of the same spec: it may be all that is wanted.

    Args:
        what_follows: words on a new run, with `{}` for what it does.
    """
    from orchestrator.registry import Registry
    from orchestrator.reports.run_facts import RunFacts
    from orchestrator.specs.precision import possible_fingerprints

    with suppress(RegistryError), Registry(current_settings().registry, read_only=True) as registry:
        earlier = registry.newest_completed(possible_fingerprints(spec))
        if earlier is None:
            return
        facts, own = RunFacts(registry, earlier), earlier.metric or "loss"
        scores = {name: value for name, value in facts.values.items() if name == own} | facts.stage_scores
        scored = ", ".join(f"{name} {cell(value)}" for name, value in scores.items())
        shown = f"{f' ({scored})' if scored else ''}: orchestrator{given_options()} runs show {earlier.id}"
        does = "takes over what its stages have done" if earlier.kind == "pipeline" else "repeats it"
        notify(f"run {earlier.id} completed this spec before{shown}\n{what_follows.format(does)}")


def no_runs(registry: "Registry") -> str:
    return f"no runs yet in {registry.place}: `orchestrator demo`, or `orchestrator init FILE` of your own data"


def tell_archived(num_runs: int) -> None:
    if num_runs:
        notify(f"{counted(num_runs, 'archived run')} not shown; --archived shows them")
