"""The laboratory of an episode: inputs, small specs, and drivers as processes of their own."""

import os
import random
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.base.run_states import RunState
from orchestrator.registry import Registry
from tests.chaos.hosts import Hosts

Driver = subprocess.Popen[bytes]
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
DISTILL = """
kind: distill
name: chaos
teacher: teacher
num_hidden_layers: 1
task: {id: own, head: classification, text_columns: [text], files: {train: train.csv, validation: dev.csv}}
recipe: {epochs: 24, batch_size: 8, max_seq_length: 32, learning_rate: 1.0e-3, evaluations_per_epoch: 2}
execution: {max_failures: 3}
"""
SPECS = {"pretrain": PRETRAIN, "sweep": SWEEP, "distill": DISTILL}
MEASURE = {"pretrain": "step", "sweep": "trial", "distill": "evaluation"}
"""Unit in which the progress of each kind of run is counted."""
LAST_PLACE = {"pretrain": 70, "sweep": 3, "distill": 40}
"""Progress at which something is left to do for a run of each kind."""


def write_inputs(folder: Path) -> None:
    """Write a corpus, a tokenizer, a labeled task, a teacher and the specs, the same at each call."""
    from bert_core import BertConfig, BertForSequenceClassification
    from bert_core.text.tokenizer_training import train_wordpiece

    generator = random.Random(20261122)
    words = [a + b + c for a in "bdkm" for b in "aeiou" for c in ("n", "rt", "sk")]
    documents = []
    for _ in range(300):
        theme = generator.sample(words, 3)
        documents.append(" ".join(f"{' '.join(generator.choices(theme, k=6)).capitalize()}." for _ in range(6)))
    (folder / "corpus.txt").write_text("\n\n".join(documents) + "\n")
    tokenizer = train_wordpiece(documents, vocab_size=200, min_frequency=1)
    config = BertConfig.from_size("tiny", vocab_size=tokenizer.vocab_size).with_labels(["0", "1"])
    BertForSequenceClassification.from_config(config, seed=1).save_pretrained(folder / "teacher")
    for name in ("words", "teacher"):
        tokenizer.save(folder / name)
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
    kind: str
    """Kind of its one run."""
    hosts: Hosts
    registry: str = ""
    """URL of the registry; the home's own SQLite file when empty."""
    lent: ExitStack = field(default_factory=ExitStack)
    """Servers and mounted disks that are given back at the end."""
    _drivers: list[Driver] = field(default_factory=list)

    def start(self, *arguments: str) -> Driver:
        """Start `orchestrator ARGUMENTS` as a process with a session of its own; its messages go to a file."""
        self.home.mkdir(parents=True, exist_ok=True)
        options = ["--home", str(self.home), "--address", self.hosts.address]
        options += ["--registry", self.registry] if self.registry else []
        with self._log.open("ab") as log:
            driver = subprocess.Popen(
                [str(Path(sys.executable).with_name("orchestrator")), *options, *arguments],
                cwd=self.inputs,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        self._drivers.append(driver)
        return driver

    def run(self) -> Driver:
        """Start the laboratory's run."""
        return self.start("run", f"{self.kind}.yaml")

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

    def progress(self) -> int:
        """Number of steps, trials that ended, or evaluations that are recorded so far, by the run's kind."""
        if self.state() is None:
            return 0
        with self.open_registry() as registry:
            if self.kind == "sweep":
                return len(registry.runs("kind = 'trial' and state = 'COMPLETED'"))
            name = "train.mlm_loss" if self.kind == "pretrain" else "validation.accuracy"
            return len(set(registry.metrics.history(self.run_id(), name).values("step")))

    def messages(self) -> str:
        """What the drivers said."""
        return self._log.read_text(errors="replace")[-3000:]

    @property
    def _log(self) -> Path:
        return self.home.with_suffix(".log")

    def close(self) -> None:
        """End the drivers that still run, and give back what was lent."""
        for driver in self._drivers:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
        self.lent.close()
