"""Usage of recorded runs, and its price. Alone: pytest tests/orchestrator/registry/test_costs.py"""

from pathlib import Path

import pytest

from orchestrator.base.errors import InputError
from orchestrator.base.run_states import RunState
from orchestrator.registry import Registry
from orchestrator.registry.costs import PriceTable, Usage, load_prices, own_stages, usage_of, usages_of, with_price
from orchestrator.registry.records import AttemptCostRecord
from tests.orchestrator.registry.samples import new_run

USED = Usage(3600, 7200, {"NVIDIA H200 NVL": 3600, "L40S": 7200})


def prices(folder: Path, text: str) -> PriceTable | None:
    (folder / "prices.yaml").write_text(text)
    return load_prices(folder)


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ("currency: EUR\ncpu_hour: 0.05\ngpu_hour: {H200: 4, L40S: 1}\n", "; 6.1 EUR"),
        ("currency: EUR\ngpu_hour: 2\n", "; 6 EUR"),
        ("currency: EUR\ngpu_hour: {H200: 4, h200 nvl: 5, L40S: 0}\n", "; 5 EUR"),
        ("currency: EUR\ncpu_hour: 1\ngpu_hour: {A100: 4}\n", ""),
        ("currency: EUR\ngpu_hour: {H200: 4, L40: 1}\n", ""),
    ],
    ids=[
        "by type",
        "one for every type",
        "the longest name wins",
        "no price without that of a type",
        "a type is a whole word",
    ],
)
def test_hours_have_their_prices(tmp_path: Path, table: str, text: str) -> None:
    assert with_price(USED, prices(tmp_path, table)) == f"2 CPU h; 2 L40S h; 1 NVIDIA H200 NVL h{text}"


def test_without_a_table_there_are_no_prices(tmp_path: Path) -> None:
    assert load_prices(tmp_path) is None
    assert with_price(USED, None) == str(USED)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("currency: EUR\nkwh: 1\n", "kwh"),
        ("cpu_hour: 1\n", "currency"),
        ("currency: EUR\ncpu_hour: -1\n", "cpu_hour"),
        ("currency: EUR\ngpu_hour: {H200: cheap}\n", "gpu_hour"),
        ("currency: EUR\ncpu_hour: 1e999\n", "cpu_hour"),
        ("- 1\n", "mapping"),
    ],
)
def test_a_table_that_is_wrong_is_refused(tmp_path: Path, text: str, field: str) -> None:
    with pytest.raises(InputError, match=rf"prices.yaml.*{field}"):
        prices(tmp_path, text)


def recorded(registry: Registry, *attempts: tuple[float, float, float]) -> str:
    """A run whose attempts took so many seconds, of CPUs, and of GPUs."""
    run_id = new_run(registry, kind="tokenizer")
    for number, (seconds, cpu_s, gpu_s) in enumerate(attempts, start=1):
        registry.lifecycle.start_attempt(run_id)
        registry.costs.record(AttemptCostRecord(run_id, number, seconds, cpu_s, gpu_s, "H200" if gpu_s else None))
    return run_id


def test_attempts_add_up(registry: Registry) -> None:
    run, other = (registry.run(recorded(registry, *each)) for each in ([(10, 20, 0), (20, 40, 20)], [(1, 1, 0)]))
    assert usage_of(run, registry) == Usage(30, 60, {"H200": 20})
    assert usages_of([run, other], registry) == {run.id: Usage(30, 60, {"H200": 20}), other.id: Usage(1, 1)}
    assert usage_of(registry.run(new_run(registry)), registry) is None, "nothing is recorded"


def test_a_pipeline_is_the_sum_of_its_own_stages(registry: Registry) -> None:
    before = recorded(registry, (100, 100, 0))
    whole = new_run(registry, kind="pipeline", spec={"kind": "pipeline", "stages": {"a": {"name": "sample"}}})
    stages = [recorded(registry, (10, 10, 0)), recorded(registry, (20, 20, 0))]
    anothers = new_run(registry, name="other/stage")
    for stage in (before, *stages, anothers):
        registry.annotations.tag(stage, [f"pipeline:{whole}"], reserved=True)
    registry.lifecycle.start_attempt(whole)
    registry.lifecycle.finish(whole, RunState.COMPLETED, seconds=31.0)
    assert [stage.id for stage in own_stages(registry.run(whole), registry)] == stages
    assert usage_of(registry.run(whole), registry) == Usage(31, 30)
