"""An episode: one run that a fault happens to, and how it is brought to its end as a person would."""

import os
import random
import signal
import subprocess
import time
from dataclasses import dataclass, field

import psutil

from orchestrator.run_states import RunState
from tests.chaos.hosts import Hosts
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

    @property
    def hosts(self) -> Hosts:
        """The cluster of the run."""
        return self.laboratory.hosts

    def reach_a_place(self, driver: Driver) -> int:
        """Wait for a place of the run that chance chooses; returns the progress then."""
        kind, progress = self.laboratory.kind, self.laboratory.progress
        place = self.chance.randint(1, LAST_PLACE[kind])
        self.details.append(f"{MEASURE[kind]} {place}")
        wait_until(lambda: progress() >= place or driver.poll() is not None, f"{place} is never reached")
        assert driver.poll() is None, f"the driver ended before the fault:\n{self.laboratory.messages()}"
        return progress()

    def reach_a_phase(self, driver: Driver) -> int:
        """Wait for a place of the run, or for a moment before its first step; returns the progress then."""
        if self.chance.random() >= 0.3:
            return self.reach_a_place(driver)
        self.details.append("before the first step")
        state = self.laboratory.state
        wait_until(lambda: state() is not None or driver.poll() is not None, "no run is recorded")
        time.sleep(self.chance.uniform(0, 5))
        return self.laboratory.progress()

    def workers(self) -> list[psutil.Process]:
        """The two training workers."""
        wait_until(lambda: len(self.hosts.training_workers()) >= 2, "the training workers are not found")
        return self.hosts.training_workers()

    def send_a_signal(self, driver: Driver) -> int:
        """Send the driver one of the signals that ask it to end; returns its number."""
        number = self.chance.choice(SIGNALS)
        self.details.append(number.name)
        os.kill(driver.pid, number)
        return number

    def kill(self, driver: Driver) -> None:
        """End a driver at once, with what it has started on its machine."""
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()

    def complete(self, driver: Driver, place: int | None = None) -> None:
        """Wait until a driver ends well; tell how long it took from now until there was progress beyond a place.

        Args:
            place: progress before; what is recorded after some seconds when left out, since records lag behind.
        """
        broke_at, progress = time.monotonic(), self.laboratory.progress
        if place is None:
            time.sleep(LAG_S)
            place = progress()
        wait_until(lambda: progress() > place or driver.poll() is not None, "the run does not go on")
        self.seconds_to_recover = time.monotonic() - broke_at
        status = driver.wait(PATIENCE_S)
        assert status == 0, f"status {status}:\n{self.laboratory.messages()}"

    def wait_for_the_end(self, driver: Driver) -> int:
        """Wait until a driver ends by itself; returns its exit status."""
        try:
            return driver.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the driver does not end:\n{self.laboratory.messages()}") from None

    def resume(self) -> None:
        """Resume the run to its end; a run whose driver was killed is given the time to count as lost."""
        state = self.laboratory.state
        wait_until(lambda: state() != RunState.RUNNING, "a dead driver's run stays RUNNING")
        # The fault may have come before the run was recorded.
        words = ["resume", self.laboratory.run_id()] if state() else ["run", f"{self.laboratory.kind}.yaml"]
        place = self.laboratory.progress()
        self.complete(self.laboratory.start(*words), place)
