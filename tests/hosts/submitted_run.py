"""A run on a cluster of hosts: handed in from the control machine, and watched by the checkpoints that it writes."""

import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.storage import digest_file
from orchestrator.training.checkpoints import Checkpoints
from tests.hosts.ray_cluster import DASHBOARD, RayCluster
from tests.waiting import wait_until

STEPS = 60
CHECKPOINT_EVERY = 5
TOKENIZER = "/srv/lab/tokenizers/made"
SPEC = (
    f"experiments/pretrain_tiny_wikipedia.yaml 'corpus.files=[/srv/lab/data/pretrain]' tokenizer={TOKENIZER} "
    f"steps={STEPS} execution.num_workers=2 execution.placement=spread "
    f"execution.checkpoint_every_steps={CHECKPOINT_EVERY}"
)


def write_text(folder: Path) -> None:
    """Write a text of 4,000 sentences, of words that nobody has heard."""
    folder.mkdir(parents=True)
    generator = random.Random(20261122)
    words = [a + b + c for a in "bdkmst" for b in "aeiou" for c in ("n", "rt", "sk", "l")]
    sentences = (" ".join(generator.choices(words, k=8)).capitalize() + "." for _ in range(4000))
    (folder / "text.txt").write_text("\n\n".join(" ".join(next(sentences) for _ in range(8)) for _ in range(500)))


@dataclass(frozen=True)
class SubmittedRun:
    """A run that was handed in."""

    cluster: RayCluster
    id: str
    began: float
    """Monotonic time at which it was handed in, in seconds."""

    @property
    def checkpoints(self) -> Checkpoints:
        """Its checkpoints, as this machine sees them."""
        return Checkpoints(str(self.cluster.site.shared / "storage" / "runs" / self.id))

    @property
    def step(self) -> int:
        """Step of its newest checkpoint; 0 where there is none."""
        return self.checkpoints.newest_step() or 0

    def reach(self, step: int) -> float:
        """Wait for a checkpoint of this step or a later one; returns the seconds since it was handed in."""
        wait_until(lambda: self.step >= step, f"run {self.id} never saves step {step}")
        return time.monotonic() - self.began

    def go_on_after(self, fault: Callable[[], None]) -> float:
        """Inflict a fault; returns the seconds from there to the next new checkpoint."""
        began, step = time.monotonic(), self.step
        fault()
        self.reach(step + CHECKPOINT_EVERY)
        return time.monotonic() - began

    def complete(self, job: str | None = None) -> None:
        """Wait for its end, which must be a good one."""
        self.cluster.control.run(f"orchestrator wait {job or self.id} --address {DASHBOARD}")

    def digests(self) -> tuple[str, str]:
        """SHA-256 of weights and optimizer after the last step."""
        newest = self.checkpoints.newest_first()[0]
        assert newest.step == STEPS
        folder = self.cluster.site.shared / Path(newest.path).relative_to("/srv/lab")
        return digest_file(str(folder / "model.safetensors")), digest_file(str(folder / "optimizer.safetensors"))

    def kill_driver(self) -> None:
        """End its driver on the head at once, with what began it."""
        drivers = self.cluster.head.processes(self.id)
        assert drivers, f"run {self.id} has no driver on the head"
        for driver in drivers:
            driver.kill()


def submit(cluster: RayCluster, what: str = SPEC) -> SubmittedRun:
    """Hand a run in, and leave as soon as it is accepted."""
    began = time.monotonic()
    said = cluster.control.run(f"orchestrator submit {what} --address {DASHBOARD} --no-wait")
    return SubmittedRun(cluster, re.findall(r"(?m)^[0-9a-f]{12}$", said)[0], began)
