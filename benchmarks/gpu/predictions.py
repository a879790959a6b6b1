"""Predicted milliseconds of whole steps, here and in transformers: the longer of the device's time and of the host's.

Transformers' model computes all slots of padded rows, real or not, and the logits of every slot, labeled or not.
"""

from collections.abc import Iterator

from benchmarks.gpu.launches import OF_REPLAY, host_ms, num_launches, num_peer_launches
from benchmarks.gpu.roofline import BatchShape, Ceilings, Levers, Operation, step_ms, step_operations
from bert_core.config import BertConfig

_EAGER_LOGIT_BYTES = (2 + 4) + (4 + 4) + 4 + (4 + 4 + 4) + (4 + 2) + 2
"""Bytes of a logit: to fp32, log-softmax, its gradient zeroed and passed on, back to bf16, and summed for the bias."""
_COMPILED_LOGIT_BYTES = 3 * 2 + 2 + 2
"""The same fused: maximum, sum and gradient read the logit, the gradient is written, and summed for the bias."""


def predict_ms(
    config: BertConfig, shape: BatchShape, levers: Levers, ceilings: Ceilings | None = None, is_graphed: bool = False
) -> float:
    """Predict the milliseconds of a step here."""
    ceilings = ceilings or Ceilings()
    number = OF_REPLAY if is_graphed else num_launches(config, levers)
    return max(step_ms(config, shape, levers, ceilings), host_ms(number, ceilings))


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
    return max(device_ms, host_ms(num_peer_launches(config, is_compiled), ceilings))


def peer_operations(config: BertConfig, shape: BatchShape, is_compiled: bool) -> Iterator[Operation]:
    """All operations of a step of transformers: those here on rows that are all full, with logits of every slot."""
    padded = BatchShape((shape.width,) * len(shape.lengths), shape.width, shape.num_slots)
    # Rows lie as attention reads them, so nothing goes into padded rows or out of them.
    levers = Levers(fused_adamw=True, varlen=True, compiled_layers=is_compiled)
    yield from (each for each in step_operations(config, padded, levers) if each.component != "cross entropy")
    logit_bytes = _COMPILED_LOGIT_BYTES if is_compiled else _EAGER_LOGIT_BYTES
    yield Operation("cross entropy", logit_bytes * shape.num_slots * config.vocab_size)
