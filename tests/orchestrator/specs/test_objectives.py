"""The objectives that a pretraining spec may choose. Alone: pytest tests/orchestrator/specs/test_objectives.py"""

import pytest

from bert_core.objectives import NO_SENTENCE_OBJECTIVE, OBJECTIVES, SENTENCE_OBJECTIVES, TOKEN_OBJECTIVES
from orchestrator.errors import SpecError
from orchestrator.specs import PretrainSpec
from orchestrator.specs.loading import parse_spec

SMALLEST = {"kind": "pretrain", "corpus": {"files": ["text.txt"]}, "tokenizer": "folder", "steps": 1}


@pytest.mark.parametrize("token", TOKEN_OBJECTIVES)
@pytest.mark.parametrize("sentence", [*SENTENCE_OBJECTIVES, NO_SENTENCE_OBJECTIVE])
def test_every_objective_of_the_lists_can_be_chosen(token: str, sentence: str) -> None:
    spec = parse_spec({**SMALLEST, "token_objective": token, "sentence_objective": sentence})
    assert isinstance(spec, PretrainSpec)
    assert set(spec.chosen_objectives) == {token, sentence} & OBJECTIVES.keys()


@pytest.mark.parametrize("field", ["token_objective", "sentence_objective"])
def test_an_unknown_objective_is_refused_with_those_that_there_are(field: str) -> None:
    names = TOKEN_OBJECTIVES if field == "token_objective" else SENTENCE_OBJECTIVES
    with pytest.raises(SpecError, match=f"{field} is 'guess'; allowed: {', '.join(names)}"):
        parse_spec({**SMALLEST, field: "guess"})


def test_the_schema_lists_the_objectives_and_says_what_they_predict() -> None:
    fields = PretrainSpec.model_json_schema()["properties"]
    token, sentence = fields["token_objective"], fields["sentence_objective"]
    assert sentence["enum"] == [*SENTENCE_OBJECTIVES, NO_SENTENCE_OBJECTIVE]
    assert token.get("enum", [token.get("const")]) == list(TOKEN_OBJECTIVES)
    assert all(objective.summary in token["description"] for objective in TOKEN_OBJECTIVES.values())
    assert all(objective.summary in sentence["description"] for objective in SENTENCE_OBJECTIVES.values())
