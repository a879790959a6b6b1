"""`precision: auto` in specs, and what it comes to in its place."""

from bert_core.constants import Precision
from orchestrator.specs.fields import Spec
from orchestrator.specs.references import SpecT, replace_texts


def with_precision(spec: SpecT, precision: Precision) -> SpecT:
    """Put a precision in the place of each `precision: auto`, those among the values of a search space included."""
    return replace_texts(spec, lambda field, text: precision if (field, text) == ("precision", "auto") else text)


def asks_auto(spec: Spec) -> bool:
    """Whether the devices decide a precision of the spec."""
    return with_precision(spec, "fp32") != spec


def possible_fingerprints(spec: Spec) -> set[str]:
    """Fingerprints that a run of the spec may have: as its devices decide on a precision; a pipeline's own."""
    settled = with_precision(spec, "fp32"), with_precision(spec, "bf16")
    return {each.fingerprint() for each in (spec, *settled)}
