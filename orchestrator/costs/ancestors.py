"""Ancestors of a run: the runs whose models, tokenizers and token stores it began with, and theirs in turn."""

import re
from collections.abc import Iterator

from orchestrator.costs.held import spec_of
from orchestrator.errors import NotFoundError
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry
from orchestrator.run_ids import is_run_id
from orchestrator.specs.references import names_of

_CORPUS = "corpus"
_TASK = "task"
"""Kind of labeled data: each run reads the files itself."""


def ancestors_of(run: RunRecord, registry: Registry) -> list[RunRecord]:
    """Every run that a run is made of, each once, the oldest first; not the run itself."""
    found: dict[str, RunRecord] = {}
    ahead = [run]
    while ahead:
        for parent in _parents(ahead.pop(), registry):
            if parent.id not in found and parent.id != run.id:
                found[parent.id] = parent
                ahead.append(parent)
    return sorted(found.values(), key=lambda each: (each.created_at, each.id))


def _parents(run: RunRecord, registry: Registry) -> Iterator[RunRecord]:
    """Runs that made what a run names in its spec, or the token store that it read."""
    if run.parent_id is not None:
        yield from _parents(registry.run(run.parent_id), registry)
        return
    spec = spec_of(run)
    for _, name in names_of(spec) if spec is not None else ():
        maker = _maker(name, registry)
        if maker is not None:
            yield maker
    for data in registry.datasets.table(run.id).records:
        if data["kind"] == _CORPUS:
            first = registry.run(registry.datasets.users(data["fingerprint"])[0])
            if first.kind == _CORPUS:  # a run that made it beside its own work cost what it did without the others
                yield first
    yield from _parents_by_digest(run, registry)


def _parents_by_digest(run: RunRecord, registry: Registry) -> Iterator[RunRecord]:
    """Runs that made what a run's models were made of, by the recorded edges."""
    made_of = registry.lineage.parents([model.digest for model in registry.models.left_by(run)])
    kinds = {edge.parent.digest: edge.parent.kind for edge in made_of}
    makers = {edge.run_id: kinds[edge.child.digest] for edge in registry.lineage.parents(kinds) if edge.run_id}
    for maker in registry.run_records(list(makers)):
        made = makers[maker.id]
        if made != _TASK and (made != _CORPUS or maker.kind == _CORPUS):
            yield maker


def _maker(name: str, registry: Registry) -> RunRecord | None:
    """The run that made what a name stands for: a registered model, or a file in the folder of a run."""
    for part in reversed(re.split(r"[/\\]", name)):
        if is_run_id(part):
            return next(iter(registry.run_records([part])), None)
    try:
        made_by = registry.models.get(name).run_id
    except NotFoundError:
        return None
    return None if made_by is None else registry.run(made_by)
