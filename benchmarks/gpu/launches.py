"""Launches of a step: the kernels that the host puts in line, and a step's time where that takes longer than they do.

Host and device work beside each other, so a step takes as long as the slower of both. The counts are those of PyTorch's
operations in a real step, without views; what a compiler leaves of them is an assumption. An operation takes the host
ten times as long as a bare addition: Python, autograd, the dispatcher, and cuBLAS, which chooses a kernel for each
product (64 to 98 µs in steps of tiny to base, where an addition took 6.4 µs, on an H200's virtual machine).
"""

from benchmarks.gpu.roofline import Ceilings, Levers
from bert_core.config import BertConfig

_PER_OPERATION = 10
"""Launches of a bare addition that the host could make in the time of one operation of a step."""
_AROUND_LAYERS = 133
"""Operations of embeddings, heads, losses, clipping and update."""
_IN_LAYER = 65
"""Operations of a layer, forward and backward, dropout and casts included."""
_TO_PADDED_ROWS = 12
"""Operations of a layer on the way into padded rows and out of them, and back."""
_IN_COMPILED_LAYER = 40
"""Kernels that the compiler leaves of a layer: an assumption."""
OF_REPLAY = 20
"""Operations of a step whose forward and backward are one graph: copies into it, clipping and update."""
_PEER_AROUND_LAYERS, _PEER_IN_LAYER = 99, 85
"""The same in transformers' model, on padded rows."""


def num_launches(config: BertConfig, levers: Levers) -> int:
    """Count the kernels that the host puts in line in a step here."""
    in_layer = _IN_COMPILED_LAYER if levers.compiled_layers else _IN_LAYER
    return _AROUND_LAYERS + config.num_hidden_layers * (in_layer + (0 if levers.varlen else _TO_PADDED_ROWS))


def num_peer_launches(config: BertConfig, is_compiled: bool) -> int:
    """Count the kernels that the host puts in line in a step of transformers."""
    in_layer = _IN_COMPILED_LAYER if is_compiled else _PEER_IN_LAYER
    return _PEER_AROUND_LAYERS + config.num_hidden_layers * in_layer


def host_ms(number: int, ceilings: Ceilings) -> float:
    """Milliseconds that the host takes for so many launches."""
    return number * _PER_OPERATION * ceilings.launch_us / 1000
