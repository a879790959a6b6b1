"""When a run has the span-boundary objective. Alone: pytest tests/bert_core/objectives/test_span_boundary.py"""

import pytest

from bert_core.config import BertConfig
from bert_core.objectives import active_objectives


@pytest.mark.parametrize(("has_head", "expected"), [(True, ("masked_lm", "span_boundary")), (False, ("masked_lm",))])
def test_a_run_that_masks_has_the_objective_where_its_model_has_the_head(
    has_head: bool, expected: tuple[str, ...]
) -> None:
    config = BertConfig(span_boundary_objective=has_head)
    assert active_objectives(["masked_lm"], config) == expected


def test_a_run_without_masks_does_not_have_the_objective() -> None:
    assert active_objectives(["next_sentence"], BertConfig(span_boundary_objective=True)) == ("next_sentence",)
