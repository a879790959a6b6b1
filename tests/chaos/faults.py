"""Faults: each starts a run, breaks something, and brings the run to its end as a person would.

Each function gets an episode and leaves a completed run; the accounts are looked at by the caller.
"""

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import psutil

from orchestrator.run_states import RunState
from tests.chaos.hosts import Hosts, freeze, is_training_worker, processes_of, thaw
from tests.chaos.laboratory import NUM_STEPS, Laboratory
from tests.waiting import PATIENCE_S, wait_until

Driver = subprocess.Popen[bytes]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FROZEN_S = 30.0
CUT_S = 40.0
"""Longer than the health checks of the cluster allow, so that the node counts as dead."""
AWAY_S = 60.0
SECOND_SIGNAL_S = 2.0
NUM_TRIALS = 4


@dataclass
class Episode:
    """One run that a fault happens to, and what there is to choose from."""

    kind: str
    laboratory: Laboratory
    hosts: Hosts
    chance: random.Random
    details: list[str] = field(default_factory=list)
    """What was chosen, to be told beside the seed."""
    seconds_to_recover: float | None = None
    """From the fault to the next progress that is recorded; None where nothing was left to do."""

    def run(self) -> Driver:
        """Start the episode's run."""
        return self.laboratory.start("run", f"{self.kind}.yaml")

    def progress(self) -> int:
        """Steps of a pretraining, or ended trials of a sweep, that are recorded."""
        return self.laboratory.num_steps() if self.kind == "pretrain" else self.laboratory.num_trials_ended()

    def reach_a_place(self, driver: Driver) -> int:
        """Wait for a place of the run that chance chooses; returns the progress then."""
        most = NUM_STEPS - 10 if self.kind == "pretrain" else NUM_TRIALS - 1
        place = self.chance.randint(1, most)
        self.details.append(f"{'step' if self.kind == 'pretrain' else 'trial'} {place}")
        wait_until(lambda: self.progress() >= place or driver.poll() is not None, f"{place} is never reached")
        assert driver.poll() is None, f"the driver ended before the fault:\n{self.laboratory.messages()}"
        return self.progress()

    def complete(self, driver: Driver, place: int | None = None) -> None:
        """Wait until a driver ends well; tell how long it took from now until there was progress beyond a place."""
        broke_at = time.monotonic()
        if place is not None:
            wait_until(lambda: self.progress() > place or driver.poll() is not None, "the run does not go on")
            self.seconds_to_recover = time.monotonic() - broke_at
        status = driver.wait(PATIENCE_S)
        assert status == 0, f"status {status}:\n{self.laboratory.messages()}"

    def resume(self, place: int | None = None) -> None:
        """Resume the run to its end; a run whose driver was killed is given the time to count as lost."""
        wait_until(lambda: self.laboratory.state() != RunState.RUNNING, "a dead driver's run stays RUNNING")
        self.complete(self.laboratory.start("resume", self.laboratory.run_id()), place)


def worker_killed(episode: Episode) -> None:
    """A training worker is killed."""
    driver = episode.run()
    place = episode.reach_a_place(driver)
    episode.chance.choice(_workers(episode)).kill()
    episode.complete(driver, place)


def worker_frozen(episode: Episode) -> None:
    """A training worker is frozen for half a minute, then goes on."""
    driver = episode.run()
    place = episode.reach_a_place(driver)
    with _frozen([episode.chance.choice(_workers(episode))], FROZEN_S):
        pass
    episode.complete(driver, place)


def node_lost_with_spare(episode: Episode) -> None:
    """The node of a training worker is gone at once; another one has room."""
    driver = episode.run()
    place = episode.reach_a_place(driver)
    episode.hosts.kill(episode.hosts.node_of(episode.chance.choice(_workers(episode))))
    episode.complete(driver, place)
    episode.hosts.add()


def node_lost_without_spare(episode: Episode) -> None:
    """The node of a training worker is gone and no other has room; half a minute later one is added."""
    driver = episode.run()
    place = episode.reach_a_place(driver)
    workers = _workers(episode)
    for node in [node for node in episode.hosts.nodes if node not in map(episode.hosts.node_of, workers)]:
        episode.hosts.kill(node)
    episode.hosts.kill(episode.hosts.node_of(episode.chance.choice(workers)))
    time.sleep(FROZEN_S)
    assert driver.poll() is None, f"the driver gave up:\n{episode.laboratory.messages()}"
    while len(episode.hosts.nodes) < 3:
        episode.hosts.add()
    episode.complete(driver, place)


def node_frozen(episode: Episode) -> None:
    """A node is silent for so long that it counts as dead, and comes back: what a cut link looks like."""
    driver = episode.run()
    place = episode.reach_a_place(driver)
    node = episode.hosts.node_of(episode.chance.choice(_workers(episode)))
    with _frozen(processes_of(node), CUT_S):
        pass
    episode.complete(driver, place)
    wait_until(lambda: not any(map(is_training_worker, processes_of(node))), "a superseded worker lives on")
    episode.hosts.discard_dead()


def driver_killed(episode: Episode) -> None:
    """The driver is killed, at a place of the run or before its first step."""
    driver = episode.run()
    place = _reach_a_phase(episode, driver)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    episode.resume(place)


def interrupted_once(episode: Episode) -> None:
    """A signal asks the driver to end; it leaves within its time and says STOPPED."""
    driver = episode.run()
    place = _reach_a_phase(episode, driver)
    number = _send_a_signal(episode, driver)
    status = driver.wait(PATIENCE_S)
    assert status == 128 + number, f"status {status} after signal {number}:\n{episode.laboratory.messages()}"
    assert episode.laboratory.state() == RunState.STOPPED
    episode.resume(place)


def interrupted_twice(episode: Episode) -> None:
    """A second signal makes the driver leave at once."""
    driver = episode.run()
    place = _reach_a_phase(episode, driver)
    number = _send_a_signal(episode, driver)
    with suppress(subprocess.TimeoutExpired):
        driver.wait(SECOND_SIGNAL_S)
    if driver.poll() is None:
        number = _send_a_signal(episode, driver)
    status = driver.wait(PATIENCE_S)
    # Python ends by the signal itself where that comes while it shuts down; a shell shows 128 + number for both.
    assert status in (128 + number, -number), f"status {status} after {number}:\n{episode.laboratory.messages()}"
    episode.resume(place)


def resumed_twice_at_once(episode: Episode) -> None:
    """Two people resume a lost run at the same moment; one of them goes on, the other changes nothing."""
    driver = episode.run()
    place = episode.reach_a_place(driver)
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    wait_until(lambda: episode.laboratory.state() == RunState.LOST, "a dead driver's run does not read LOST")
    run_id = episode.laboratory.run_id()
    statuses = [each.wait(PATIENCE_S) for each in [episode.laboratory.start("resume", run_id) for _ in range(2)]]
    episode.details.append(f"statuses {statuses}")
    assert 0 in statuses, f"neither completed:\n{episode.laboratory.messages()}"
    assert set(statuses) <= {0, 1, 2}, statuses
    episode.resume(place)


def trial_worker_killed(episode: Episode) -> None:
    """The process of a running trial is killed."""
    driver = episode.run()
    place = episode.reach_a_place(driver)
    trials = [process for node in episode.hosts.nodes for process in processes_of(node) if _is_trial(process)]
    for process in trials[:1]:
        process.kill()
    episode.complete(driver, place)


FAULTS: dict[str, tuple[str, Callable[[Episode], None]]] = {
    "worker killed": ("pretrain", worker_killed),
    "worker frozen 30 s": ("pretrain", worker_frozen),
    "node lost, spare there": ("pretrain", node_lost_with_spare),
    "node lost, no spare": ("pretrain", node_lost_without_spare),
    "node silent 40 s": ("pretrain", node_frozen),
    "driver killed": ("pretrain", driver_killed),
    "signal once": ("pretrain", interrupted_once),
    "signal twice": ("pretrain", interrupted_twice),
    "two resumes at once": ("pretrain", resumed_twice_at_once),
    "trial's process killed": ("sweep", trial_worker_killed),
    "sweep: driver killed": ("sweep", driver_killed),
    "sweep: signal once": ("sweep", interrupted_once),
    "sweep: signal twice": ("sweep", interrupted_twice),
}
"""Name of each fault, the kind of run that it happens to, and the function that does it."""


def _workers(episode: Episode) -> list[psutil.Process]:
    wait_until(lambda: len(episode.hosts.training_workers()) >= 2, "the training workers are not found")
    return episode.hosts.training_workers()


def _reach_a_phase(episode: Episode, driver: Driver) -> int:
    """Wait for the run to be recorded, or for a place in it; returns the progress then."""
    if episode.chance.random() < 0.3:
        episode.details.append("before the first step")
        wait_until(lambda: episode.laboratory.state() is not None or driver.poll() is not None, "no run is recorded")
        time.sleep(episode.chance.uniform(0, 5))
        return episode.progress()
    return episode.reach_a_place(driver)


def _send_a_signal(episode: Episode, driver: Driver) -> int:
    number = episode.chance.choice(SIGNALS)
    episode.details.append(number.name)
    os.kill(driver.pid, number)
    return number


@contextmanager
def _frozen(processes: list[psutil.Process], seconds: float) -> Iterator[None]:
    freeze(processes)
    try:
        time.sleep(seconds)
        yield
    finally:
        thaw(processes)


def _is_trial(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        title = " ".join(process.cmdline())
        return title.startswith("ray::ImplicitFunc") or "Trainable" in title
    return False
