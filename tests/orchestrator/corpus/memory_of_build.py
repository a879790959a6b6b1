"""Tokenize generated text on a Ray with a small object store and tell the most memory that all processes took.

python -m tests.orchestrator.corpus.memory_of_build FOLDER MEGABYTES OBJECT_STORE_MEGABYTES
"""

import json
import os
import sys
import threading
from pathlib import Path

import numpy as np
import ray

from bert_core.text.tokenizer_training import train_wordpiece
from orchestrator.corpus.build import build_token_store
from orchestrator.specs import TextSource

WORDS = np.array([first + last for first in ("ba", "ke", "li", "mo", "nu") for last in ("dan", "fel", "gim", "tor")])


def write_text(path: Path, num_bytes: int) -> None:
    """Documents of 300 words in one file."""
    numbers = np.random.default_rng(0)
    with path.open("w") as file:
        while file.tell() < num_bytes:
            for words in numbers.choice(WORDS, (1000, 25, 12)):
                file.write("".join(f"{' '.join(sentence)}.\n" for sentence in words) + "\n")


def private_memory() -> int:
    """Bytes that this process and all its descendants hold for themselves; the object store is shared."""
    parents, sizes = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
        except OSError:
            continue  # it has ended
        parents[int(folder.name)] = int(status["PPid"])
        sizes[int(folder.name)] = int(status.get("RssAnon", "0").split()[0]) << 10
    return sum(size for process, size in sizes.items() if os.getpid() in _line(process, parents))


def _line(process: int, parents: dict[int, int]) -> list[int]:
    line = [process]
    while line[-1] in parents:
        line.append(parents[line[-1]])
    return line


def main() -> None:
    folder, megabytes, store_megabytes = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    write_text(folder / "text.txt", megabytes << 20)
    spilled = folder / "spilled"
    spilled.mkdir()
    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=store_megabytes << 20,
        object_spilling_directory=str(spilled),
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    peak, done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.2):
            peak = max(peak, private_memory())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        source = TextSource(files=(str(folder / "text.txt"),))
        tokenizer = train_wordpiece([" ".join(WORDS)] * 20, vocab_size=120, min_frequency=1)
        result = build_token_store(source, tokenizer, validation_fraction=0.0, shard_bytes=4 << 20, storage=str(folder))
    finally:
        done.set()
        watcher.join()
    num_spilled = sum(path.stat().st_size for path in spilled.rglob("*") if path.is_file())
    ray.shutdown()
    print(json.dumps({"peak": peak, "spilled": num_spilled, "num_tokens": result.counts["num_tokens"]}))


if __name__ == "__main__":
    main()
