"""Words that a shell is offered in the place of a parameter, by the name that the help gives the parameter.

click's `shell_completion` speaks with the shells and completes commands, options and choices. Here are the words that
only this laboratory knows: ids of runs, models, tasks, measurements, kinds of specs, fields of a spec. Every command
that takes a `MODEL` completes models, `RUN` runs, `SPEC.yaml` files. Nothing that takes long is loaded.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from orchestrator.base.formatting import printable
from orchestrator.registry.recorded_names import RecordedNames

if TYPE_CHECKING:
    from orchestrator.specs.documentation import FieldDoc

Items = Iterable[CompletionItem[str]]
Named = Iterable[tuple[str, str]]

_PLAIN = re.compile(r"[\w.,:@%+=/~-]+")
"""Words that every shell takes as they stand; others are not offered, so that no recorded name can do anything."""


def complete(parameter: click.Parameter, context: click.Context, registry: str, incomplete: str) -> Items:
    """Words for a parameter that begin with what was typed. Raises: whatever reading a registry or a spec raises."""
    name = (parameter.metavar or parameter.human_readable_name).strip("[]").rstrip(" .").upper()
    if name in _PATHS:
        return [CompletionItem(incomplete, type=_PATHS[name])]
    return _OF_NAME[name](RecordedNames.at(registry), context, incomplete) if name in _OF_NAME else ()


def _offered(named: Named, incomplete: str) -> Iterator[CompletionItem[str]]:
    for name, about in named:
        if name.startswith(incomplete) and _PLAIN.fullmatch(name):
            yield CompletionItem(name, help=printable(about, keep_lines=False) or None)


def _recorded(what: str) -> "Complete":
    return lambda names, context, incomplete: _offered(names.named(what, incomplete), incomplete)


def _models(names: RecordedNames, context: click.Context, incomplete: str) -> Items:
    """Registered models; the versions of one once its name is there; else folders."""
    found = list(_offered(_registered(names, incomplete), incomplete))
    return found or [CompletionItem(incomplete, type="dir")]


def _registered(names: RecordedNames, incomplete: str) -> Named:
    models = names.models()
    is_whole = any(name == incomplete for name, _ in models)
    return [model for model in models if is_whole or ("@" in incomplete) == ("@" in model[0])]


def _tags(names: RecordedNames, context: click.Context, incomplete: str) -> Items:
    """Tags, and behind a minus sign those of the run that was named before."""
    sign = incomplete[:1] if incomplete.startswith(("+", "-")) else ""
    of_run = (context.params.get("run_ids") or ("",))[-1] if sign == "-" else ""
    return _offered([(sign + tag, about) for tag, about in names.named("tags", of_run)], incomplete)


def _results(names: RecordedNames, context: click.Context, incomplete: str) -> Items:
    runs = names.named("runs", incomplete)
    return _offered([*names.named("tasks"), *_registered(names, incomplete), *runs], incomplete)


def _tasks(names: RecordedNames, context: click.Context, incomplete: str) -> Items:
    """The tasks with trials; beside them, where groups are not meant, the known ones, or else spec files."""
    own = names.named("tasks")
    if context.info_name in ("leaderboard", "list"):
        return _offered(own, incomplete)
    from orchestrator.tasks.catalogue import KNOWN_TASKS

    tasks = {name: task.head for name, task in KNOWN_TASKS.items()} | dict(own)
    return list(_offered(tasks.items(), incomplete)) or [CompletionItem(incomplete, type="file")]


def _metrics(names: RecordedNames, context: click.Context, incomplete: str) -> Items:
    """Measurements of the run that was named before; the options called --name take words of a person's own."""
    metrics = names.metrics(context.params.get("run_id") or "") if context.info_name == "metrics" else ()
    return _offered([(name, "measurement") for name in metrics], incomplete)


def _query_fields(names: RecordedNames, context: click.Context, incomplete: str) -> Items:
    """Fields of queries in the place of the last word, whatever stands before it."""
    from orchestrator.registry.query_language import field_text

    before, dash, word = re.fullmatch(r"(.*?)(-?)([\w.]*)", incomplete, re.DOTALL).groups()  # type: ignore[union-attr]
    fields: list[tuple[str, str]] = []
    if word[:1] in ("", "m"):
        fields += [(field_text(f"metrics.{name}"), "measurement") for name in names.metrics()]
    if word[:1] in ("", "p"):
        fields += [(field_text(f"params.{name}"), about) for name, about in names.parameters()]
    if not word.startswith(("metrics.", "params.")):
        from orchestrator.registry.fields import FIELD_NAMES  # which loads SQLAlchemy

        fields += [(name, "field") for name in FIELD_NAMES]
    return _behind(before + dash, fields, word)


def _columns(names: RecordedNames, context: click.Context, incomplete: str) -> Items:
    """Fields of queries where runs or trials are listed; the other commands have columns of their own."""
    is_of_runs = context.command_path.partition(" ")[2] in ("runs list", "runs trials", "query")
    return _query_fields(names, context, incomplete) if is_of_runs else ()


def _aggregates(names: RecordedNames, context: click.Context, incomplete: str) -> Items:
    """Aggregates, and within the parentheses of one fields."""
    if "(" in incomplete.rpartition(",")[2]:
        return _query_fields(names, context, incomplete)
    from orchestrator.registry.query_language import AGGREGATES

    before, comma, word = incomplete.rpartition(",")
    return _behind(before + comma, [(name, "aggregate") for name in AGGREGATES], word)


def _behind(before: str, named: Named, word: str) -> Items:
    for item in _offered(named, word):
        item.value = before + item.value
        yield item


def _spec_kinds(names: RecordedNames, context: click.Context, incomplete: str) -> Items:
    from orchestrator.specs import SPEC_KINDS, spec_class

    return _offered(((name, spec_class(name).title) for name in SPEC_KINDS), incomplete)


def _overrides(names: RecordedNames, context: click.Context, incomplete: str) -> Items:
    """`KEY=` for each field of the spec that was named before, and the values of a field that takes only a few.

    A field that alone fits is offered with its default too, so that no shell takes `KEY=` for the whole word.
    """
    fields = {field.field: field for field in _override_fields(names, context)}
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


def _override_fields(names: RecordedNames, context: click.Context) -> "Iterator[FieldDoc]":
    """Fields that a command's `KEY=VALUE` may set: of its spec, of the task it scores, or of the run that goes on."""
    given = context.params
    run_id = given.get("resumed") or given.get("run_id")
    if given.get("task") is not None:
        for field in _fields_of({"kind": "evaluate"}):
            if field.field.startswith("task."):
                yield replace(field, field=field.field.removeprefix("task."))
    elif run_id:
        fields = _fields_of({"kind": names.kind_of_run(run_id)})
        yield from (field for field in fields if field.field.startswith(("execution.", "trials")))
    elif given.get("spec_path"):
        from orchestrator.specs.loading import read_values

        yield from _fields_of(read_values(given["spec_path"]))


def _fields_of(values: Any, prefix: str = "") -> "Iterator[FieldDoc]":
    """The fields of a spec that take a value, and those of its stages."""
    from orchestrator.specs import SPEC_KINDS, spec_class
    from orchestrator.specs.documentation import document_fields

    kind = values.get("kind")
    for field in document_fields(spec_class(kind)) if kind in SPEC_KINDS else ():
        is_value = field.default != "see below" and field.type != "section" and "[]" not in field.field
        if is_value and field.field != "kind":
            yield replace(field, field=prefix + field.field)
    for name, stage in (values.get("stages") or {}).items():
        yield from _fields_of(stage, f"{prefix}stages.{name}.")


def _values(field: "FieldDoc | None") -> Sequence[str]:
    described = field.type if field else ""
    if described == "true or false":
        return ("true", "false")
    return described.split(" | ") if " | " in described and "→" not in described else ()


Complete = Callable[[RecordedNames, click.Context, str], Items]
_OF_NAME: Mapping[str, Complete] = {
    "RUN": _recorded("runs"),
    "MODEL": _models,
    "TAG,…": _tags,
    "ALIAS": _recorded("aliases"),
    "REMOVED": _recorded("removed"),
    "GROUP": _recorded("groups"),
    "TASK": _tasks,
    **dict.fromkeys(("RUN|MODEL|TASK", "RUN|TASK", "A B [C …"), _results),
    "NAME": _metrics,
    "QUERY": _query_fields,
    "KIND": _spec_kinds,
    "KEY=VALUE": _overrides,
    **dict.fromkeys(("SORT", "WHERE", "FIELD", "FIELD,…"), _query_fields),
    "A,B,…": _columns,
    "NAME,…": _aggregates,
}
"""Completion of each parameter, by the name that the help gives it, in capitals."""
_PATHS: Mapping[str, str] = {
    **dict.fromkeys(("FILE", "SPEC.YAML", "CLUSTER.YAML", "URL", "TOKENIZER", "FILE|URL", "FILE|FOLDER"), "file"),
    **dict.fromkeys(("DIR", "FOLDER", "URI"), "dir"),
}
"""Kind of path, for a shell, of each parameter that is one."""
