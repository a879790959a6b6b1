"""A pretraining step here against transformers' BertForPreTraining: same batch, weights, dropout, threads, allocator.

    python -m benchmarks.training_step --sizes tiny mini small --rounds 9
    python -m benchmarks.training_step --attention reference

Two sides at a time take turns in one process: transformers in fp32, as its users run it, against here in fp32 and in
bf16, and transformers under bf16 autocast against here in bf16. What is compared is the median of the paired ratios of
process CPU time on one thread. A step is forward, loss, backward and AdamW. About 57 % of the padded positions hold
real tokens; 15 % of these are predicted. Before anything is timed, both sides' losses without dropout are compared.
Each line names the attention backend that was taken here; `--attention` forces one.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from unittest import mock

import torch
import transformers
from torch import Tensor

import bert_core.attention
from bert_core.attention import BACKENDS
from bert_core.attention.backend import AttentionCall
from bert_core.config import BertConfig
from bert_core.heads.pretraining import BertForPreTraining, PretrainingLabels
from bert_core.optimization import build_optimizer
from bert_core.packed_sequences import PackedSequences
from bert_core.sizes import SIZES
from orchestrator.cluster.environment import MEMORY

ENVIRONMENT = {"OMP_NUM_THREADS": "1", **MEMORY}
"""As Ray's workers have it here; both sides run under it, in the same process."""

FILL = 0.57


def make_batch(config: BertConfig, batch_size: int, width: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shortest = int((2 * FILL - 1) * width)  # lengths spread evenly up to the full width
    lengths = torch.linspace(shortest, width, batch_size).int()[torch.randperm(batch_size, generator=generator)]
    mask = (torch.arange(width) < lengths[:, None]).long()
    input_ids = torch.randint(5, config.vocab_size, mask.shape, generator=generator) * mask
    predicted = (torch.rand(mask.shape, generator=generator) < 0.15) & mask.bool()
    return {
        "input_ids": input_ids,
        "attention_mask": mask,
        "token_type_ids": (torch.arange(width) >= lengths[:, None] // 2).long() * mask,
        "labels": torch.where(predicted, input_ids, -100),
        "next_sentence_label": torch.randint(0, 2, (batch_size,), generator=generator),
    }


def padded_loss(model: torch.nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return model(**batch).loss  # type: ignore[no-any-return]


def packed_loss(model: BertForPreTraining, batch: dict[str, Tensor]) -> Tensor:
    seqs = PackedSequences.from_padded(batch["input_ids"], batch["attention_mask"], batch["token_type_ids"])
    labels = seqs.pack(batch["labels"])
    positions = (labels != -100).nonzero().squeeze(1)
    packed_labels = PretrainingLabels(positions, labels[positions], batch["next_sentence_label"])
    sums = model.packed_loss_sums(seqs, packed_labels, ("masked_lm", "next_sentence"))
    return torch.stack([each.loss / each.num_predictions for each in sums.values()]).sum()


def train(loss: Callable[[], Tensor], optimizer: torch.optim.Optimizer, bf16: bool) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        value = loss()
    optimizer.zero_grad()
    value.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def cpu_ms(step: Callable[[], None]) -> float:
    started = time.process_time()
    step()
    return 1000 * (time.process_time() - started)


def forced_attention(name: str) -> AbstractContextManager[object]:
    """Send every call to one backend during the block, whether or not it would refuse it."""
    backend = next(backend for backend in BACKENDS if backend.name == name)
    return mock.patch.object(bert_core.attention, "choose_backend", return_value=backend)


def attention_name(config: BertConfig, bf16: bool) -> str:
    dtype = torch.bfloat16 if bf16 else torch.float32
    return bert_core.attention.choose_backend(AttentionCall("cpu", dtype, config.attention_probs_dropout_prob)).name


def compare(size: str, batch_size: int, width: int, rounds: int) -> None:
    config = BertConfig.from_size(size)
    ours = BertForPreTraining.from_config(config)
    theirs = transformers.BertForPreTraining(transformers.BertConfig(**config.to_dict()))
    theirs.load_state_dict(ours.weight_names.to_file(ours.state_dict()), strict=False)
    batch = make_batch(config, batch_size, width)
    losses = partial(padded_loss, theirs, batch), partial(packed_loss, ours, batch)
    with torch.no_grad():
        ours.eval(), theirs.eval()
        reference, own = (float(loss()) for loss in losses)
    ours.train(), theirs.train()
    optimizers = torch.optim.AdamW(theirs.parameters(), lr=1e-4), build_optimizer(ours, 1e-4)
    fill = float(batch["attention_mask"].float().mean())
    print(f"{size}: B={batch_size} S={width} fill {fill:.2f}; losses without dropout {reference:.6f} {own:.6f}")
    for their_bf16, our_bf16 in ((False, False), (False, True), (True, True)):
        steps = [partial(train, losses[side], optimizers[side], (their_bf16, our_bf16)[side]) for side in (0, 1)]
        for step in steps * 3:
            step()
        pairs = [tuple(cpu_ms(step) for step in steps) for _ in range(rounds)]
        their_ms, our_ms = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratio = statistics.median(theirs / ours for theirs, ours in pairs)
        names = [("fp32", "bf16")[bf16] for bf16 in (their_bf16, our_bf16)]
        print(
            f"  transformers {names[0]} {their_ms:6.0f} ms, here {names[1]} {our_ms:6.0f} ms "
            f"({attention_name(config, our_bf16)} attention): {ratio:6.2f}×",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=["tiny", "mini"], metavar="SIZE")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    runs_here = [backend.name for backend in BACKENDS if backend.name != "varlen"]  # needs CUDA
    parser.add_argument("--attention", choices=runs_here, help="Backend to take instead of the one chosen for CPUs.")
    arguments = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):  # read when a process starts
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **ENVIRONMENT})
    with forced_attention(arguments.attention) if arguments.attention else nullcontext():
        for size in arguments.sizes:
            compare(size, arguments.batch_size, arguments.width, arguments.rounds)


if __name__ == "__main__":
    main()
