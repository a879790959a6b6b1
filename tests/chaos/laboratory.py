"""The laboratory of an episode: inputs, small specs, and drivers as processes of their own."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.registry import Registry
from orchestrator.run_states import RunState
from tests.waiting import PATIENCE_S, wait_until

PRETRAIN = """
kind: pretrain
name: chaos
corpus: {files: [corpus.txt]}
tokenizer: words
validation_fraction: 0.1
shard_bytes: 2048
model: {hidden_size: 64, num_hidden_layers: 2, num_attention_heads: 2}
steps: 80
phases: [{max_seq_length: 48, share: 0.75}, {max_seq_length: 96, share: 0.25}]
global_batch_size: 32
execution:
  {num_workers: 2, cpus_per_worker: 2, checkpoint_every_steps: 10, log_every_steps: 1, evaluate_every_steps: 20,
   max_failures: 10}
"""
SWEEP = """
kind: sweep
name: chaos
task: {id: own, head: classification, text_columns: [text], files: {train: train.csv, validation: dev.csv}}
recipe: {tokenizer: words, epochs: 4, batch_size: 8, max_seq_length: 32}
space: {learning_rate: [1.0e-3, 3.0e-3]}
seeds: [0, 1]
"""
SPECS = {"pretrain": PRETRAIN, "sweep": SWEEP}
NUM_STEPS = 80


def write_inputs(folder: Path) -> None:
    """Write a corpus, a tokenizer, a labeled task and the specs, the same at each call."""
    from bert_core.text.tokenizer_training import train_wordpiece

    generator = random.Random(20261122)
    words = [a + b + c for a in "bdkm" for b in "aeiou" for c in ("n", "rt", "sk")]
    documents = []
    for _ in range(300):
        theme = generator.sample(words, 3)
        documents.append(" ".join(f"{' '.join(generator.choices(theme, k=6)).capitalize()}." for _ in range(6)))
    (folder / "corpus.txt").write_text("\n\n".join(documents) + "\n")
    train_wordpiece(documents, vocab_size=200, min_frequency=1).save(folder / "words")
    for name, count in (("train", 64), ("dev", 32)):
        rows = [
            f"{' '.join(generator.choices(words[:30] if i % 2 else words[30:], k=6))},{i % 2}" for i in range(count)
        ]
        (folder / f"{name}.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    for kind, text in SPECS.items():
        (folder / f"{kind}.yaml").write_text(text)


@dataclass
class Laboratory:
    """One home of the command line, with a cluster to run on."""

    inputs: Path
    home: Path
    address: str
    registry: str = ""
    """URL of the registry; the home's own SQLite file when empty."""
    environment: Mapping[str, str] = field(default_factory=dict)
    _drivers: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start `orchestrator ARGUMENTS` as a process with a session of its own; its messages go to a file."""
        self.home.mkdir(parents=True, exist_ok=True)
        options = ["--home", str(self.home), "--address", self.address]
        options += ["--registry", self.registry] if self.registry else []
        with (self.home / "driver.log").open("ab") as log:
            driver = subprocess.Popen(
                [str(Path(sys.executable).with_name("orchestrator")), *options, *arguments],
                cwd=self.inputs,
                env={**os.environ, **self.environment},
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        self._drivers.append(driver)
        return driver

    def finish(self, *arguments: str) -> int:
        """Run `orchestrator ARGUMENTS` to its end; returns the exit status."""
        return self.start(*arguments).wait(PATIENCE_S)

    def open_registry(self) -> Registry:
        """The laboratory's registry."""
        return Registry(self.registry or str(self.home / "registry.sqlite"))

    def run_id(self) -> str:
        """Id of the laboratory's one run."""
        with self.open_registry() as registry:
            (run_id,) = registry.runs(trials=False)["id"]
        return str(run_id)

    def state(self) -> RunState | None:
        """State of the run; None while there is none."""
        if not self.registry and not (self.home / "registry.sqlite").exists():
            return None
        with self.open_registry() as registry:
            states = list(registry.runs(trials=False)["state"])
        return RunState(states[0]) if states else None

    def num_steps(self) -> int:
        """Number of steps that are recorded so far."""
        if self.state() is None:
            return 0
        with self.open_registry() as registry:
            steps = registry.metrics.history(self.run_id(), "train.mlm_loss")["step"]
        return 0 if steps.empty else int(steps.max())

    def num_trials_ended(self) -> int:
        """Number of a sweep's trials that are recorded as completed."""
        if self.state() is None:
            return 0
        with self.open_registry() as registry:
            return len(registry.runs("kind = 'trial' and state = 'COMPLETED'"))

    def wait_for_step(self, step: int, driver: "subprocess.Popen[bytes]") -> None:
        """Wait until a step is recorded."""
        wait_until(lambda: self.num_steps() >= step or driver.poll() is not None, f"step {step} is never reached")
        assert driver.poll() is None, f"the driver ended before step {step}:\n{self.messages()}"

    def messages(self) -> str:
        """What the drivers said."""
        return (self.home / "driver.log").read_text(errors="replace")[-3000:]

    def close(self) -> None:
        """End the drivers that still run."""
        for driver in self._drivers:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
