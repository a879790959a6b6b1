"""Refused test scores: the model was trained or chosen on some of the test data, so that the score is too good."""

from collections import defaultdict
from collections.abc import Collection, Mapping

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from orchestrator.registry.engines.dialects import select_items
from orchestrator.registry.groups.model_origins import ModelOrigin, Origin, load_origins
from orchestrator.registry.groups.split_data import SplitData, digest_paths, taken_path
from orchestrator.registry.tables import MetricRow, ParameterRow, RunRow

TEST_DIGEST = taken_path("test")
"""Parameter with the digest of a run's test data."""

_REASONS: Mapping[Origin | None, str] = {
    "trained": "the test data are those that the model was trained on",
    "partly trained": "the model was trained on at least some of the test data",
    "chosen": "the test data are those that the model was chosen on",
    "partly chosen": "the model was chosen on at least some of the test data",
}
"""Reasons by what is certain: a file that was read another way may have given other examples, and refuses nothing."""


def refusal_of(test_data: SplitData, origin: ModelOrigin) -> str | None:
    """Reason why a score on test data is refused; None where it is not.

    Args:
        origin: data that the model was made with.
    """
    return _REASONS.get(origin.use_of(test_data))


def load_test_refusals(session: Session, run_ids: Collection[str]) -> dict[str, str]:
    """Reason for each of these runs, trials and evaluations whose score on the test split is refused, by its id."""
    digests: dict[str, dict[str, str]] = defaultdict(dict)
    columns = select(ParameterRow.run_id, ParameterRow.path, ParameterRow.text)
    is_asked = ParameterRow.run_id.in_(select_items(session, run_ids))
    is_scored = exists().where(MetricRow.run_id == ParameterRow.run_id, MetricRow.split == "test")
    is_digest = ParameterRow.path.in_(digest_paths(["train", "validation", "test"]))
    for run_id, path, text in session.execute(columns.where(is_asked, is_digest, is_scored)):
        digests[run_id][path] = text
    tested = [run_id for run_id, own in digests.items() if TEST_DIGEST in own]
    is_evaluation = RunRow.id.in_(select_items(session, tested)) & (RunRow.kind == "evaluate")
    evaluations = list(session.scalars(select(RunRow.id).where(is_evaluation)))
    origins = {run_id: ModelOrigin.of(digests[run_id]) for run_id in tested}
    origins |= dict.fromkeys(evaluations, ModelOrigin()) | dict(load_origins(session, evaluations))
    test_data = {run_id: SplitData.of(digests[run_id], "test") for run_id in tested}
    refusals = {run_id: refusal_of(test_data[run_id], origins[run_id]) for run_id in tested}
    return {run_id: reason for run_id, reason in refusals.items() if reason is not None}
