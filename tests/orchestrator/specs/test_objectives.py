"""The objectives that a pretraining spec may choose. Alone: pytest tests/orchestrator/specs/test_objectives.py"""

from operator import attrgetter

import pytest

from bert_core.objectives import NO_SENTENCE_OBJECTIVE, OBJECTIVES, SENTENCE_OBJECTIVES, TOKEN_OBJECTIVES
from bert_core.objectives.base import TokenObjective
from orchestrator.base.errors import SpecError
from orchestrator.specs import PretrainSpec
from orchestrator.specs.loading import parse_spec

SMALLEST = {"kind": "pretrain", "corpus": {"files": ["text.txt"]}, "tokenizer": "folder", "steps": 1}


PAIRS = [
    (token, sentence)
    for token, objective in TOKEN_OBJECTIVES.items()
    for sentence in (*([] if objective.against_pairs else SENTENCE_OBJECTIVES), NO_SENTENCE_OBJECTIVE)
]


@pytest.mark.parametrize(("token", "sentence"), PAIRS)
def test_every_objective_of_the_lists_can_be_chosen(token: str, sentence: str) -> None:
    spec = parse_spec({**SMALLEST, "token_objective": token, "sentence_objective": sentence})
    assert isinstance(spec, PretrainSpec)
    assert set(spec.chosen_objectives) == {token, sentence} & OBJECTIVES.keys()


@pytest.mark.parametrize("field", ["token_objective", "sentence_objective"])
def test_an_unknown_objective_is_refused_with_those_that_there_are(field: str) -> None:
    names = TOKEN_OBJECTIVES if field == "token_objective" else SENTENCE_OBJECTIVES
    with pytest.raises(SpecError, match=f"{field} is 'guess'; allowed: {', '.join(names)}"):
        parse_spec({**SMALLEST, field: "guess"})


@pytest.mark.parametrize("sentence", SENTENCE_OBJECTIVES)
@pytest.mark.parametrize("token", ["left_to_right", "replaced_tokens"])
def test_some_objectives_take_no_pairs_of_segments(token: str, sentence: str) -> None:
    chosen = {**SMALLEST, "token_objective": token}
    with pytest.raises(SpecError, match=f"sentence_objective is {sentence}"):
        parse_spec({**chosen, "sentence_objective": sentence})
    parse_spec({**chosen, "sentence_objective": "none", "cross_documents": True})


def test_tokens_are_replaced_where_phases_say_by_a_generator_of_its_own_size() -> None:
    phases = [{"share": 0.5, "mlm_probability": 0.3}, {"share": 0.5, "mask_mix": [1, 0, 0]}]
    chosen = {"token_objective": "replaced_tokens", "sentence_objective": "none"}
    spec = parse_spec({**SMALLEST, **chosen, "generator_size": 0.5, "mask_unit": "word", "phases": phases})
    assert isinstance(spec, PretrainSpec)
    assert (spec.generator_size, spec.phases[0].mlm_probability) == (0.5, 0.3)
    spans = {"mask_unit": "span", "model": {"span_boundary_objective": True}}
    with pytest.raises(SpecError, match="span_boundary_objective"):
        parse_spec({**SMALLEST, **chosen, **spans})
    with pytest.raises(SpecError, match="generator_size"):
        parse_spec({**SMALLEST, "generator_size": 0.5})


@pytest.mark.parametrize(
    "changes",
    [
        {"mlm_probability": 0.3},
        {"mask_unit": "word"},
        {"model": {"span_boundary_objective": True}},
        {"phases": [{"mlm_probability": 0.3}]},
    ],
)
def test_settings_of_masks_say_nothing_from_left_to_right(changes: dict[str, object]) -> None:
    with pytest.raises(SpecError, match="masked_lm"):
        parse_spec({**SMALLEST, "token_objective": "left_to_right", "sentence_objective": "none", **changes})


@pytest.mark.parametrize("objective", TOKEN_OBJECTIVES.values(), ids=TOKEN_OBJECTIVES)
def test_fields_of_an_objective_are_fields_of_the_spec(objective: TokenObjective) -> None:
    spec = parse_spec({**SMALLEST, "token_objective": objective.name, "sentence_objective": "none"})
    assert all(attrgetter(name)(spec) is not None for name in objective.spec_fields)


def test_the_schema_lists_the_objectives_and_says_what_they_predict() -> None:
    fields = PretrainSpec.model_json_schema()["properties"]
    token, sentence = fields["token_objective"], fields["sentence_objective"]
    assert sentence["enum"] == [*SENTENCE_OBJECTIVES, NO_SENTENCE_OBJECTIVE]
    assert token.get("enum", [token.get("const")]) == list(TOKEN_OBJECTIVES)
    assert all(objective.summary in token["description"] for objective in TOKEN_OBJECTIVES.values())
    assert all(objective.summary in sentence["description"] for objective in SENTENCE_OBJECTIVES.values())
