"""Words that a shell is offered in the place of a parameter, by the name that the help gives the parameter.

click's `shell_completion` speaks with the shells and completes commands, options and choices. Here are the words that
only this laboratory knows: runs, models, tasks, measurements, kinds of specs, fields of a spec. Every command that
takes a `MODEL` completes models, `RUN` runs, `SPEC.yaml` files. Nothing that takes long is loaded.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from orchestrator.base.formatting import printable
from orchestrator.registry.recorded_names import RecordedNames

if TYPE_CHECKING:
    from orchestrator.specs.documentation import FieldDoc

Named = Iterable[tuple[str, str]]

_PLAIN = re.compile(r"[\w.,:@%+=/~-]+")
"""Words that every shell takes as they stand; others are not offered, so that no recorded name can do anything."""


def complete(
    parameter: click.Parameter, context: click.Context, registry: str, incomplete: str
) -> list[CompletionItem[str]]:
    """Words for a parameter that begin with what was typed. Raises: whatever reading a registry or a spec raises."""
    name = (parameter.metavar or parameter.human_readable_name).strip("[]").rstrip(" .").upper()
    path = _PATHS.get(name)
    named = _OF_NAME[name](RecordedNames.at(registry), context, incomplete) if name in _OF_NAME else ()
    fitting = [(word, about) for word, about in named if word.startswith(incomplete) and _PLAIN.fullmatch(word)]
    if path is not None and not fitting:
        return [CompletionItem(incomplete, type=path)]
    return [CompletionItem(word, help=printable(about, keep_lines=False) or None) for word, about in fitting]


def _runs(names: RecordedNames, context: click.Context, incomplete: str) -> Named:
    return names.named("runs", incomplete)


def _models(names: RecordedNames, context: click.Context, incomplete: str) -> Named:
    """Registered models; the versions of one once its name is there."""
    models = names.models()
    is_whole = any(name == incomplete for name, _ in models)
    return [model for model in models if is_whole or ("@" in incomplete) == ("@" in model[0])]


def _tasks(names: RecordedNames, context: click.Context, incomplete: str) -> Named:
    """The tasks with trials; beside them, where no groups are meant, the known ones."""
    own = names.named("tasks")
    if context.info_name in ("leaderboard", "list"):
        return own
    from orchestrator.tasks.catalogue import KNOWN_TASKS

    return ({name: task.head for name, task in KNOWN_TASKS.items()} | dict(own)).items()


def _results(names: RecordedNames, context: click.Context, incomplete: str) -> Named:
    return [*names.named("tasks"), *_runs(names, context, incomplete)]


def _metrics(names: RecordedNames, context: click.Context, incomplete: str) -> Named:
    """Measurements of the run that was named before; the options called --name take words of a person's own."""
    metrics = names.metrics(context.params.get("run_id") or "") if context.info_name == "metrics" else ()
    return [(name, "measurement") for name in metrics]


def _spec_kinds(names: RecordedNames, context: click.Context, incomplete: str) -> Named:
    from orchestrator.specs import SPEC_KINDS, spec_class

    return [(name, spec_class(name).title) for name in SPEC_KINDS]


def _overrides(names: RecordedNames, context: click.Context, incomplete: str) -> Named:
    """`KEY=` for each field of the spec that was named before, or that a run takes which goes on.

    A field that alone fits is offered with its default too, so that no shell takes `KEY=` for the whole word.
    """
    if run_id := context.params.get("resumed") or context.params.get("run_id"):
        fields = _fields_of({"kind": names.kind_of_run(run_id)}, only=("execution.", "trials"))
    elif spec_path := context.params.get("spec_path"):
        from orchestrator.specs.loading import read_values

        fields = _fields_of(read_values(spec_path))
    else:
        return
    fitting = [field for field in fields if field.field.startswith(incomplete)]
    for field in fitting:
        yield f"{field.field}=", field.about
    if len(fitting) == 1:
        yield f"{fitting[0].field}={fitting[0].default.replace('left out', 'null')}", "the default"


def _fields_of(values: Any, prefix: str = "", only: tuple[str, ...] = ("",)) -> "Iterator[FieldDoc]":
    """The fields of a spec that take a value, and those of its stages."""
    from orchestrator.specs import SPEC_KINDS, spec_class
    from orchestrator.specs.documentation import document_fields

    kind = values.get("kind")
    for field in document_fields(spec_class(kind)) if kind in SPEC_KINDS else ():
        is_value = field.default != "see below" and field.type != "section" and "[]" not in field.field
        if is_value and field.field != "kind" and field.field.startswith(only):
            yield replace(field, field=prefix + field.field)
    for name, stage in (values.get("stages") or {}).items():
        yield from _fields_of(stage, f"{prefix}stages.{name}.")


_OF_NAME: Mapping[str, Callable[[RecordedNames, click.Context, str], Named]] = {
    **dict.fromkeys(("RUN", "A B [C …"), _runs),
    "MODEL": _models,
    "TASK": _tasks,
    **dict.fromkeys(("RUN|MODEL|TASK", "RUN|TASK"), _results),
    "NAME": _metrics,
    "KIND": _spec_kinds,
    "KEY=VALUE": _overrides,
}
"""Completion of each parameter, by the name that the help gives it, in capitals."""
_PATHS: Mapping[str, str] = {
    **dict.fromkeys(("FILE", "SPEC.YAML", "CLUSTER.YAML", "URL", "TOKENIZER", "FILE|URL", "FILE|FOLDER"), "file"),
    **dict.fromkeys(("DIR", "FOLDER", "URI", "MODEL"), "dir"),
}
"""Kind of path, for a shell, of each parameter that may be one."""
