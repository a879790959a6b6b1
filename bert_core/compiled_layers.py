"""Compilation of the encoder's layers by torch.compile: kernels that each do what a dozen did.

Compiled are regions, not the model: of a layer what lies before and behind its attention, of the embeddings what
follows the look-up. Each region is compiled once and serves all layers, as weights are inputs of its graph. Numbers of
rows are symbols, so that one graph takes any. Attention stays outside: its kernels are made by hand, and it looks at
where sequences begin. So does the look-up: on a GPU the compiler would add up its gradient in whichever order rows
come, while PyTorch's own kernel sorts them.

A run that is resumed must come to the same bits, so nothing here may depend on what a process has seen before:

* `deterministic` keeps the compiler from choosing between kernels by their time;
* regions meet the same number of rows first, in each process and each run. The compiler lays out sums by the sizes that
  it meets first, and its cache would hand one run's layout to another.

Dropout draws from torch's generator, but otherwise than without compilation, and sums are rounded otherwise: a training
that is compiled has other last bits and other dropped elements than one that is not. Names of weights stay the same.

Shapes: T tokens.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from bert_core.attention.positions import Positions
from bert_core.encoder_layer import Embeddings, EncoderLayer
from bert_core.model import BertModel
from bert_core.packed_sequences import PackedSequences

_REGIONS: Mapping[type[nn.Module], tuple[str, ...]] = {
    Embeddings: ("combine",),
    EncoderLayer: ("before_attention", "after_attention"),
}
"""Methods that are compiled, by the class that has them."""
NUM_FIRST_ROWS = 8192
"""Number of tokens that each region is warmed up with: those of a usual micro-batch on a GPU."""
_LONGEST = 128
"""Length of the sequences of the warm-up, at most."""
_MAX_GRAPHS = 64
"""Graphs of a region: with and without gradients and dropout, in two types, for 0, 1 and more rows."""


def compile_layers(
    bert: BertModel,
    autocast_dtype: torch.dtype | None = None,
    backend: Any = "inductor",
    num_first_rows: int = NUM_FIRST_ROWS,
) -> float:
    """Compile an encoder's embeddings and layers in place, to train and to evaluate. Returns the seconds it took.

    Args:
        autocast_dtype: type of the products under autocast; None for a training without it.
        backend: compiler, as in `torch.compile`.

    Raises: whatever the compiler raises; the encoder computes as before then.
    """
    begun_at = time.perf_counter()
    torch._dynamo.config.recompile_limit = _MAX_GRAPHS  # beyond it a graph is an error, never a silent other result
    options: dict[str, Any] | None = {"deterministic": True} if backend == "inductor" else None
    for kind, names in _REGIONS.items():
        for name in names:
            region = torch.compile(getattr(kind, name), fullgraph=True, dynamic=True, backend=backend, options=options)
            for module in _instances(bert, kind):
                setattr(module, name, MethodType(region, module))
    try:
        _warm_up(bert, autocast_dtype, num_first_rows)
    except BaseException:
        restore_layers(bert)
        raise
    return time.perf_counter() - begun_at


def restore_layers(bert: BertModel) -> None:
    """Let an encoder compute as it is written again."""
    for kind, names in _REGIONS.items():
        for module in _instances(bert, kind):
            for name in names:
                module.__dict__.pop(name, None)


def _instances(bert: BertModel, kind: type[nn.Module]) -> Iterator[nn.Module]:
    return (module for module in bert.modules() if isinstance(module, kind))


def _warm_up(bert: BertModel, autocast_dtype: torch.dtype | None, num_rows: int) -> None:
    """Run the embeddings and the first two layers, whose inputs may differ in type, with gradients and without.

    Nothing is kept of it: no gradient, no random number.
    """
    was_training, device = bert.training, next(bert.parameters()).device
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        for trains in (True, False):
            bert.train(trains)
            seqs = _sequences(bert, num_rows, device)
            autocast = torch.autocast(device.type, autocast_dtype, enabled=autocast_dtype is not None)
            with torch.set_grad_enabled(trains), autocast:
                x, _ = bert.embed(seqs)
                _run_backward(x, [bert.embeddings.word.weight])  # which a generator reads from elsewhere
                positions = Positions.of_layers(bert.config, seqs)  # no learned bias: its gradient is run once alone
                all_rows = torch.arange(seqs.num_tokens, device=device)
                for layer, place in list(zip(bert.layers_in_order(), positions, strict=True))[:2]:
                    given = x.detach().requires_grad_(trains)
                    for rows in (all_rows, None):  # chosen rows are other memory, and another graph
                        x = layer(given, seqs, place, rows)
                        _run_backward(x, bert.parameters())
    bert.train(was_training)


def _run_backward(output: Tensor, weights: Iterable[Tensor]) -> None:
    """Run the backward pass of an output, if it has one, without leaving gradients."""
    if output.requires_grad:
        learned = [weight for weight in weights if weight.requires_grad]
        torch.autograd.grad(output.float().sum(), learned, allow_unused=True)


def _sequences(bert: BertModel, num_rows: int, device: torch.device) -> PackedSequences:
    """Sequences of so many tokens, all of them the first of the vocabulary."""
    length = min(_LONGEST, bert.config.max_seq_length)
    cu_seqlens = torch.tensor([*range(0, num_rows, length), num_rows], dtype=torch.int32, device=device)
    ids = torch.zeros(num_rows, dtype=torch.int64, device=device)
    return PackedSequences.from_lengths(ids, torch.zeros_like(ids), cu_seqlens, max_seqlen=min(length, num_rows))
