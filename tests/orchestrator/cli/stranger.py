"""A stranger's folder beside a fresh clone: small files under the names that the README uses, and a shell to type in.

The README's commands stand as they are. What they read is small: texts of the demo's world, and copies of the
experiments with fewer steps.
"""

import csv
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from orchestrator.base.settings import Settings
from orchestrator.demo.demo_data import corpus_text, names_examples, write_conll
from orchestrator.demo.world import generate_world
from orchestrator.registry import Registry
from tests.contracts.imports import ROOT
from tests.orchestrator.tiny_models import DOCUMENTS, JUDGMENTS, QUERIES, save_encoder
from tests.waiting import PATIENCE_S

FEWER = {
    "pretrain_tiny_wikipedia.yaml": {"steps: 20000": "steps: 60", "global_batch_size: 64": "global_batch_size: 16"},
    "sweep_sst2.yaml": {"epochs: 2": "epochs: 1", "seeds: [0, 1, 2]": "seeds: [0]"},
    "probe_tiny_wikipedia.yaml": {"epochs: 4": "epochs: 1", "seeds: [0, 1]": "seeds: [0]"},
}
"""Changes that make the copies of the experiments smaller: a text that stands there once, and what takes its place."""
OPINIONS = {"bad": ("dull", "far too long", "a waste of time"), "good": ("charming", "a delight", "warm and funny")}


@dataclass(frozen=True)
class Said:
    """Output of a command, and its exit status."""

    command: str
    status: int
    out: str
    err: str


class Stranger:
    """Somebody who sits in an empty folder and types what the README says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        programs = folder / ".venv" / "bin"  # what `make` leaves there, as far as the README uses it
        write_program(programs)
        (programs / "activate").write_text(f'export PATH="{programs}:$PATH"\n')
        _write_experiments(folder)
        _write_data(folder)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ORCHESTRATOR_", "RAY_"))}
        self.environment = {**kept, "PYTHONPATH": str(ROOT), "ORCHESTRATOR_CACHE": str(folder / "cache")}

    def type(self, command: str) -> Said:
        """Type a command and wait for its end."""
        process = self.start(command)
        out, err = process.communicate(timeout=PATIENCE_S)
        return Said(command, process.returncode, out, err)

    def start(self, command: str) -> "subprocess.Popen[str]":
        """Type a command, in a shell whose Ctrl-C reaches all that it started."""
        shown = self.present_ids(command)
        return subprocess.Popen(
            ["bash", "-c", f"test ! -f .venv/bin/activate || . .venv/bin/activate\n{shown}"],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def interrupt_after(self, pattern: str, command: str, *, stream: str = "stderr") -> Said:
        """Type a command, wait for a line of what it prints, and press Ctrl-C."""
        process = self.start(command)
        lines = []
        reader = process.stdout if stream == "stdout" else process.stderr
        assert reader is not None
        for line in reader:
            lines.append(line)
            if re.search(pattern, line):
                break
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
        early = "".join(lines)
        return Said(command, process.returncode, *((early + out, err) if stream == "stdout" else (out, early + err)))

    def present_ids(self, command: str) -> str:
        """The command with the newest run's id in place of the README's, as a person would type it."""
        if "7f3a" not in command:
            return command
        with Registry(Settings.from_options(home=str(self.folder / ".orchestrator"), environ={}).registry) as registry:
            runs = registry.runs("kind in ('pretrain', 'pipeline')", trials=False).sort_values("created_at")
        # Until there is a pretraining, the README's id is the pipeline's.
        newest = runs.loc[runs["kind"] == runs["kind"].max(), "id"].iloc[-1]
        return command.replace("7f3a", newest[:6])


def write_program(folder: Path) -> None:
    """A folder for PATH with this project's `orchestrator` in it."""
    folder.mkdir(parents=True)
    script = folder / "orchestrator"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'from orchestrator.cli import main; main()' \"$@\"\n")
    script.chmod(0o755)


def _write_experiments(folder: Path) -> None:
    shutil.copytree(ROOT / "experiments", folder / "experiments")
    for name, changes in FEWER.items():
        path = folder / "experiments" / name
        text = path.read_text()
        for before, after in changes.items():
            assert text.count(before) == 1, f"{name} has changed: {before}"
            text = text.replace(before, after)
        path.write_text(text)


def _write_data(folder: Path) -> None:
    world = generate_world(0)
    text = corpus_text(world, 400).split("\n\n")
    (folder / "notes").mkdir()
    for part in (0, 1):
        with gzip.open(folder / "notes" / f"{part}.txt.gz", "wt") as file:
            file.write("\n\n".join(text[part::2]))
    (folder / "notes.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in text[:30]))
    rows = [
        (f"The {thing} of {number} was {opinion}.", label)
        for number in range(12)
        for thing in ("film", "play")
        for label, opinions in OPINIONS.items()
        for opinion in opinions
    ]
    _write_table(folder / "reviews.csv", ("text", "label"), rows)
    _write_table(folder / "new.csv", ("text", "author"), [("A charming film.", "Ada"), ("Far too long.", "Bo")])
    (folder / "reviews.txt").write_text("A charming film.\nFar too long.\n")
    for split, part in (("train", rows[:60]), ("dev", rows[60:100])):
        _write_table(folder / "complaints" / f"{split}.csv", ("text", "label"), part)
        numbered = [(sentence, int(label == "good")) for sentence, label in part]
        _write_table(folder / "glue" / "SST-2" / f"{split}.tsv", ("sentence", "label"), numbered, delimiter="\t")
    names = names_examples(world, 40, 20)
    (folder / "ner" / "conll2003").mkdir(parents=True)
    for name, examples in zip(("train", "valid", "test"), names, strict=True):
        write_conll(folder / "ner" / "conll2003" / f"{name}.txt", examples)
    save_encoder(folder / "minilm", seed=0, num_positions=128)
    (folder / "collection" / "qrels").mkdir(parents=True)
    for name, objects in (("corpus", DOCUMENTS), ("queries", QUERIES)):
        (folder / "collection" / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in objects))
    for split in ("train", "dev"):
        (folder / "collection" / "qrels" / f"{split}.tsv").write_text("\n".join(JUDGMENTS) + "\n")


def _write_table(path: Path, columns: tuple[str, ...], rows: list[tuple[object, ...]], delimiter: str = ",") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows([columns, *rows])
