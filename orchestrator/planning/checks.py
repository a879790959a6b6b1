"""Checks of a spec before anything starts: what could not run is refused here, with the field and the remedy."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from orchestrator.corpus.document_batches import check_text
from orchestrator.errors import OWN_ERRORS, SpecError
from orchestrator.kinds import KINDS, kind_of
from orchestrator.kinds.resolved import Resolved
from orchestrator.specs import PipelineSpec, Spec
from orchestrator.specs.corpus import text_sources_of
from orchestrator.specs.pipeline import stages_of
from orchestrator.specs.references import NAME_FIELDS, STAGE_MARK, names_of


def check_inputs(spec: Spec, inputs: Resolved) -> None:
    """Check that every file, tokenizer and model that a spec names is there and fits, as far as that is known yet.

    Raises: SpecError, ConfigError, CheckpointError, CorpusError, TaskDataError, TokenizerError, NotFoundError, each
        naming what is missing or wrong, and the stage.
    """
    check_references(stages_of(spec))
    for name, stage in each_stage(spec, inputs):
        with naming_stage(spec, name):
            for source in text_sources_of(stage):
                check_text(source)
            inputs.check(stage)
            kind_of(stage).check(stage, inputs)


def check_references(stages: Mapping[str, Spec]) -> None:
    """Check that each `@name` names an earlier stage that makes what the field needs. Raises: SpecError."""
    kinds: dict[str, str] = {}
    for stage, spec in stages.items():
        for field, name in names_of(spec):
            if not name.startswith(STAGE_MARK):
                continue
            kind = kinds.get(name.removeprefix(STAGE_MARK))
            if kind is None:
                earlier = ", ".join(kinds) or "there is none"
                raise SpecError(f"stages.{stage}: {name} names no earlier stage; earlier ones: {earlier}")
            makers = [maker.name for maker in KINDS if NAME_FIELDS[field] in maker.products]
            if kind not in makers:
                raise SpecError(
                    f"stages.{stage}: {field} {name} is a stage of kind {kind}; name one of kind {' or '.join(makers)}"
                )
        kinds[stage] = spec.kind


def each_stage(spec: Spec, inputs: Resolved) -> Iterator[tuple[str, Spec]]:
    """The stages of a pipeline, or the one that a spec is, by name; no two hold their tasks' examples at once."""
    for name, stage in stages_of(spec).items():
        yield name, stage
        if isinstance(spec, PipelineSpec):
            inputs.drop_examples()


@contextmanager
def naming_stage(spec: Spec, name: str) -> Iterator[None]:
    """Put the name of a pipeline's stage before the messages of errors that are raised in the block."""
    try:
        yield
    except OWN_ERRORS as error:
        if not isinstance(spec, PipelineSpec):
            raise
        raise type(error)(f"stages.{name}: {error}") from error
