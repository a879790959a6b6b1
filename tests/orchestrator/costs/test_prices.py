"""Prices, and the money that they make of hours and energy.

Alone: .venv/bin/pytest tests/orchestrator/costs/test_prices.py
"""

from pathlib import Path

import pytest

from orchestrator.costs.prices import PriceTable, load_prices
from orchestrator.costs.usage import Usage
from orchestrator.errors import InputError

USED = Usage(3600, 7200, 0, {"NVIDIA H200 NVL": 3600, "L40S": 7200}, 1.8e6)


def prices(folder: Path, text: str) -> PriceTable | None:
    (folder / "prices.yaml").write_text(text)
    return load_prices(folder)


def test_hours_and_energy_have_their_prices(tmp_path: Path) -> None:
    table = prices(tmp_path, "currency: EUR\ncpu_hour: 0.05\ngpu_hour: {H200: 4, L40S: 1}\nkwh: 0.2\n")
    assert table is not None
    money = table.money(USED)
    assert money is not None
    assert money.amount == pytest.approx(2 * 0.05 + 4 + 2 * 1 + 0.5 * 0.2)
    assert str(money) == "6.2 EUR"


def test_one_price_is_for_every_type_and_the_longest_name_wins(tmp_path: Path) -> None:
    one = prices(tmp_path, "currency: EUR\ngpu_hour: 2\n")
    assert one is not None
    assert str(one.money(USED)) == "6 EUR, without CPU hours, which have no price"
    several = prices(tmp_path, "currency: EUR\ncpu_hour: 0\ngpu_hour: {H200: 4, h200 nvl: 5, L40S: 0}\n")
    assert several is not None
    assert str(several.money(USED)) == "5 EUR"


def test_a_type_without_a_price_is_named(tmp_path: Path) -> None:
    table = prices(tmp_path, "currency: EUR\ncpu_hour: 1\ngpu_hour: {A100: 4}\n")
    assert table is not None
    assert str(table.money(USED)) == "2 EUR, without L40S hours and NVIDIA H200 NVL hours, which have no price"


def test_energy_alone_is_priced_of_ones_own_machine(tmp_path: Path) -> None:
    table = prices(tmp_path, "currency: EUR\nkwh: 0.3\n")
    assert table is not None
    assert str(table.money(USED)) == "0.15 EUR"
    assert table.money(Usage(3600, 3600)) is None, "nothing is known of its energy"


def test_without_a_table_there_are_no_prices(tmp_path: Path) -> None:
    assert load_prices(tmp_path) is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("currency: EUR\ncpu_hours: 1\n", "prices.yaml: cpu_hours is no price; there are currency, cpu_hour"),
        ("cpu_hour: 1\n", "currency is None; give a word, such as EUR"),
        ("currency: EUR\ncpu_hour: -1\n", "cpu_hour is -1; give a number, 0 or more"),
        ("currency: EUR\nkwh: cheap\n", "kwh is 'cheap'; give a number"),
        ("currency: EUR\ngpu_hour: {H200: yes}\n", "gpu_hour H200 is 'yes'; give a number"),
        ("currency: EUR\ncpu_hour: true\n", "cpu_hour is True; give a number"),
        ("currency: EUR\ncpu_hour: 1e999\n", "cpu_hour is inf; give a number"),
        ("- 1\n", "prices.yaml"),
    ],
)
def test_a_table_that_is_wrong_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        prices(tmp_path, text)
