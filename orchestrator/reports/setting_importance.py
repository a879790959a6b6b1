"""Importance of the settings of a sweep: Optuna's importance of parameters, on the trials that the registry has."""

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.reports.blocks import Row, is_numeric

MIN_TRIALS = 8
"""Trials below which a share would be noise."""
METHOD = (
    "PED-ANOVA (Watanabe, Bansal & Hutter 2023, IJCAI), by Optuna: how far each setting alone sets the better half of "
    "the trials apart. Settings that were varied little look unimportant."
)


def setting_importances(
    rows: Sequence[Row], settings: Sequence[str], *, larger_is_better: bool = True
) -> dict[str, float]:
    """Share of each setting in what sets good trials apart; empty for fewer than `MIN_TRIALS` trials.

    Args:
        rows: `score` and the settings by their names; a trial that lacks a setting is left out.
    """
    whole = [row for row in rows if all(row.get(name) is not None for name in settings)]
    varied = [name for name in settings if len({str(row[name]) for row in whole}) > 1]
    if len(whole) < MIN_TRIALS or len({row["score"] for row in whole}) < 2 or not varied:
        return {}
    import warnings

    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize" if larger_is_better else "minimize")
    distributions = {name: _distribution([row[name] for row in whole]) for name in varied}
    for row in whole:
        values = {name: _plain(row[name]) for name in varied}
        study.add_trial(
            optuna.trial.create_trial(params=values, distributions=distributions, value=float(row["score"]))
        )
    evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        shares: Mapping[str, float] = optuna.importance.get_param_importances(study, evaluator=evaluator)
    return {name: float(share) for name, share in shares.items()}


def _distribution(values: Sequence[Any]) -> Any:
    """Optuna's distribution in which all of a setting's values lie: a range of numbers, or a choice of texts."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if all(is_numeric(value) for value in values):
        return FloatDistribution(float(min(values)), float(max(values)))
    return CategoricalDistribution(sorted({str(value) for value in values}))


def _plain(value: Any) -> Any:
    return float(value) if is_numeric(value) else str(value)
