"""Waiting of a fast device for its batches: prefetch windows of a fixed size against those that follow the time.

    python -m benchmarks.prefetch_windows --step-ms 1 --examples 32 --million-tokens 40 --cpus 1

No model is trained: a step is a sleep of so many milliseconds on a batch of sequences of 128 tokens, so that the data
tasks have the machine to themselves. What is told: tokens in a second, from the first batch on, and the share of that
time in which the consumer waited.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import ray

from orchestrator.corpus.feed import PrefetchPace, ray_batches
from orchestrator.corpus.stream import ExampleStream
from orchestrator.corpus.token_store import Manifest, StoreSplit, write_shard
from tests.orchestrator.pretraining.small_run import make_job, make_tokenizer

WIDTH = 128
NUM_SHARDS, DOCUMENTS_PER_SHARD = 5, 500


class FixedPace(PrefetchPace):
    """Windows of eight blocks, whatever they take."""

    def note(self, num_blocks: int, num_bytes: int, build_s: float, train_s: float) -> None:
        """Learn nothing."""


def write_store(folder: Path) -> None:
    """A million random tokens, in documents of 20 sentences of 20 tokens."""
    tokenizer, numbers = make_tokenizer(), np.random.default_rng(0)
    shards = []
    for shard in range(NUM_SHARDS):
        lengths = [[20] * 20 for _ in range(DOCUMENTS_PER_SHARD)]
        tokens = numbers.integers(5, tokenizer.vocab_size, 400 * DOCUMENTS_PER_SHARD).astype(np.uint16)
        names = [f"{shard}-{document}" for document in range(DOCUMENTS_PER_SHARD)]
        split: StoreSplit = "validation" if shard == 0 else "train"
        shards.append(write_shard(str(folder), f"shard-{shard}.parquet", split, names, tokens, lengths))
    Manifest(tokenizer.fingerprint, tokenizer.vocab_size, {}, shards).save(str(folder))


def consume(stream: ExampleStream, pace: PrefetchPace, step_s: float, num_cpus: float) -> tuple[float, float]:
    """Pass by all batches. Returns tokens in a second, and the share of the time that was spent waiting."""
    batches = ray_batches(stream, 0, rank=0, num_workers=1, num_cpus=num_cpus, pace=pace)
    num_tokens, waited_s = len(next(batches)[1].input_ids), 0.0
    began_at = asked_at = time.perf_counter()
    for _, batch in batches:
        waited_s += time.perf_counter() - asked_at
        num_tokens += len(batch.input_ids)
        time.sleep(step_s)
        asked_at = time.perf_counter()
    seconds = time.perf_counter() - began_at
    return num_tokens / seconds, waited_s / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--step-ms", type=float, default=1.0, help="time of a step (default 1)")
    parser.add_argument("--examples", type=int, default=32, help="sequences in a step (default 32)")
    parser.add_argument("--million-tokens", type=float, default=20.0, help="tokens of a run (default 20)")
    parser.add_argument("--cpus", type=float, default=1.0, help="CPUs of the data tasks (default 1)")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each kind, in turn (default 1)")
    arguments = parser.parse_args()
    steps = int(arguments.million_tokens * 1e6 / (arguments.examples * WIDTH))
    with tempfile.TemporaryDirectory() as folder:
        write_store(Path(folder) / "store")
        stream = make_job(
            Path(folder),
            steps=steps,
            global_batch_size=arguments.examples,
            phases=[{"max_seq_length": WIDTH}],
            sentence_objective="none",
            cross_documents=True,
        ).stream
        ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        for _ in range(arguments.rounds):
            for name, pace in (("fixed", FixedPace()), ("by time", PrefetchPace())):
                speed, share = consume(stream, pace, arguments.step_ms / 1000, arguments.cpus)
                print(
                    f"{name:8} {speed:12,.0f} tokens/s  {share:6.1%} waiting  last window {pace.num_blocks} blocks",
                    flush=True,
                )
        ray.shutdown()


if __name__ == "__main__":
    main()
