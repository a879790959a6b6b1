"""An episode: one run that a fault happens to, and how it is brought to its end as a person would."""

import os
import random
import signal
import subprocess
import time
from dataclasses import dataclass, field

import psutil

from orchestrator.base.run_states import RunState
from tests.chaos.hosts import Hosts, Node
from tests.chaos.laboratory import LAST_PLACE, MEASURE, Driver, Laboratory
from tests.waiting import PATIENCE_S, wait_until

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LAG_S = 3.0
"""Longest time from a step to its record."""


class NotHereError(Exception):
    """Raised where this machine lacks what a fault needs."""


@dataclass
class Episode:
    """One run that a fault happens to, and what there is to choose from."""

    laboratory: Laboratory
    chance: random.Random
    details: list[str] = field(default_factory=list)
    """Choices of chance, to be told beside the seed."""
    seconds_to_recover: float | None = None
    """Seconds from the end of the fault to the next progress that is recorded; None where nothing was left to do."""
    driver: Driver = field(init=False)
    """Driver that was started last."""

    @property
    def hosts(self) -> Hosts:
        """The cluster of the run."""
        return self.laboratory.hosts

    def begin(self, *, at_any_phase: bool = False) -> None:
        """Start the run and wait for a place that chance chooses: a moment before the first step too, if asked."""
        self.driver, progress = self.laboratory.run(), self.laboratory.progress
        if at_any_phase and self.chance.random() < 0.3:
            self.details.append("before the first step")
            state = self.laboratory.state
            wait_until(lambda: state() is not None or self.driver.poll() is not None, "no run is recorded")
            time.sleep(self.chance.uniform(0, 5))
            return
        place = self.chance.randint(1, LAST_PLACE[self.laboratory.kind])
        self.details.append(f"{MEASURE[self.laboratory.kind]} {place}")
        wait_until(lambda: progress() >= place or self.driver.poll() is not None, f"{place} is never reached")
        self.outlast(0)

    def outlast(self, seconds: float) -> None:
        """Let some time pass in which the driver may not end."""
        time.sleep(seconds)
        assert self.driver.poll() is None, f"the driver gave up:\n{self.laboratory.messages()}"

    def workers(self) -> list[psutil.Process]:
        """The two training workers."""
        wait_until(lambda: len(self.hosts.training_workers()) >= 2, "the training workers are not found")
        return self.hosts.training_workers()

    def node_of_a_worker(self) -> Node:
        """The node of a training worker that chance chooses."""
        return self.hosts.node_of(self.chance.choice(self.workers()))

    def send_a_signal(self) -> int:
        """Send the driver one of the signals that ask it to end; returns its number."""
        number = self.chance.choice(SIGNALS)
        self.details.append(number.name)
        os.kill(self.driver.pid, number)
        return number

    def kill(self) -> None:
        """End the driver at once, with what it has started on its machine."""
        os.killpg(self.driver.pid, signal.SIGKILL)
        self.driver.wait()

    def end_with(self, *statuses: int, driver: Driver | None = None) -> int:
        """Wait until a driver ends by itself, with one of some exit statuses where any are named; returns its own."""
        try:
            status = (driver or self.driver).wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the driver does not end:\n{self.laboratory.messages()}") from None
        assert not statuses or status in statuses, f"status {status}:\n{self.laboratory.messages()}"
        return status

    def complete(self, place: int | None = None) -> None:
        """Wait until the driver ends well; tell how long it took from now until there was progress beyond a place.

        Args:
            place: progress before; what is recorded after some seconds when left out, since records lag behind.
        """
        broke_at, progress = time.monotonic(), self.laboratory.progress
        if place is None:
            time.sleep(LAG_S)
            place = progress()
        wait_until(lambda: progress() > place or self.driver.poll() is not None, "the run does not go on")
        self.seconds_to_recover = time.monotonic() - broke_at
        self.end_with(0)

    def resume(self) -> None:
        """Resume the run to its end; a run whose driver was killed is given the time to count as lost."""
        state = self.laboratory.state
        wait_until(lambda: state() != RunState.RUNNING, "a dead driver's run stays RUNNING")
        # The fault may have come before the run was recorded.
        words = ["resume", self.laboratory.run_id()] if state() else ["run", f"{self.laboratory.kind}.yaml"]
        place = self.laboratory.progress()
        self.driver = self.laboratory.start(*words)
        self.complete(place)
