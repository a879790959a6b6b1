"""Faults: each starts a run, breaks something, and brings the run to its end as a person would.

Each function gets an episode and leaves a completed run; the accounts are looked at by the caller.
"""

import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from orchestrator.base.run_states import RunState
from tests.chaos.episode import Episode, NotHereError
from tests.chaos.hosts import Node, send, title
from tests.chaos.lent import fill, lend_postgresql, lend_small_disk
from tests.waiting import wait_until

FROZEN_S = 30.0
CUT_S = 40.0
"""Longer than the health checks of the cluster allow, so that the node counts as dead."""
AWAY_S = 60.0
SECOND_SIGNAL_S = 2.0


def worker_killed(episode: Episode) -> None:
    """A training worker is killed."""
    episode.begin()
    episode.chance.choice(episode.workers()).kill()
    episode.complete()


def worker_frozen(episode: Episode) -> None:
    """A training worker is frozen for half a minute, then goes on."""
    episode.begin()
    worker = episode.chance.choice(episode.workers())
    send(signal.SIGSTOP, [worker])
    time.sleep(FROZEN_S)
    send(signal.SIGCONT, [worker])
    episode.complete()


def node_lost_with_spare(episode: Episode) -> None:
    """The node of a training worker is gone at once; another one has room."""
    episode.begin()
    episode.hosts.kill(episode.node_of_a_worker())
    episode.complete()
    episode.hosts.add()


def node_lost_without_spare(episode: Episode) -> None:
    """The node of a training worker is gone and no other has room; half a minute later one is added."""
    episode.begin()
    workers = episode.workers()
    for node in [node for node in episode.hosts.nodes if node not in map(episode.hosts.node_of, workers)]:
        episode.hosts.kill(node)
    episode.hosts.kill(episode.hosts.node_of(episode.chance.choice(workers)))
    episode.outlast(FROZEN_S)
    while len(episode.hosts.nodes) < 3:
        episode.hosts.add()
    episode.complete()


def node_frozen(episode: Episode) -> None:
    """A node stands still for so long that it counts as dead, and comes back."""
    episode.begin()
    node = episode.node_of_a_worker()
    processes = node.processes()
    send(signal.SIGSTOP, processes)
    time.sleep(CUT_S)
    send(signal.SIGCONT, processes)
    _complete_without(node, episode)


def link_cut(episode: Episode) -> None:
    """A node's link is cut for so long that it counts as dead, while its worker runs on; then the link is mended."""
    episode.begin()
    node = episode.node_of_a_worker()
    if node.link is None:
        raise NotHereError("network namespaces need Linux, root and iproute2")
    node.link.cut()
    time.sleep(CUT_S)
    node.link.heal()
    _complete_without(node, episode)


def _complete_without(node: Node, episode: Episode) -> None:
    """Let a run complete whose node counted as dead and came back."""
    episode.complete()
    wait_until(lambda: not node.training_workers(), "a superseded worker lives on")
    episode.hosts.discard_dead()


def cluster_lost(episode: Episode) -> None:
    """Head and nodes are gone, the event queue with them: the driver ends by itself, and another cluster goes on."""
    episode.begin(at_any_phase=True)
    episode.hosts.kill_all()
    episode.end_with(5)
    assert episode.laboratory.state() == RunState.FAILED
    episode.hosts.start_all()
    episode.resume()


def registry_away(episode: Episode) -> None:
    """PostgreSQL is stopped for a minute."""
    server = lend_postgresql(episode.laboratory)
    episode.begin(at_any_phase=True)
    server.stop()
    episode.outlast(AWAY_S)
    server.start()
    episode.complete()


def disk_full(episode: Episode) -> None:
    """The disk of the run and its registry fills up; when there is room again the run is resumed."""
    filler = lend_small_disk(episode.laboratory)
    episode.begin(at_any_phase=True)
    fill(filler)
    assert episode.end_with() != 0, "a run on a full disk says that it completed"
    assert "No space left" in episode.laboratory.messages() or "is full" in episode.laboratory.messages()
    filler.unlink()
    episode.resume()


def driver_killed(episode: Episode) -> None:
    """The driver is killed, at a place of the run or before its first step."""
    episode.begin(at_any_phase=True)
    episode.kill()
    episode.resume()


def interrupted_once(episode: Episode) -> None:
    """A signal asks the driver to end; it leaves within its time and says STOPPED."""
    episode.begin(at_any_phase=True)
    episode.end_with(128 + episode.send_a_signal())
    assert episode.laboratory.state() == RunState.STOPPED
    episode.resume()


def interrupted_twice(episode: Episode) -> None:
    """A second signal makes the driver leave at once."""
    episode.begin(at_any_phase=True)
    number = episode.send_a_signal()
    with suppress(subprocess.TimeoutExpired):
        episode.driver.wait(SECOND_SIGNAL_S)
    if episode.driver.poll() is None:
        number = episode.send_a_signal()
    # Python ends by the signal itself where that comes while it shuts down; a shell shows 128 + number for both.
    episode.end_with(128 + number, -number)
    episode.resume()


def resumed_twice_at_once(episode: Episode) -> None:
    """Two people resume a lost run at the same moment; one of them goes on, the other changes nothing."""
    episode.begin()
    episode.kill()
    wait_until(lambda: episode.laboratory.state() == RunState.LOST, "a dead driver's run does not read LOST")
    run_id = episode.laboratory.run_id()
    both = [episode.laboratory.start("resume", run_id) for _ in range(2)]
    statuses = [episode.end_with(0, 1, 2, driver=each) for each in both]
    episode.details.append(f"statuses {statuses}")
    assert 0 in statuses, f"neither completed:\n{episode.laboratory.messages()}"
    episode.resume()


def process_killed(episode: Episode, begins: str, number: int | None) -> None:
    """So many processes of the nodes are killed whose title begins so: that of a running trial, those of students."""
    episode.begin()
    processes = [each for node in episode.hosts.nodes for each in node.processes() if title(each).startswith(begins)]
    for process in processes[:number]:
        process.kill()
    episode.complete()


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
    "trial's process killed": ("sweep", partial(process_killed, begins="ray::ImplicitFunc", number=1)),
    "sweep: driver killed": ("sweep", driver_killed),
    "sweep: signal once": ("sweep", interrupted_once),
    "sweep: signal twice": ("sweep", interrupted_twice),
    "sweep: cluster lost": ("sweep", cluster_lost),
    "sweep: registry away 60 s": ("sweep", registry_away),
    "student's process killed": ("distill", partial(process_killed, begins="ray::_work", number=None)),
    "distillation: driver killed": ("distill", driver_killed),
    "distillation: signal once": ("distill", interrupted_once),
    "distillation: signal twice": ("distill", interrupted_twice),
}
"""Name of each fault, the kind of run that it happens to, and the function that does it."""
