"""Test scores of models that were chosen on the test data, as commands tell of them.

pytest tests/orchestrator/cli/test_refused_scores.py
"""

import pytest

from orchestrator.registry import Registry
from orchestrator.settings import Settings
from tests.orchestrator.cli.laboratory import Command, RecordedSweep

REASON = "the model was chosen on the test data"


@pytest.fixture
def sweep(recorded_sweep: RecordedSweep) -> str:
    """Id of a sweep with a test score, whose test data are its validation data."""
    with Registry(Settings.from_options().registry) as registry:
        registry.trials.set_data(recorded_sweep.run_id, {"validation": "v", "test": "v"})
    return recorded_sweep.run_id


def test_a_refused_test_score_is_told_by_the_run_and_beside_another(
    command: Command, sweep: str, recorded_sweep: RecordedSweep
) -> None:
    assert f"0.8000 (refused: {REASON})" in " ".join(command("runs", "show", sweep).out.split())
    assert REASON in " ".join(command("runs", "show", sweep, "--all").out.split())
    difference = command("runs", "diff", sweep, recorded_sweep.trial_ids[0]).out
    assert f"The test score of {sweep} is refused: {REASON}." in difference


def test_a_model_card_tells_it(command: Command, recorded_sweep: RecordedSweep) -> None:
    best = recorded_sweep.trial_ids[3]
    with Registry(Settings.from_options().registry) as registry:
        registry.trials.set_data(best, {"validation": "v", "test": "v"})
        (model,) = registry.models.of_run(recorded_sweep.run_id)
    assert f"The test score is refused: {REASON}." in command("models", "card", model.label).out


def test_a_query_that_shows_test_scores_names_refused_ones(command: Command, sweep: str) -> None:
    outcome = command("query", "metrics.test.accuracy > 0.1")
    assert f"the test score of 1 run is refused, as {REASON}: {sweep}" in outcome.err
    assert "refused" not in command("query", "metrics.accuracy > 0.1").err
