"""Predicted milliseconds of whole steps, here and in transformers: the longer of the device's time and of the host's.

Transformers' model computes all slots of padded rows, real or not, and the logits of every slot, labeled or not.

The host's time is that of its operations: PyTorch's in a real step, without views. Each takes ten times as long as a
bare addition: Python, autograd, the dispatcher, and cuBLAS, which chooses a kernel for each product (64 to 98 µs in
steps of tiny to base, where an addition took 6.4 µs, on an H200's virtual machine; compiled layers took no less).
"""

from collections.abc import Iterator

from benchmarks.gpu.roofline import BatchShape, Ceilings, Levers, Operation, step_ms, step_operations
from bert_core.config import BertConfig

_EAGER_LOGIT_BYTES = (2 + 4) + (4 + 4) + 4 + (4 + 4 + 4) + (4 + 2) + 2
"""Bytes of a logit: to fp32, log-softmax, its gradient zeroed and passed on, back to bf16, and summed for the bias."""
_COMPILED_LOGIT_BYTES = 3 * 2 + 2 + 2
"""The same fused: maximum, sum and gradient read the logit, the gradient is written, and summed for the bias."""

_PER_OPERATION = 10
"""Launches of a bare addition that the host could make in the time of one operation of a step."""
_AROUND_LAYERS, _IN_LAYER, _TO_PADDED_ROWS = 133, 65, 12
"""Operations of embeddings, heads, losses, clipping and update; of a layer; of its way into padded rows and back."""
_OF_REPLAY = 20
"""Operations of a step whose forward and backward are one graph: copies into it, clipping and update."""
_PEER_AROUND_LAYERS, _PEER_IN_LAYER, _PEER_IN_COMPILED_LAYER = 99, 85, 40
"""The same in transformers' model, on padded rows; what the compiler leaves of a layer is an assumption."""


def predict_ms(
    config: BertConfig, shape: BatchShape, levers: Levers, ceilings: Ceilings | None = None, is_graphed: bool = False
) -> float:
    """Predict the milliseconds of a step here."""
    ceilings = ceilings or Ceilings()
    in_layer = _IN_LAYER + (0 if levers.varlen else _TO_PADDED_ROWS)
    number = _OF_REPLAY if is_graphed else _AROUND_LAYERS + config.num_hidden_layers * in_layer
    return max(step_ms(config, shape, levers, ceilings), _host_ms(number, ceilings))


def predict_peer_ms(
    config: BertConfig, shape: BatchShape, is_compiled: bool, ceilings: Ceilings | None = None
) -> float:
    """Predict the milliseconds of a step of transformers.

    Full rows have no mask, unless compiled; with one, PyTorch's attention is assumed to be half as fast.
    """
    ceilings = ceilings or Ceilings()
    has_mask = is_compiled or shape.num_tokens < shape.num_slots
    operations = peer_operations(config, shape, is_compiled)
    device_ms = 1000 * sum(each.seconds(ceilings, shape.width, varlen=not has_mask) for each in operations)
    in_layer = _PEER_IN_COMPILED_LAYER if is_compiled else _PEER_IN_LAYER
    return max(device_ms, _host_ms(_PEER_AROUND_LAYERS + config.num_hidden_layers * in_layer, ceilings))


def _host_ms(num_operations: int, ceilings: Ceilings) -> float:
    return num_operations * _PER_OPERATION * ceilings.launch_us / 1000


def peer_operations(config: BertConfig, shape: BatchShape, is_compiled: bool) -> Iterator[Operation]:
    """All operations of a step of transformers: those here on rows that are all full, with logits of every slot."""
    padded = BatchShape((shape.width,) * len(shape.lengths), shape.width, shape.num_slots)
    # Rows lie as attention reads them, so nothing goes into padded rows or out of them.
    levers = Levers(fused_adamw=True, varlen=True, compiled_layers=is_compiled)
    yield from (each for each in step_operations(config, padded, levers) if each.component != "cross entropy")
    logit_bytes = _COMPILED_LOGIT_BYTES if is_compiled else _EAGER_LOGIT_BYTES
    yield Operation("cross entropy", logit_bytes * shape.num_slots * config.vocab_size)
