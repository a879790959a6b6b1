"""A pretraining step here against transformers' BertForPreTraining: same batch, weights, dropout, threads, allocator.

    python -m benchmarks.training_step --sizes tiny mini small --rounds 9
    python -m benchmarks.training_step --attention reference

Two sides at a time take turns in one process: transformers in fp32, as its users run it, against here in fp32 and in
bf16, and transformers under bf16 autocast against here in bf16; fp32 alone where the CPU has no units for bf16. What
is compared is the median of the paired ratios of process CPU time on one thread. A step is forward, loss, backward
and AdamW. About 57 % of the padded positions hold real tokens; 15 % of these are predicted. Before anything is timed,
both sides' losses without dropout are compared.
Each line names the attention backend that was taken here; `--attention` forces one.
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import torch
import transformers
from torch import Tensor

import bert_core.attention
from benchmarks._attention_choice import forced_attention
from benchmarks._pretraining_batches import make_batch, packed_loss, padded_loss
from bert_core.attention import BACKENDS
from bert_core.attention.backend import AttentionCall
from bert_core.config import SIZES, BertConfig
from bert_core.heads.pretraining import BertForPreTraining
from bert_core.optimization import build_optimizer
from orchestrator.cluster.connection import MEMORY
from orchestrator.cluster.torch_devices import has_bf16_cpu

ENVIRONMENT = {"OMP_NUM_THREADS": "1", **MEMORY}
"""As Ray's workers have it here; both sides run under it, in the same process."""


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
    precisions = ((False, False), (False, True), (True, True)) if has_bf16_cpu() else ((False, False),)
    for their_bf16, our_bf16 in precisions:
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
