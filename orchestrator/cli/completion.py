"""Completion of words in a shell: what may stand in the place of a parameter, by the name that the help gives it.

click's `shell_completion` speaks with the shells and completes commands, options and choices. Here are the words that
only this laboratory knows: ids of runs, models, tasks, measurements, kinds of specs, fields of a spec. A parameter gets
them by its metavar (`MODEL`, `RUN`, `SPEC.yaml`), so that every command that takes a model completes models.

Each completion reads only, loads nothing that takes long, and is silent: where something cannot be read, nothing is
offered.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from orchestrator.cells import printable
from orchestrator.cli.frame import GlobalOptionsCommand, settings_of
from orchestrator.cli.output import show_text

if TYPE_CHECKING:
    from orchestrator.specs.documentation import FieldDoc


Items = Iterable[CompletionItem[str]]
Named = Iterable[tuple[str, str]]
Complete = Callable[[click.Context, str], Items]

COMPLETION_VARIABLE = "_ORCHESTRATOR_COMPLETE"
"""Set by a shell that asks for its completion script (`bash_source`) or completes a command line (`bash_complete`)."""

_PLAIN = re.compile(r"[\w.,:@%+=/~-]+")
"""Words that every shell takes as they stand; others are not offered, so that no recorded name can do anything."""


class CompletedText(click.types.StringParamType):
    """Text for which a shell is offered words."""

    def __init__(self, complete: Complete) -> None:
        self._complete = complete

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        """The words that begin with what was typed; none where they cannot be found out."""
        try:
            return list(self._complete(ctx, incomplete))
        except Exception:  # a person who presses Tab has asked for no message
            return []


def complete_words(command: click.Command) -> None:
    """Give every parameter of a command, and of the commands below it, its completion."""
    for parameter in command.params:
        complete = _BY_METAVAR.get(_name_in_help(parameter))
        if complete is not None and type(parameter.type) is click.types.StringParamType:
            parameter.type = CompletedText(complete)
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        complete_words(below)


def _name_in_help(parameter: click.Parameter) -> str:
    """`RUN` for arguments and options that the help shows as RUN, [RUN] or [RUN ...]."""
    return (parameter.metavar or parameter.human_readable_name).strip("[]").rstrip(" .").upper()


def _offered(named: Named, incomplete: str) -> Iterator[CompletionItem[str]]:
    for name, about in named:
        if name.startswith(incomplete) and _PLAIN.fullmatch(name):
            yield CompletionItem(name, help=printable(about, keep_lines=False) or None)


def _names(context: click.Context) -> Any:
    from orchestrator.registry.recorded_names import RecordedNames

    return RecordedNames.at(settings_of(context).registry)


def _runs(context: click.Context, incomplete: str) -> Items:
    return _offered(_names(context).named("runs", incomplete), incomplete)


def _models(context: click.Context, incomplete: str) -> Items:
    """Registered models; the versions of one once its name is there; else folders."""
    return list(_offered(_registered(context, incomplete), incomplete)) or _folders(context, incomplete)


def _registered(context: click.Context, incomplete: str) -> Named:
    models = [*_names(context).models()]
    is_whole = any(name == incomplete for name, _ in models)
    return [model for model in models if is_whole or ("@" in incomplete) == ("@" in model[0])]


def _tags(context: click.Context, incomplete: str) -> Items:
    """Tags, and behind a minus sign those of the run that was named before."""
    sign = incomplete[:1] if incomplete.startswith(("+", "-")) else ""
    of_run = (context.params.get("run_ids") or ("",))[-1] if sign == "-" else ""
    return _offered([(sign + tag, about) for tag, about in _names(context).named("tags", of_run)], incomplete)


def _aliases(context: click.Context, incomplete: str) -> Items:
    return _offered(_names(context).named("aliases"), incomplete)


def _removed(context: click.Context, incomplete: str) -> Items:
    return _offered(_names(context).named("removed"), incomplete)


def _results(context: click.Context, incomplete: str) -> Items:
    """Tasks with trials, registered models, and runs."""
    names = _names(context)
    runs = names.named("runs", incomplete)
    return _offered([*names.named("tasks"), *_registered(context, incomplete), *runs], incomplete)


def _tasks(context: click.Context, incomplete: str) -> Items:
    """The tasks with trials; beside them, where groups are not meant, the known ones, or else spec files."""
    own = [*_names(context).named("tasks")]
    if context.info_name in ("leaderboard", "list"):
        return _offered(own, incomplete)
    from orchestrator.tasks.catalogue import KNOWN_TASKS

    tasks = {name: task.head for name, task in KNOWN_TASKS.items()} | dict(own)
    return list(_offered(tasks.items(), incomplete)) or _files(context, incomplete)


def _metrics(context: click.Context, incomplete: str) -> Items:
    """Measurements of the run that was named before; the options called --name take words of a person's own."""
    if context.info_name != "metrics":
        return ()
    names = _names(context).metrics(context.params.get("run_id") or "")
    return _offered([(name, "measurement") for name in names], incomplete)


def _query_fields(context: click.Context, incomplete: str) -> Items:
    """Fields of queries in the place of the last word, whatever stands before it."""
    before, word = re.fullmatch(r"(.*?)(-?[\w.]*)", incomplete, re.DOTALL).groups()  # type: ignore[union-attr]
    dash = "-" if word.startswith("-") else ""
    from orchestrator.registry.query_language import field_text

    names = _names(context)
    fields: list[tuple[str, str]] = []
    if word.lstrip("-").startswith("m") or not word.lstrip("-"):
        fields += [(field_text(f"metrics.{name}"), "measurement") for name in names.metrics()]
    if word.lstrip("-").startswith("p") or not word.lstrip("-"):
        fields += [(field_text(f"params.{name}"), about) for name, about in names.parameters()]
    if not word.lstrip("-").startswith(("metrics.", "params.")):
        from orchestrator.registry.fields import FIELD_NAMES

        fields += [(name, "field") for name in FIELD_NAMES]
    for item in _offered([(dash + name, about) for name, about in fields], word):
        item.value = before + item.value
        yield item


def _spec_kinds(context: click.Context, incomplete: str) -> Items:
    from orchestrator.specs.kinds import SPEC_KINDS, spec_class

    return _offered(((name, spec_class(name).title) for name in SPEC_KINDS), incomplete)


def _overrides(context: click.Context, incomplete: str) -> Items:
    """`KEY=` for each field of the spec that was named before, and the values of a field that takes only a few.

    A field that alone fits is offered with its default too, so that no shell takes `KEY=` for the whole word.
    """
    fields = {field.field: field for field in _override_fields(context)}
    before = " ".join(context.params.get("overrides") or ())
    last = re.sub(r" ?= ?", "=", before).rpartition(" ")[2]  # bash makes three words of KEY=VALUE
    if last and not last.partition("=")[2]:
        return _offered(((value, "") for value in _values(fields.get(last.rstrip("=")))), incomplete)
    key, equals, _ = incomplete.partition("=")
    if equals:
        return _offered(((f"{key}={value}", "") for value in _values(fields.get(key))), incomplete)
    fitting = [field for name, field in fields.items() if name.startswith(incomplete)]
    offered = [(f"{field.field}=", field.about) for field in fitting]
    if len(fitting) == 1:
        offered.append((f"{fitting[0].field}={fitting[0].default.replace('left out', 'null')}", "the default"))
    return _offered(offered, incomplete)


def _override_fields(context: click.Context) -> "Iterator[FieldDoc]":
    """Fields that a command's `KEY=VALUE` may set: of its spec, of the task it scores, or of the run that goes on."""
    given = context.params
    run_id = given.get("resumed") or given.get("run_id")
    if given.get("task") is not None:
        for field in _fields_of({"kind": "evaluate"}):
            if field.field.startswith("task."):
                yield replace(field, field=field.field.removeprefix("task."))
    elif run_id:
        fields = _fields_of({"kind": _names(context).kind_of_run(run_id)})
        yield from (field for field in fields if field.field.startswith(("execution.", "trials")))
    elif given.get("spec_path"):
        from orchestrator.specs.loading import read_values

        yield from _fields_of(read_values(given["spec_path"]))


def _fields_of(values: Any, prefix: str = "") -> "Iterator[FieldDoc]":
    """The fields of a spec that take a value, and those of its stages."""
    from orchestrator.specs.documentation import document_fields
    from orchestrator.specs.kinds import SPEC_KINDS, spec_class

    kind = values.get("kind")
    for field in document_fields(spec_class(kind)) if kind in SPEC_KINDS else ():
        is_value = field.default != "see below" and field.type != "section" and "[]" not in field.field
        if is_value and field.field != "kind":
            yield replace(field, field=prefix + field.field)
    for name, stage in (values.get("stages") or {}).items():
        yield from _fields_of(stage, f"{prefix}stages.{name}.")


def _values(field: "FieldDoc | None") -> Sequence[str]:
    """The values of a field that takes only a few."""
    described = field.type if field else ""
    if described == "true or false":
        return ("true", "false")
    return described.split(" | ") if " | " in described and "→" not in described else ()


def _help_words(context: click.Context, incomplete: str) -> Items:
    """Topics and commands, or the commands of the group that was named."""
    from orchestrator.cli.helping import load_topics

    group: click.Command | None = context.find_root().command
    given = context.params.get("words") or ()
    for word in given:
        group = group.get_command(context, word) if isinstance(group, click.Group) else None
    if not isinstance(group, click.Group):
        return ()
    below = {name: group.get_command(context, name) for name in group.list_commands(context)}
    named = {name: one.get_short_help_str() for name, one in below.items() if one and not one.hidden}
    topics = {} if given else {topic.name: topic.title for topic in load_topics().values()}
    return _offered((topics | named).items(), incomplete)


def _files(context: click.Context, incomplete: str) -> Items:
    return [CompletionItem(incomplete, type="file")]


def _folders(context: click.Context, incomplete: str) -> Items:
    return [CompletionItem(incomplete, type="dir")]


_BY_METAVAR: Mapping[str, Complete] = {
    "RUN": _runs,
    "MODEL": _models,
    "TAG,…": _tags,
    "ALIAS": _aliases,
    "REMOVED": _removed,
    "TASK": _tasks,
    **dict.fromkeys(("RUN|MODEL|TASK", "RUN|TASK", "A B [C …"), _results),
    "NAME": _metrics,
    "QUERY": _query_fields,
    "KIND": _spec_kinds,
    "TOPIC|COMMAND": _help_words,
    "KEY=VALUE": _overrides,
    **dict.fromkeys(("SORT", "WHERE", "FIELD", "FIELD,…"), _query_fields),
    **dict.fromkeys(("FILE", "SPEC.YAML", "CLUSTER.YAML", "URL", "TOKENIZER", "FILE|URL", "FILE|FOLDER"), _files),
    **dict.fromkeys(("DIR", "FOLDER", "URI"), _folders),
}
"""Completion of each parameter, by the name that the help gives it, in capitals."""


@click.command(
    cls=GlobalOptionsCommand,
    example="orchestrator completion bash >> ~/.bashrc\norchestrator completion zsh >> ~/.zshrc",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a shell completion script.

    Append it to the shell's startup file as below and open a new terminal. Tab then completes commands, options, run
    ids, models, tasks, metrics and spec fields (`orchestrator run SPEC.yaml recipe.` and Tab). In zsh, completion must
    be enabled first (`autoload -U compinit; compinit`); for fish: `orchestrator
    completion fish > ~/.config/fish/completions/orchestrator.fish`.
    """
    complete = get_completion_class(shell)
    assert complete is not None, "click knows the shells that this command takes"
    show_text(
        complete(click.get_current_context().find_root().command, {}, "orchestrator", COMPLETION_VARIABLE).source()
    )
