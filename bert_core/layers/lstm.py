"""Bidirectional LSTM layers over packed sequences (Hochreiter and Schmidhuber 1997; Graves and Schmidhuber 2005).

In feature-based use they stand between a frozen encoder and the classifier (Devlin et al. 2018, section 5.3).

Shapes: B sequences, S tokens of the longest, T tokens, W width of the input, R width of both directions together.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from bert_core.counter_random import derive_key
from bert_core.packed_sequences import PackedSequences


class BidirectionalLstm(nn.Module):
    """A bidirectional LSTM that reads each sequence by itself, in fp32 whatever its input is."""

    def __init__(self, width: int, size: int, num_layers: int, dropout: float) -> None:
        """Make layers from `width` W to `size` R; dropout acts between layers."""
        super().__init__()
        between = dropout if num_layers > 1 else 0.0
        self.lstm = nn.LSTM(width, size // 2, num_layers, bidirectional=True, dropout=between)

    @torch.no_grad()
    def initialize(self, seed: int) -> None:
        """Draw all weights anew, uniform within ±1/√(R/2): what PyTorch's own layers start from."""
        generator = torch.Generator().manual_seed(derive_key(seed, "recurrent"))
        bound = self.lstm.hidden_size**-0.5
        for parameter in self.lstm.parameters():
            parameter.uniform_(-bound, bound, generator=generator)

    def forward(self, hidden: Tensor, seqs: PackedSequences) -> Tensor:
        """States of both directions for each token: (T, W) → (T, R)."""
        lengths = seqs.host_lengths
        if lengths is None:
            lengths = seqs.cu_seqlens.diff().cpu().numpy()
        places, num_running = time_order(lengths)
        order = torch.from_numpy(places).to(hidden.device, non_blocking=True)
        with torch.autocast(hidden.device.type, enabled=False):
            steps = PackedSequence(hidden.float().index_select(0, order), torch.from_numpy(num_running))
            states = self.lstm(steps)[0].data  # (T, R)
        return torch.empty_like(states).index_copy(0, order, states)


def time_order(lengths: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Order tokens by time, as an LSTM reads them: all first ones, then all second ones, … of longer sequences first.

    (B,) → places of the tokens in that order (T,), and how many sequences are as long as each step (S,).

    >>> [values.tolist() for values in time_order(np.array([2, 3]))]
    [[2, 0, 3, 1, 4], [2, 2, 1]]
    """
    rank = np.argsort(np.argsort(-lengths, kind="stable"))  # (B,)
    starts = np.cumsum(lengths) - lengths  # (B,)
    step = np.arange(lengths.sum()) - np.repeat(starts, lengths)  # (T,)
    order = np.argsort(step * len(lengths) + np.repeat(rank, lengths))
    return order, np.bincount(step)
