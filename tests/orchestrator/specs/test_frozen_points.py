"""Points that each search proposed when it was first released: a later version must propose the same for the same spec.

Optuna's depend on its version as well: when an upgrade changes them, take the new ones and say so in the changelog.

Run alone: pytest tests/orchestrator/specs/test_frozen_points.py
"""

from itertools import product
from math import log10

import pytest

from orchestrator.base.results import TrialResult
from orchestrator.finetuning.search_space import TrialQueue
from orchestrator.specs import SweepSpec

SPACE = {
    "learning_rate": {"log_uniform": [1e-6, 1e-1]},
    "warmup_ratio": {"uniform": [0.0, 0.5]},
    "batch_size": {"int_uniform": [4, 64]},
    "size": ["tiny", "mini", "small"],
    "epochs": {"choice": [1.0, 2.0]},
}


def points(**fields: object) -> list[dict[str, object]]:
    """The points of a sweep whose trials run one at a time and score best at a learning rate of 1e-3."""
    task = {"id": "own", "head": "classification"}
    spec = SweepSpec.model_validate({"task": task, "recipe": {"tokenizer": "own"}, **fields})
    queue, found = TrialQueue(spec, "accuracy", {}), []
    while (plan := queue.next()) is not None:
        recipe = plan.recipe
        score = 1 - abs(log10(recipe.learning_rate) + 3) / 3 - (recipe.size == "tiny") * 0.5
        metrics = {"accuracy": score}
        queue.record(plan, TrialResult(plan.key, plan.number, plan.parameters, "COMPLETED", plan.seed, metrics=metrics))
        found.append(dict(plan.point))
    return found


def test_grid_proposes_its_frozen_points() -> None:
    space = {"batch_size": [8, 16, 8], "size": {"choice": ["tiny", "mini"]}, "epochs": [1.0, 2.0]}
    frozen = list(product((8, 16), ("tiny", "mini"), (1.0, 2.0)))
    assert [tuple(point.values()) for point in points(space=space)] == frozen


FROZEN: dict[str, list[tuple[float, float, int, str, float]]] = {
    "random": [
        (0.021629346349426655, 0.19814818501454745, 12, "small", 1.0),
        (0.029951493681495554, 0.24648803331149377, 41, "tiny", 2.0),
        (0.0013956956626335012, 0.3870009047820494, 63, "small", 2.0),
        (0.00044023031154553737, 0.13382995967729766, 27, "mini", 2.0),
    ],
    "halton": [
        (0.009936934961887243, 0.41640856026394946, 60, "mini", 1.0),
        (3.142334744052218e-05, 0.08307522693061613, 23, "tiny", 1.0),
        (0.0005587949174797986, 0.2497418935972828, 48, "mini", 1.0),
        (1.767064684162e-06, 0.47196411581950504, 11, "small", 2.0),
    ],
    "optuna": [
        (1.2604754846298283e-05, 0.46233428803495447, 33, "mini", 1.0),
        (0.0023845682732284504, 0.15329313785445264, 50, "mini", 1.0),
        (0.022586422220096283, 0.07751967274335853, 41, "tiny", 1.0),
        (0.01811390341653343, 0.1679148050553595, 51, "mini", 1.0),
        (0.021490913829246207, 0.08742947206188251, 15, "tiny", 1.0),
        (1.2220351199846573e-06, 0.2897440947625677, 29, "mini", 1.0),
        (8.140023570780237e-06, 0.4889612838444679, 38, "small", 2.0),
        (0.0029547997246579705, 0.21390595969525977, 61, "small", 1.0),
        (0.020778460447235383, 0.2632707593952337, 28, "small", 2.0),
        (0.01892666421236409, 0.4056720253896012, 23, "tiny", 2.0),
        (0.00037454069173038036, 0.17270870890935905, 21, "mini", 1.0),
        (0.0014382260431627927, 0.22466576320919207, 12, "mini", 1.0),
        (0.0020344418143522624, 0.016060433224403703, 12, "mini", 1.0),
        (0.0029925579630103167, 0.29577562469425994, 4, "mini", 1.0),
    ],
}
"""The values of each point in the order of the space."""


@pytest.mark.parametrize("search", FROZEN)
def test_a_search_over_ranges_proposes_its_frozen_points(search: str) -> None:
    found = points(space=SPACE, search=search, trials=len(FROZEN[search]), search_seed=7)
    for point, (learning_rate, warmup_ratio, *others) in zip(found, FROZEN[search], strict=True):
        assert list(point) == list(SPACE)
        assert point["learning_rate"] == pytest.approx(learning_rate, rel=1e-12)
        assert point["warmup_ratio"] == pytest.approx(warmup_ratio, rel=1e-12)
        assert [point["batch_size"], point["size"], point["epochs"]] == others
