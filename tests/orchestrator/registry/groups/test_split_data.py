"""Which data of a score a model has seen. Alone: pytest tests/orchestrator/registry/groups/test_split_data.py"""

import pytest

from orchestrator.registry.groups.model_origins import ModelData, ModelOrigin
from orchestrator.registry.groups.split_data import DigestSets, SplitData

WHOLE = SplitData("whole", "whole", "file")
FIRST = SplitData("first 100", "whole", "file")
FIRST_FEW = SplitData("first 10", "whole", "file")
OTHERWISE = SplitData("read otherwise", "read otherwise", "file")
"""Data of the same file, of other columns or without its broken records."""
REST = SplitData("rest", "rest", "file of the rest")
"""Examples after the first 100, which stand in a file of their own: there is no limit that takes them."""
BEFORE = SplitData("whole of before", "whole of before")
"""Data of a run that was recorded before digests of files were."""


@pytest.mark.parametrize(
    ("scored", "used", "overlap"),
    [
        (WHOLE, WHOLE, "all"),
        (FIRST, FIRST, "all"),
        (FIRST, WHOLE, "all"),
        (WHOLE, FIRST, "some"),
        (FIRST, FIRST_FEW, "some"),
        (FIRST_FEW, FIRST, "some"),
        (WHOLE, OTHERWISE, "file"),
        (FIRST, OTHERWISE, "file"),
        (REST, FIRST, None),
        (WHOLE, BEFORE, None),
        (BEFORE, WHOLE, None),
        (BEFORE, BEFORE, "all"),
        (WHOLE, SplitData(), None),
        (SplitData(), WHOLE, None),
        (SplitData(), SplitData(), None),
    ],
)
def test_examples_are_known_to_be_the_same_by_their_digests(
    scored: SplitData, used: SplitData, overlap: str | None
) -> None:
    assert DigestSets.of(used).overlap(scored) == overlap


@pytest.mark.parametrize(
    ("trained_on", "chosen_on", "scored", "origin"),
    [
        (WHOLE, REST, WHOLE, "trained"),
        (WHOLE, REST, FIRST, "trained"),
        (FIRST, REST, WHOLE, "partly trained"),
        (REST, WHOLE, FIRST, "chosen"),
        (REST, FIRST, WHOLE, "partly chosen"),
        (FIRST, WHOLE, WHOLE, "partly trained"),
        (OTHERWISE, FIRST, WHOLE, "partly chosen"),
        (OTHERWISE, REST, WHOLE, "same file"),
        (REST, OTHERWISE, WHOLE, "same file"),
        (FIRST, FIRST, REST, "apart"),
        (BEFORE, BEFORE, WHOLE, "apart"),
        (BEFORE, BEFORE, BEFORE, "trained"),
        (SplitData(), SplitData(), WHOLE, None),
        (WHOLE, SplitData(), REST, None),
        (WHOLE, REST, SplitData(), None),
    ],
)
def test_the_origin_of_a_score_is_the_gravest_use_of_its_data_that_is_certain(
    trained_on: SplitData, chosen_on: SplitData, scored: SplitData, origin: str | None
) -> None:
    use = ModelData(DigestSets.of(trained_on), DigestSets.of(chosen_on))
    assert ModelOrigin(use).use_of(scored) == origin
