"""Entity scores as `conlleval` counts them (Tjong Kim Sang & De Meulder 2003): an entity is right when its first
word, its last word and its type are.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from bert_core.errors import DataError

EntitySpan = tuple[int, int, str]
"""An entity: its first word, the word past its last, and its type."""


def ner_f1(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> dict[str, float]:
    """Compute `precision`, `recall` and `f1` over all entities of all sentences; tags are BIO or IOB1.

    A score whose denominator is 0 is 0. Raises: DataError when the two do not line up, or for a tag that is not BIO.
    """
    found, wanted, right = _count_entities(predicted, gold)
    return _scores(found.total(), wanted.total(), right.total())


def ner_f1_by_type(predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> dict[str, dict[str, float]]:
    """Compute the scores of `ner_f1` for each type of entity that occurs, types sorted. Raises: DataError."""
    found, wanted, right = _count_entities(predicted, gold)
    return {kind: _scores(found[kind], wanted[kind], right[kind]) for kind in sorted(found | wanted)}


def entity_spans(tags: Iterable[str]) -> list[EntitySpan]:
    """Find the entities of one sentence. `B-` always begins one, `I-` does where the word before is of another type.

    Raises: DataError.
    """
    spans: list[EntitySpan] = []
    start, current = 0, ""
    position = -1
    for position, tag in enumerate(tags):
        prefix, kind = tag[:2], tag[2:]
        if tag == "O":
            kind = ""
        elif prefix not in ("B-", "I-") or not kind:
            raise DataError(f"tag {tag!r} is not O, B-type or I-type")
        if current and (prefix == "B-" or kind != current):
            spans.append((start, position, current))
        if kind and (prefix == "B-" or kind != current):
            start = position
        current = kind
    if current:
        spans.append((start, position + 1, current))
    return spans


def _count_entities(
    predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]
) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Count entities by type: predicted ones, gold ones, and those that are both."""
    if len(predicted) != len(gold):
        raise DataError(f"{len(predicted)} predicted sentences for {len(gold)} gold ones; there must be one for each")
    found: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for number, (predicted_tags, gold_tags) in enumerate(zip(predicted, gold, strict=True)):
        if len(predicted_tags) != len(gold_tags):
            raise DataError(
                f"sentence {number} has {len(predicted_tags)} predicted tags for {len(gold_tags)} gold ones; "
                "there must be one for each word"
            )
        predicted_spans, gold_spans = entity_spans(predicted_tags), entity_spans(gold_tags)
        found.update(kind for _, _, kind in predicted_spans)
        wanted.update(kind for _, _, kind in gold_spans)
        right.update(kind for _, _, kind in set(predicted_spans) & set(gold_spans))
    return found, wanted, right


def _scores(num_found: int, num_wanted: int, num_right: int) -> dict[str, float]:
    return {
        "precision": num_right / num_found if num_found else 0.0,
        "recall": num_right / num_wanted if num_wanted else 0.0,
        "f1": 2.0 * num_right / (num_found + num_wanted) if num_right else 0.0,
    }
