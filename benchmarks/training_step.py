"""A pretraining step here against transformers' BertForPreTraining: the same batch, weights, dropout and threads.

    OMP_NUM_THREADS=1 python benchmarks/training_step.py --sizes tiny mini --rounds 9

The two sides take turns; what is compared is the median of the paired ratios of process CPU time. A step is forward,
loss, backward and AdamW. About 57 % of the slots hold real tokens; 15 % of these are predicted.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import transformers
from torch import Tensor

from bert_core.config import BertConfig
from bert_core.sizes import SIZES
from bert_core.heads import BertForPreTraining
from bert_core.optimization import build_optimizer
from bert_core.packed_sequences import PackedSequences

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


def padded_step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: dict[str, Tensor]) -> float:
    loss = model(**batch).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def packed_step(model: BertForPreTraining, optimizer: torch.optim.Optimizer, batch: dict[str, Tensor]) -> float:
    seqs = PackedSequences.from_padded(batch["input_ids"], batch["attention_mask"], batch["token_type_ids"])
    labels = seqs.pack(batch["labels"])
    positions = (labels != -100).nonzero().squeeze(1)
    sums = model.sums(seqs, positions, labels[positions], batch["next_sentence_label"])
    loss = sums.mlm_loss / sums.num_predictions + sums.nsp_loss / sums.num_examples
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def cpu_ms(step: Callable[[], float]) -> float:
    started = time.process_time()
    step()
    return 1000 * (time.process_time() - started)


def compare(size: str, batch_size: int, width: int, rounds: int, bf16: bool) -> None:
    config = BertConfig.from_size(size)
    ours = BertForPreTraining.from_config(config).train()
    theirs = transformers.BertForPreTraining(transformers.BertConfig(**config.to_dict())).train()
    theirs.load_state_dict(ours.weight_names.to_file(ours.state_dict()), strict=False)
    our_optimizer = build_optimizer(ours, 1e-4)
    their_optimizer = torch.optim.AdamW(theirs.parameters(), lr=1e-4)
    batch = make_batch(config, batch_size, width)

    def run_theirs() -> float:
        return padded_step(theirs, their_optimizer, batch)

    def run_ours() -> float:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            return packed_step(ours, our_optimizer, batch)

    for _ in range(2):
        losses = run_theirs(), run_ours()
    pairs = [(cpu_ms(run_theirs), cpu_ms(run_ours)) for _ in range(rounds)]
    ratio = statistics.median(reference / own for reference, own in pairs)
    reference, own = (statistics.median(column) for column in zip(*pairs, strict=True))
    fill = batch["attention_mask"].float().mean()
    print(
        f"{size:7s} B={batch_size} S={width} fill={fill:.2f} {'bf16' if bf16 else 'fp32'}: transformers fp32 "
        f"{reference:.0f} ms, here {own:.0f} ms, ratio {ratio:.2f} (second losses {losses[0]:.3f} {losses[1]:.3f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=["tiny", "mini"])
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--bf16", action="store_true", help="run this side under bf16 autocast")
    arguments = parser.parse_args()
    for size in arguments.sizes:
        compare(size, arguments.batch_size, arguments.width, arguments.rounds, arguments.bf16)


if __name__ == "__main__":
    main()
