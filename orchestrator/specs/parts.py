"""The parts that specs of several kinds have: text that is read, and a labeled task."""

from collections.abc import Iterator

from orchestrator.specs.corpus import TextSource
from orchestrator.specs.fields import Section, Spec
from orchestrator.specs.task import TaskSpec


def text_sources_of(section: Section) -> Iterator[TextSource]:
    """Yield the text that a spec reads, that of its sections included, in the order of its fields."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, TextSource):
            yield value
        elif isinstance(value, Section):
            yield from text_sources_of(value)


def hour_limit_of(spec: Spec) -> tuple[str, float] | None:
    """Path and value of the field that limits the hours of a run; None where it has no limit."""
    for path, part in (("execution", spec), ("pretraining.execution", getattr(spec, "pretraining", None))):
        hours = getattr(getattr(part, "execution", None), "max_hours", None)
        if hours is not None:
            return f"{path}.max_hours", hours
    return None


def task_of(spec: Spec) -> TaskSpec | None:
    """Return the labeled task that a spec is about: its field `task`."""
    task = getattr(spec, "task", None)
    return task if isinstance(task, TaskSpec) else None
