"""Faults: each starts a run, breaks something, and brings the run to its end as a person would.

Each function gets an episode and leaves a completed run; the accounts are looked at by the caller.
"""

import subprocess
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

from orchestrator.run_states import RunState
from tests.chaos.disks import lend_small_disk
from tests.chaos.episode import Episode, NotHereError
from tests.chaos.hosts import freeze, thaw, title
from tests.chaos.servers import lend_postgresql
from tests.waiting import PATIENCE_S, wait_until

FROZEN_S = 30.0
CUT_S = 40.0
"""Longer than the health checks of the cluster allow, so that the node counts as dead."""
AWAY_S = 60.0
SECOND_SIGNAL_S = 2.0


def worker_killed(episode: Episode) -> None:
    """A training worker is killed."""
    driver = episode.laboratory.run()
    episode.reach_a_place(driver)
    episode.chance.choice(episode.workers()).kill()
    episode.complete(driver)


def worker_frozen(episode: Episode) -> None:
    """A training worker is frozen for half a minute, then goes on."""
    driver = episode.laboratory.run()
    episode.reach_a_place(driver)
    worker = episode.chance.choice(episode.workers())
    freeze([worker])
    time.sleep(FROZEN_S)
    thaw([worker])
    episode.complete(driver)


def node_lost_with_spare(episode: Episode) -> None:
    """The node of a training worker is gone at once; another one has room."""
    driver = episode.laboratory.run()
    episode.reach_a_place(driver)
    episode.hosts.kill(episode.hosts.node_of(episode.chance.choice(episode.workers())))
    episode.complete(driver)
    episode.hosts.add()


def node_lost_without_spare(episode: Episode) -> None:
    """The node of a training worker is gone and no other has room; half a minute later one is added."""
    driver = episode.laboratory.run()
    episode.reach_a_place(driver)
    workers = episode.workers()
    for node in [node for node in episode.hosts.nodes if node not in map(episode.hosts.node_of, workers)]:
        episode.hosts.kill(node)
    episode.hosts.kill(episode.hosts.node_of(episode.chance.choice(workers)))
    time.sleep(FROZEN_S)
    assert driver.poll() is None, f"the driver gave up:\n{episode.laboratory.messages()}"
    while len(episode.hosts.nodes) < 3:
        episode.hosts.add()
    episode.complete(driver)


def node_frozen(episode: Episode) -> None:
    """A node stands still for so long that it counts as dead, and comes back."""
    driver = episode.laboratory.run()
    episode.reach_a_place(driver)
    node = episode.hosts.node_of(episode.chance.choice(episode.workers()))
    processes = node.processes()
    freeze(processes)
    time.sleep(CUT_S)
    thaw(processes)
    episode.complete(driver)
    wait_until(lambda: not node.training_workers(), "a superseded worker lives on")
    episode.hosts.discard_dead()


def link_cut(episode: Episode) -> None:
    """A node's link is cut for so long that it counts as dead, while its worker runs on; then the link is mended."""
    driver = episode.laboratory.run()
    episode.reach_a_place(driver)
    node = episode.hosts.node_of(episode.chance.choice(episode.workers()))
    if node.link is None:
        raise NotHereError("network namespaces need Linux, root and iproute2")
    node.link.cut()
    time.sleep(CUT_S)
    node.link.heal()
    episode.complete(driver)
    wait_until(lambda: not node.training_workers(), "a superseded worker lives on")
    episode.hosts.discard_dead()


def cluster_lost(episode: Episode) -> None:
    """Head and nodes are gone, the event queue with them: the driver ends by itself, and another cluster goes on."""
    driver = episode.laboratory.run()
    episode.reach_a_phase(driver)
    episode.hosts.kill_all()
    status = episode.wait_for_the_end(driver)
    assert status == 5, f"status {status}:\n{episode.laboratory.messages()}"
    assert episode.laboratory.state() == RunState.FAILED
    episode.hosts.start_all()
    episode.resume()


def registry_away(episode: Episode) -> None:
    """PostgreSQL is stopped for a minute."""
    server = lend_postgresql(episode.laboratory)
    driver = episode.laboratory.run()
    episode.reach_a_phase(driver)
    server.stop()
    time.sleep(AWAY_S)
    assert driver.poll() is None, f"the driver gave up:\n{episode.laboratory.messages()}"
    server.start()
    episode.complete(driver)


def disk_full(episode: Episode) -> None:
    """The disk of the run and its registry fills up; when there is room again the run is resumed."""
    disk = lend_small_disk(episode.laboratory)
    driver = episode.laboratory.run()
    episode.reach_a_phase(driver)
    disk.fill()
    status = episode.wait_for_the_end(driver)
    assert status != 0, "a run on a full disk says that it completed"
    assert "No space left" in episode.laboratory.messages() or "is full" in episode.laboratory.messages()
    disk.free()
    episode.resume()


def driver_killed(episode: Episode) -> None:
    """The driver is killed, at a place of the run or before its first step."""
    driver = episode.laboratory.run()
    episode.reach_a_phase(driver)
    episode.kill(driver)
    episode.resume()


def interrupted_once(episode: Episode) -> None:
    """A signal asks the driver to end; it leaves within its time and says STOPPED."""
    driver = episode.laboratory.run()
    episode.reach_a_phase(driver)
    number = episode.send_a_signal(driver)
    status = driver.wait(PATIENCE_S)
    assert status == 128 + number, f"status {status} after signal {number}:\n{episode.laboratory.messages()}"
    assert episode.laboratory.state() == RunState.STOPPED
    episode.resume()


def interrupted_twice(episode: Episode) -> None:
    """A second signal makes the driver leave at once."""
    driver = episode.laboratory.run()
    episode.reach_a_phase(driver)
    number = episode.send_a_signal(driver)
    with suppress(subprocess.TimeoutExpired):
        driver.wait(SECOND_SIGNAL_S)
    if driver.poll() is None:
        number = episode.send_a_signal(driver)
    status = driver.wait(PATIENCE_S)
    # Python ends by the signal itself where that comes while it shuts down; a shell shows 128 + number for both.
    assert status in (128 + number, -number), f"status {status} after {number}:\n{episode.laboratory.messages()}"
    episode.resume()


def resumed_twice_at_once(episode: Episode) -> None:
    """Two people resume a lost run at the same moment; one of them goes on, the other changes nothing."""
    driver = episode.laboratory.run()
    episode.reach_a_place(driver)
    episode.kill(driver)
    wait_until(lambda: episode.laboratory.state() == RunState.LOST, "a dead driver's run does not read LOST")
    run_id = episode.laboratory.run_id()
    statuses = [each.wait(PATIENCE_S) for each in [episode.laboratory.start("resume", run_id) for _ in range(2)]]
    episode.details.append(f"statuses {statuses}")
    assert 0 in statuses, f"neither completed:\n{episode.laboratory.messages()}"
    assert set(statuses) <= {0, 1, 2}, statuses
    episode.resume()


def trial_killed(episode: Episode) -> None:
    """The process of a running trial is killed."""
    driver = episode.laboratory.run()
    episode.reach_a_place(driver)
    for process in _processes(episode, "ray::ImplicitFunc")[:1]:
        process.kill()
    episode.complete(driver)


def student_killed(episode: Episode) -> None:
    """The process of a student is killed."""
    driver = episode.laboratory.run()
    episode.reach_a_place(driver)
    for process in _processes(episode, "ray::_work"):
        process.kill()
    episode.complete(driver)


def _processes(episode: Episode, name: str) -> list[psutil.Process]:
    """Processes of the nodes whose title begins so."""
    return [each for node in episode.hosts.nodes for each in node.processes() if title(each).startswith(name)]


FAULTS: dict[str, tuple[str, Callable[[Episode], None]]] = {
    "worker killed": ("pretrain", worker_killed),
    "worker frozen 30 s": ("pretrain", worker_frozen),
    "node lost, spare there": ("pretrain", node_lost_with_spare),
    "node lost, no spare": ("pretrain", node_lost_without_spare),
    "node silent 40 s": ("pretrain", node_frozen),
    "link cut 40 s": ("pretrain", link_cut),
    "cluster lost": ("pretrain", cluster_lost),
    "registry away 60 s": ("pretrain", registry_away),
    "disk full": ("pretrain", disk_full),
    "driver killed": ("pretrain", driver_killed),
    "signal once": ("pretrain", interrupted_once),
    "signal twice": ("pretrain", interrupted_twice),
    "two resumes at once": ("pretrain", resumed_twice_at_once),
    "trial's process killed": ("sweep", trial_killed),
    "sweep: driver killed": ("sweep", driver_killed),
    "sweep: signal once": ("sweep", interrupted_once),
    "sweep: signal twice": ("sweep", interrupted_twice),
    "sweep: cluster lost": ("sweep", cluster_lost),
    "sweep: registry away 60 s": ("sweep", registry_away),
    "student's process killed": ("distill", student_killed),
    "distillation: driver killed": ("distill", driver_killed),
    "distillation: signal once": ("distill", interrupted_once),
    "distillation: signal twice": ("distill", interrupted_twice),
}
"""Name of each fault, the kind of run that it happens to, and the function that does it."""
