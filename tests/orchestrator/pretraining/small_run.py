"""A pretraining run of seconds, below Ray; as a program it tells each event in a line, so that a test can kill it.

python -m tests.orchestrator.pretraining.small_run FOLDER-OR-URI [in_background]
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bert_core.examples.packing import PackedBatch
from bert_core.text.tokenization import Tokenizer
from bert_core.text.tokenizer_training import train_wordpiece
from orchestrator.base.results import Event, MetricEvent
from orchestrator.corpus.stream import SplitShards
from orchestrator.corpus.token_store import Manifest, TokenStore, write_shard
from orchestrator.pretraining import loop as loop_module
from orchestrator.pretraining.batch_trace import traced
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.job import Emit, PretrainJob
from orchestrator.pretraining.loop import TrainingLoop
from orchestrator.pretraining.streams import build_stream, build_validation
from orchestrator.specs import PretrainSpec
from orchestrator.storage import digest_file, exists, join
from orchestrator.training.checkpoints import Checkpoints, CheckpointSaver

WORDS = [first + second for first in ("ba", "ke", "li", "mo", "nu", "ra") for second in ("dan", "fel", "gim", "tor")]


def make_tokenizer() -> Tokenizer:
    return train_wordpiece([" ".join(WORDS)] * 20, vocab_size=120, min_frequency=1)


def make_store(folder: Path | str, tokenizer: Tokenizer, num_shards: int = 4) -> TokenStore:
    """Documents that say two words over and over, so that both objectives can be learned in seconds."""
    shards = []
    for shard in range(num_shards):
        generator = np.random.default_rng(shard)
        ids, lengths, tokens = [], [], []
        for document in range(40):
            theme = generator.choice(WORDS, 2, replace=False)
            sentences = [" ".join([*theme, *theme, *theme]) for _ in range(int(generator.integers(3, 9)))]
            encoded = tokenizer.encode_ids(sentences)
            ids.append(f"{shard}-{document}")
            lengths.append([len(sentence) for sentence in encoded])
            tokens += [token for sentence in encoded for token in sentence]
        split: Literal["train", "validation"] = "validation" if shard == num_shards - 1 else "train"
        flat = np.array(tokens, np.uint16)
        shards.append(write_shard(str(folder), f"shard-{shard}.parquet", split, ids, flat, lengths))
    Manifest(tokenizer.fingerprint, tokenizer.vocab_size, {}, shards).save(str(folder))
    return TokenStore.open(str(folder))


def write_spec(folder: Path, steps: int, **execution: object) -> PretrainSpec:
    """A pretraining of seconds, with its text and tokenizer; without a checkpoint of its own between start and end."""
    make_tokenizer().save(folder / "tokenizer")
    lines = [" ".join(WORDS[(3 * n + k) % len(WORDS)] for k in range(7)) + "." for n in range(1500)]
    (folder / "text.txt").write_text("\n\n".join("\n".join(lines[n : n + 5]) for n in range(0, len(lines), 5)))
    rarely = {"checkpoint_every_steps": steps, "evaluate_every_steps": steps}
    return PretrainSpec.model_validate(
        {
            "name": "small",
            "corpus": {"files": [str(folder / "text.txt")]},
            "tokenizer": str(folder / "tokenizer"),
            "model": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2},
            "steps": steps,
            "phases": [{"max_seq_length": 48}],
            "global_batch_size": 8,
            "validation_fraction": 0.05,
            "execution": {"data_cpus": 0.5, **rarely, **execution},
        }
    )


def make_job(folder: Path | str, attempt: int = 1, init_folder: str | None = None, **changes: object) -> PretrainJob:
    values = {
        "corpus": {"files": ["generated"]},
        "tokenizer": "generated",
        "model": {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2},
        "steps": 24,
        "phases": [{"max_seq_length": 48, "share": 0.75}, {"max_seq_length": 32, "share": 0.25}],
        "global_batch_size": 8,
        "learning_rate": 1e-2,
        "precision": "fp32",
        "warmup_ratio": 0.1,
        "shuffle_window_shards": 2,
        "execution": {"checkpoint_every_steps": 5, "log_every_steps": 2, "evaluate_every_steps": 8},
    }
    spec = PretrainSpec.model_validate(values | changes)
    tokenizer = make_tokenizer()
    store_folder = join(str(folder), "store")
    done = exists(join(store_folder, "manifest.json"))
    store = TokenStore.open(store_folder) if done else make_store(store_folder, tokenizer)
    return PretrainJob(
        storage=str(folder),
        run_folder=join(str(folder), "run"),
        attempt=attempt,
        spec=spec,
        tokenizer=tokenizer,
        init_folder=init_folder,
        stream=build_stream(spec, SplitShards(store, "train"), tokenizer),
        validation=build_validation(spec, SplitShards(store, "validation"), tokenizer),
    )


def run(
    job: PretrainJob,
    emit: Emit,
    worker: Worker | None = None,
    num_confirmed: Callable[[], int] = lambda: 0,
    note_step: Callable[[int], bool] = lambda step: False,
) -> TrainingLoop:
    worker = worker or Worker()
    loop = TrainingLoop(job, worker, emit, num_confirmed, note_step)

    def batches(first_step: int) -> Iterator[tuple[int, PackedBatch]]:
        for step in range(first_step, job.spec.num_steps):
            yield from job.stream.batches(range(step, step + 1), worker.rank, worker.num_workers)

    loop.train(traced(batches, worker, job.attempt))
    return loop


def final_digests(folder: Path | str, step: int = 24) -> list[str]:
    """SHA-256 of a job's weights and optimizer after the last step."""
    newest = Checkpoints(join(str(folder), "run")).newest_first()[0]
    assert newest.step == step
    return [digest_file(f"{newest.path}/{name}.safetensors") for name in ("model", "optimizer")]


def keeping_losses(losses: list[float]) -> Emit:
    """A listener that keeps the losses of training and the norms of gradients, in order."""

    def emit(event: Event) -> None:
        if isinstance(event, MetricEvent) and event.split == "train":
            losses.extend([event.values["loss"], event.values["grad_norm"]])

    return emit


def save_in_background(checkpoints: Checkpoints, in_background: bool, *told: Any) -> CheckpointSaver:
    """A saver as on a GPU, whatever the device."""
    return CheckpointSaver(checkpoints, True, *told)


def tell(event: Event) -> None:
    print(type(event).__name__, getattr(event, "step", ""), flush=True)


if __name__ == "__main__":
    if sys.argv[2:] == ["in_background"]:
        loop_module.CheckpointSaver = save_in_background  # type: ignore[assignment,attr-defined]
    run(make_job(sys.argv[1]), tell)
