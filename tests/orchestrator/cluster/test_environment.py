"""Variables that Ray reads. Alone: pytest tests/orchestrator/cluster/test_environment.py"""

import os

import pytest

from orchestrator.cluster.environment import give_way, prepare_driver

NICENESS = "RAY_worker_niceness"


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})


def test_workers_of_a_local_ray_do_not_wait_for_other_programs() -> None:
    prepare_driver(local=True)
    assert os.environ[NICENESS] == "0"


def test_a_niceness_of_ones_own_stays() -> None:
    os.environ[NICENESS] = "5"
    prepare_driver(local=True)
    assert os.environ[NICENESS] == "5"


def test_workers_give_way_where_that_is_asked() -> None:
    give_way()
    prepare_driver(local=True)
    assert os.environ[NICENESS] == "15"


def test_a_clusters_niceness_is_its_own_matter() -> None:
    prepare_driver(local=False)
    assert NICENESS not in os.environ
