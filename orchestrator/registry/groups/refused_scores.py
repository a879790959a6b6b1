"""Refused test scores: the model was trained or chosen on some of the test data, so that the score is too good."""

from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.orm import Session

from orchestrator.registry.engines.dialects import select_items
from orchestrator.registry.groups.group_settings import load_texts
from orchestrator.registry.groups.model_origins import ORIGIN_PATHS, Origin, load_origins, origin_sentence
from orchestrator.registry.groups.split_data import SplitData, taken_path
from orchestrator.registry.tables import MetricRow
from orchestrator.registry.trial_rows import load_kept_trials

TEST_DIGEST = taken_path("test")
"""Parameter with the digest of a run's test data."""


def refusal_of(origin: Origin | None) -> str | None:
    """Reason why a score on test data of this origin is refused; None where it is not.

    A file that was read another way may have given other examples, and refuses nothing.
    """
    is_shown = origin in (None, "apart", "same file")
    return None if is_shown else origin_sentence(origin, "the model", "the test data")


def load_test_refusals(session: Session, run_ids: Collection[str]) -> dict[str, str]:
    """Reason for each of these runs, trials and evaluations whose score on the test split is refused, by its id."""
    is_tested = MetricRow.run_id.in_(select_items(session, run_ids)), MetricRow.split == "test"
    scored = session.scalars(select(MetricRow.run_id).where(*is_tested).distinct()).all()
    kept = load_kept_trials(session, scored)  # the score of a sweep is that of the trial whose model it kept
    texts = load_texts(session, {*scored, *kept.values()}, ORIGIN_PATHS)
    made_with = {run_id: texts[run_id] | texts.get(kept.get(run_id, ""), {}) for run_id in scored}
    tested = {run_id: own for run_id, own in made_with.items() if TEST_DIGEST in own}
    refusals = {
        run_id: refusal_of(origin.use_of(SplitData.of(tested[run_id], "test")))
        for run_id, origin in load_origins(session, tested).items()
    }
    return {run_id: reason for run_id, reason in refusals.items() if reason is not None}
