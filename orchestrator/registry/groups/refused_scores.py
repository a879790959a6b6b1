"""Refused test scores: the model was trained or chosen on some of the test data, so that the score is too good."""

from collections import defaultdict
from collections.abc import Collection, Mapping

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from orchestrator.registry.engines.dialects import select_items
from orchestrator.registry.groups.model_origins import ORIGIN_PATHS, ModelOrigin, Origin, load_origins
from orchestrator.registry.groups.split_data import SplitData, digest_paths, taken_path
from orchestrator.registry.tables import MetricRow, ParameterRow, RunRow

TEST_DIGEST = taken_path("test")
"""Parameter with the digest of a run's test data."""

_REASONS: Mapping[Origin | None, str] = {
    "trained": "the test data are those that the model was trained on",
    "partly trained": "the model was trained on at least some of the test data",
    "chosen": "the test data are those that the model was chosen on",
    "partly chosen": "the model was chosen on at least some of the test data",
    "trained earlier": "the model was made of one that was trained on the test data",
    "partly trained earlier": "the model was made of one that was trained on at least some of the test data",
    "chosen earlier": "the model was made of one that was chosen on the test data",
    "partly chosen earlier": "the model was made of one that was chosen on at least some of the test data",
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
    texts: dict[str, dict[str, str]] = defaultdict(dict)
    columns = select(ParameterRow.run_id, ParameterRow.path, ParameterRow.text)
    is_asked = ParameterRow.run_id.in_(select_items(session, run_ids))
    is_scored = exists().where(MetricRow.run_id == ParameterRow.run_id, MetricRow.split == "test")
    is_of_data = ParameterRow.path.in_([*ORIGIN_PATHS, *digest_paths(["test"])]), ParameterRow.kind == "text"
    for run_id, path, text in session.execute(columns.where(is_asked, *is_of_data, is_scored)):
        texts[run_id][path] = text
    tested = {run_id: own for run_id, own in texts.items() if TEST_DIGEST in own}
    is_evaluation = RunRow.id.in_(select_items(session, tested)) & (RunRow.kind == "evaluate")
    origins = load_origins(session, tested, session.scalars(select(RunRow.id).where(is_evaluation)).all())
    refusals = {run_id: refusal_of(SplitData.of(own, "test"), origins[run_id]) for run_id, own in tested.items()}
    return {run_id: reason for run_id, reason in refusals.items() if reason is not None}
