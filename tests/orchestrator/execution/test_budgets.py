"""Budgets of runs and their costs, by drivers without Ray: who is stopped, what is said, who may go on.

Alone: .venv/bin/pytest tests/orchestrator/execution/test_budgets.py
"""

import pickle
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from orchestrator.costs.budget import budget_prices, check_priced
from orchestrator.costs.usage import Usage
from orchestrator.errors import BudgetReached, InputError, SpecError
from orchestrator.execution import metering
from orchestrator.execution.metering import check_budgets, metered, refuse_if_spent
from orchestrator.execution.stopping import StopWatch
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder
from orchestrator.registry.records import AttemptCostRecord, RunRecord
from orchestrator.run_states import RunState
from orchestrator.settings import Settings
from orchestrator.specs import PipelineSpec, Spec
from orchestrator.specs.execution_overrides import override_execution
from orchestrator.specs.loading import parse_spec, spec_values
from tests.orchestrator.execution.below_ray import running, write_inputs
from tests.orchestrator.small_specs import STORE, TOKENIZER, pipeline
from tests.waiting import PATIENCE_S, wait_until

HOUR_S = 3600


def start(recorder: Recorder, spec: Spec) -> RunRecord:
    return recorder.start(spec_values(spec), spec.fingerprint(), storage_path="/none")


def stopped(recorder: Recorder, spec: Spec, *attempt_hours: float) -> RunRecord:
    """A run that was stopped after attempts of these lengths, each with a CPU that was busy and a GPU."""
    record = start(recorder, spec)
    for number, hours in enumerate(attempt_hours, start=1):
        if number > 1:
            record = recorder.resume(record.id)
        seconds = hours * HOUR_S
        recorder.registry.costs.record(
            AttemptCostRecord(record.id, number, seconds, seconds, True, 2 * seconds, "H200")
        )
        recorder.registry.lifecycle.finish(record.id, RunState.STOPPED, attempt=number, seconds=seconds)
    return recorder.read_run(record.id)


def test_a_budget_shapes_neither_the_fingerprint_nor_the_group(recorder: Recorder) -> None:
    plain, limited = parse_spec(TOKENIZER), parse_spec({**TOKENIZER, "budget": {"hours": 2, "money": 5}})
    assert limited.fingerprint() == plain.fingerprint()
    assert start(recorder, limited).group_key == start(recorder, plain).group_key
    of_pipelines = [pipeline(a=TOKENIZER), pipeline(a={**TOKENIZER, "budget": {"hours": 2}})]
    assert len({start(recorder, parse_spec(one)).group_key for one in of_pipelines}) == 1


@pytest.mark.parametrize(
    ("budget", "problem"),
    [({}, "a budget limits something"), ({"hours": 0}, "it must be more than 0"), ({"minutes": 3}, "budget.minutes")],
)
def test_a_budget_that_limits_nothing_is_refused(budget: dict[str, float], problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        parse_spec({**TOKENIZER, "budget": budget})


def test_an_attempt_may_have_a_larger_budget(recorder: Recorder) -> None:
    assert override_execution(parse_spec(TOKENIZER), ["budget.hours=4"]).budget is not None
    spec = parse_spec(pipeline(a={**TOKENIZER, "budget": {"hours": 2}}))
    changed = override_execution(spec, ["budget.gpu_hours=1", "stages.a.budget.hours=4"])
    assert isinstance(changed, PipelineSpec)
    assert changed.budget is not None
    assert changed.stages["a"].budget is not None
    assert (changed.budget.limits, changed.stages["a"].budget.limits) == ({"gpu_hours": 1.0}, {"hours": 4.0})


@pytest.mark.parametrize(
    ("budget", "problem"),
    [
        ({"hours": 3}, "its budget of 3 hours is spent: 3:00 h; 3 CPU h (measured); 6 H200 h; .* budget.hours=6"),
        ({"hours": 9, "cpu_hours": 3}, "its budget of 3 cpu hours is spent"),
        ({"gpu_hours": 6}, "its budget of 6 gpu hours is spent"),
        ({"money": 24}, "its budget of 24 money is spent: .* budget.money=48"),
    ],
)
def test_a_run_that_has_spent_its_budget_over_its_attempts_is_not_gone_on_with(
    recorder: Recorder, settings: Settings, budget: dict[str, float], problem: str
) -> None:
    (settings.home / "prices.yaml").write_text("currency: EUR\ngpu_hour: 4\n")
    spec = parse_spec({**TOKENIZER, "budget": budget})
    record = stopped(recorder, spec, 1.0, 2.0)
    with pytest.raises(InputError, match=problem.replace("(", r"\(").replace(")", r"\)")):
        refuse_if_spent(record, spec, recorder.registry, settings)
    doubled = {name: 2 * limit for name, limit in budget.items()}
    refuse_if_spent(record, parse_spec({**TOKENIZER, "budget": doubled}), recorder.registry, settings)


def test_money_needs_prices(settings: Settings) -> None:
    spec = parse_spec(pipeline(a={**TOKENIZER, "budget": {"money": 5}}))
    with pytest.raises(InputError, match=r"budget.money is 5, and there are no prices: write .*prices.yaml"):
        check_budgets(spec, settings)
    (settings.home / "prices.yaml").write_text("currency: EUR\nkwh: 1\n")
    check_budgets(spec, settings)


@pytest.mark.parametrize("spec", [TOKENIZER, pipeline(a=TOKENIZER)])
def test_money_is_no_limit_of_what_has_no_price(recorder: Recorder, settings: Settings, spec: dict[str, Any]) -> None:
    limited = parse_spec({**spec, "budget": {"money": 5}})
    record, prices = start(recorder, limited), settings.home / "prices.yaml"
    prices.write_text("currency: EUR\ngpu_hour: 4\n")
    with (
        pytest.raises(InputError, match=r"budget.money is 5, and CPU hours have no price in .*prices.yaml: write one"),
        metered(record, limited, recorder.registry, StopWatch(recorder), settings),
    ):
        raise AssertionError("it is not begun")
    prices.write_text("currency: EUR\ncpu_hour: 4\n")
    with metered(record, limited, recorder.registry, StopWatch(recorder), settings):
        pass


@pytest.mark.parametrize(
    ("prices", "hour", "problem"),
    [
        ("gpu_hour: {H200: 4}", Usage(derived_cpu_seconds=9, gpu_seconds={"L40S": 9}), "L40S hours have no price"),
        ("cpu_hour: 1", Usage(derived_cpu_seconds=9, gpu_seconds={"L40S": 9}), "L40S hours have no price"),
        ("kwh: 1", Usage(derived_cpu_seconds=9), "no counter of energy can be read here"),
        ("kwh: 1", Usage(derived_cpu_seconds=9, gpu_seconds={"L40S": 9}, energy_joules=0), None),
        ("gpu_hour: 4", Usage(derived_cpu_seconds=9, gpu_seconds={"L40S": 9}), None),
        ("{gpu_hour: 0, cpu_hour: 1}", Usage(derived_cpu_seconds=9, gpu_seconds={"L40S": 9}), None),
    ],
)
def test_all_gpus_of_a_budget_of_money_need_a_price(
    settings: Settings, prices: str, hour: Usage, problem: str | None
) -> None:
    text = f"currency: EUR\n{prices}\n".replace("{gpu_hour: 0, cpu_hour: 1}", "gpu_hour: 0\ncpu_hour: 1")
    (settings.home / "prices.yaml").write_text(text)
    budget = parse_spec({**TOKENIZER, "budget": {"money": 5}}).budget
    assert budget is not None
    table = budget_prices(budget, settings)
    assert table is not None
    with nullcontext() if problem is None else pytest.raises(InputError, match=problem):
        check_priced(budget, hour, table, settings)


def test_a_stage_that_has_spent_its_own_names_the_pipeline_to_go_on_with(
    recorder: Recorder, settings: Settings
) -> None:
    whole = start(recorder, parse_spec(pipeline(a=TOKENIZER)))
    spec = parse_spec({**TOKENIZER, "name": "all/a", "budget": {"hours": 1}})
    stage = recorder.resume(stopped(recorder, spec, 1.5).id)
    watch = StopWatch(recorder)
    with (
        watch.heeding(whole, str(settings.home)),
        pytest.raises(BudgetReached) as reached,
        metered(stage, spec, recorder.registry, watch, settings),
    ):
        raise AssertionError("the stage is not begun")
    assert (reached.value.run_id, reached.value.again) == (whole.id, "stages.a.budget.hours=2")
    assert f"run {stage.id} stops: its budget of 1 hours is spent" in str(reached.value)


def test_a_pipelines_budget_counts_its_stages_and_stops_the_stage_at_work(
    recorder: Recorder, settings: Settings
) -> None:
    spec = parse_spec({**pipeline(a=TOKENIZER, b=STORE), "budget": {"gpu_hours": 3}})
    whole = start(recorder, spec)
    stage = stopped(recorder, parse_spec(TOKENIZER), 1.0)
    recorder.registry.tag(stage.id, f"pipeline:{whole.id}")
    watch = StopWatch(recorder)

    def work() -> None:
        with (
            watch.heeding(whole, str(settings.home)),
            metered(whole, spec, recorder.registry, watch, settings, interval_s=0.01),
        ):
            second = stopped(recorder, parse_spec(STORE), 1.0)
            recorder.registry.tag(second.id, f"pipeline:{whole.id}")
            wait_until(lambda: False, "nobody interrupts")

    with pytest.raises(BudgetReached, match=r"its budget of 3 gpu hours is spent: .* 4 H200 h") as reached:
        work()
    assert (reached.value.run_id, reached.value.again) == (whole.id, "budget.gpu_hours=6")
    assert recorder.registry.costs.of_runs([whole.id]) == [], "its stages have costs, and it has none beside them"


def test_an_attempts_costs_are_recorded_however_it_ends(recorder: Recorder, settings: Settings) -> None:
    spec = parse_spec(TOKENIZER)
    record = start(recorder, spec)
    with (
        pytest.raises(RuntimeError, match="no luck"),
        metered(record, spec, recorder.registry, StopWatch(recorder), settings),
    ):
        raise RuntimeError("no luck")
    (cost,) = recorder.registry.costs.of_runs([record.id])
    assert (cost.number, cost.gpu_seconds) == (1, 0.0)
    assert cost.seconds > 0


def test_a_run_beside_the_main_thread_is_warned_of_once(
    recorder: Recorder, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    spec = parse_spec({**TOKENIZER, "budget": {"hours": 1e-9}})
    record = start(recorder, parse_spec(TOKENIZER))
    watch = StopWatch(recorder)
    overseer = metering._Overseer(record, spec, recorder.registry, watch, settings)
    assert overseer.look() is False, "there is nothing more to look for"
    assert "it goes on, as only a run of the main thread can be stopped" in caplog.text


def test_the_error_of_a_budget_survives_pickling() -> None:
    error = BudgetReached("7f3a", "spent", "budget.hours=4", step=20)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.step, again.exit_status) == (str(error), 20, 1)
    assert str(error) == "spent; give it more: orchestrator resume 7f3a budget.hours=4"


@pytest.mark.runs
def test_a_driver_whose_budget_is_spent_ends_as_if_it_were_stopped(tmp_path: Path, settings: Settings) -> None:
    write_inputs(tmp_path)
    arguments = ("run", "words.yaml", "budget.hours=0.0002")
    with running("end_interrupted_at_step_7", tmp_path, *arguments) as (process, run_id):
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert f"stopped after step 7; go on with: orchestrator resume {run_id} budget.hours=0.0004\n" in said
    assert "its budget of 0.0002 hours is spent" in said.splitlines()[-1]
    with Registry(settings.registry) as registry:
        record, (cost,) = registry.run(run_id), registry.costs.of_runs([run_id])
    assert record.state == RunState.STOPPED
    assert "its budget of 0.0002 hours is spent" in str(record.error)
    assert 0.0002 * HOUR_S <= cost.seconds < PATIENCE_S
    assert str(Usage.of_attempt(cost)).count("measured") == 1
