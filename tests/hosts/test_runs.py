"""Runs on hosts in which something breaks: they end with the bits of one that nothing disturbed. It tells the times.

Alone, with the times: .venv/bin/pytest -s tests/hosts/test_runs.py
"""

import time
from collections.abc import Iterator

import pytest

from tests.hosts.machines import Machine, why_no_machines
from tests.hosts.ray_cluster import CLUSTER_FILE, DASHBOARD, RayCluster, opened_dashboard, started_cluster
from tests.hosts.submitted_run import TOKENIZER, SubmittedRun, submit, write_text
from tests.hosts.tutorial import keep_up

pytestmark = [
    pytest.mark.ray,
    pytest.mark.hosts,
    pytest.mark.slow,
    pytest.mark.skipif(bool(why_no_machines()), reason=why_no_machines()),
]
BREAKS_AFTER = 20
"""Step whose checkpoint is there when something breaks."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    began = time.monotonic()
    with started_cluster(num_hosts=3) as cluster:
        cluster.wait_for_nodes()
        tell("up, until all three hosts are there", time.monotonic() - began)
        keep_up(cluster)
        write_text(cluster.site.shared / "data" / "pretrain")
        cluster.head.run(f"orchestrator tokenizer train /srv/lab/data/pretrain --vocab-size 500 -o {TOKENIZER}")
        with opened_dashboard(cluster.control):
            yield cluster
        began = time.monotonic()
        cluster.control.run(f"orchestrator cluster down {CLUSTER_FILE}")
        tell("down, on three hosts", time.monotonic() - began)


@pytest.fixture(scope="module")
def undisturbed(cluster: RayCluster) -> tuple[str, str]:
    """Digests of a run that nothing disturbs."""
    run = submit(cluster)
    tell("submitted, until step 5 is saved", run.reach(5))
    run.complete()
    return run.digests()


@pytest.fixture
def run(cluster: RayCluster, undisturbed: tuple[str, str]) -> SubmittedRun:
    """A run that has saved some steps."""
    cluster.wait_for_nodes()
    run = submit(cluster)
    run.reach(BREAKS_AFTER)
    return run


def test_a_cut_cable(run: SubmittedRun, undisturbed: tuple[str, str]) -> None:
    host = host_of_a_worker(run)
    tell("cable of a worker's host cut", run.go_on_after(host.link.cut))
    host.link.heal()
    run.complete()
    assert run.digests() == undisturbed


def test_a_raylet_that_is_killed(run: SubmittedRun, undisturbed: tuple[str, str]) -> None:
    tell("raylet of a worker's host killed", run.go_on_after(lambda: host_of_a_worker(run).kill("raylet/raylet")))
    run.complete()
    assert run.digests() == undisturbed


def test_a_driver_that_is_killed(run: SubmittedRun, undisturbed: tuple[str, str]) -> None:
    run.kill_driver()
    resume_and_complete(run, "driver killed, then submit --resume")
    assert run.digests() == undisturbed


def test_a_gcs_that_is_killed(run: SubmittedRun, undisturbed: tuple[str, str]) -> None:
    before = run.cluster.wait_for_nodes()
    began = time.monotonic()
    run.cluster.head.kill("gcs/gcs_server")
    run.cluster.wait_for_nodes(without=before)
    tell("GCS killed, until all three hosts are there again", time.monotonic() - began)
    with opened_dashboard(run.cluster.control):
        resume_and_complete(run, "then submit --resume")
    assert run.digests() == undisturbed


def resume_and_complete(run: SubmittedRun, what: str) -> None:
    tell(what, run.go_on_after(lambda: submit_resume(run)))
    run.complete()


def submit_resume(run: SubmittedRun) -> None:
    run.cluster.control.run(f"orchestrator submit --resume {run.id} --address {DASHBOARD} --no-wait")


def host_of_a_worker(run: SubmittedRun) -> Machine:
    """A host other than the head with a training worker."""
    return next(host for host in run.cluster.site.hosts[1:] if host.processes("RayTrainWorker"))


def tell(what: str, seconds: float) -> None:
    print(f"\n{what}: {seconds:.0f} s")
