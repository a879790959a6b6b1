"""Rotary positions and linear biases against their definitions.

Run alone: pytest tests/bert_core/attention/test_positions.py
"""

import pytest
import torch

from bert_core.attention.positions import Positions, alibi_bias, alibi_slopes, apply_rotary, rotation
from bert_core.config import BertConfig
from tests.bert_core.reference import rotated_by_definition, small_config


@pytest.mark.parametrize("base", [10_000.0, 500.0])
def test_rotary_rotates_pairs_by_their_angle(base: float) -> None:
    config = small_config(position_embedding_type="rotary", rotary_base=base)
    x = torch.randn(3, 2, config.head_size, generator=torch.Generator().manual_seed(0))
    position_ids = torch.tensor([0, 5, 17])
    rotated = apply_rotary(x, rotation(position_ids, config.head_size, base))
    for token, position in enumerate(position_ids.tolist()):
        for head in range(2):
            expected = rotated_by_definition(x[token, head].tolist(), position, base)
            assert rotated[token, head].tolist() == pytest.approx(expected, abs=1e-5)


def test_rotary_product_depends_on_the_distance_alone() -> None:
    config = small_config(position_embedding_type="rotary")
    generator = torch.Generator().manual_seed(1)
    q, k = (torch.randn(1, 1, config.head_size, generator=generator) for _ in range(2))

    def product(query_at: int, key_at: int) -> float:
        places = (torch.tensor([at]) for at in (query_at, key_at))
        rotated = [
            apply_rotary(x, rotation(place, config.head_size, 1e4)) for x, place in zip((q, k), places, strict=True)
        ]
        return float((rotated[0] * rotated[1]).sum())

    assert product(9, 4) == pytest.approx(product(25, 20), abs=1e-4)
    assert product(9, 4) != pytest.approx(product(4, 9), abs=1e-2)


def test_slopes_of_eight_and_of_twelve_heads_are_those_of_the_paper() -> None:
    assert alibi_slopes(8).tolist() == [2.0**-power for power in range(1, 9)]
    twelve = alibi_slopes(12).tolist()
    assert twelve[:8] == alibi_slopes(8).tolist()
    assert twelve[8:] == pytest.approx([2 ** (-power / 2) for power in (1, 3, 5, 7)])


def test_bias_falls_linearly_on_both_sides() -> None:
    bias = alibi_bias(torch.tensor([0.5, 0.25]), 3)
    assert bias[0].tolist() == [[0, -0.5, -1], [-0.5, 0, -0.5], [-1, -0.5, 0]]
    assert bias[1, 0].tolist() == [0, -0.25, -0.5]


def test_learned_positions_leave_attention_alone() -> None:
    positions = Positions.of(BertConfig.from_size("tiny"), torch.arange(4))
    assert positions == Positions(rotation=None, slopes=None)
