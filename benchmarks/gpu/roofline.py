"""Time of a pretraining step on a GPU, predicted from its operations and bytes before anything is measured.

A step is a list of operations. One that multiplies matrices takes its floating-point operations over the card's rate of
products, every other one its bytes, read and written, over the card's copy rate; what each kind reaches of its ceiling
is an assumption of `Ceilings`. Not counted: waiting for data, the head over pairs of segments, and norm and activation
of the head over the vocabulary.

The step takes the longer of the device's time and the host's, which is that of its operations: PyTorch's in a real
step, without views. Each takes ten times as long as a bare addition: Python, autograd, the dispatcher, and cuBLAS,
which chooses a kernel for each product (64 to 98 µs in steps of tiny to base, where an addition took 6.4 µs, on an
H200's virtual machine; compiled layers took no less).

Transformers' model computes all slots of padded rows, real or not, and the logits of every slot, labeled or not.

Shapes: T real tokens, B sequences, S width of a padded row, L layers, H hidden, I intermediate, V vocabulary,
P predicted positions, W parameters.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

from bert_core.config import BertConfig

_SHORT = 2
"""Bytes of a bf16 number."""
_FULL = 4
"""Bytes of an fp32 number."""
CROSS_ENTROPY_ROWS = 512
"""Rows of a block of logits in the cross entropy that is not fused, as it was for every device."""


@dataclass(frozen=True)
class Ceilings:
    """Rates of a card, and the share of them that kernels are assumed to reach."""

    product_flops_per_s: float = 790e12
    """Rate of a large bf16 matrix product on random data: measured on an H200."""
    copy_bytes_per_s: float = 4.3e12
    """Bytes read plus bytes written of a large copy: measured on an H200."""
    product_share: float = 0.80
    """Share of the rate that products of a layer's shapes reach, whose inner dimension is a tenth of a large one's."""
    memory_share: float = 0.85
    """Share of the copy rate that elementwise kernels and norms reach."""
    launch_us: float = 5.0
    """Microseconds between the launches of two small operations: an assumption, until a card's host is measured."""

    def attention_flops_per_s(self, width: int, varlen: bool) -> float:
        """Rate of fused attention with heads of 64: a fifth of the product rate at 128 tokens, a third at 512.

        With dropout and a mask, PyTorch takes a kernel that is assumed to be half as fast.
        """
        share = 0.4 * width / (width + 128)
        return self.product_flops_per_s * (share if varlen else share / 2)


@dataclass(frozen=True)
class BatchShape:
    """Sizes of a batch that decide how much there is to compute."""

    lengths: tuple[int, ...]
    """Real tokens of each sequence."""
    width: int
    """S: length of a padded row."""
    num_predictions: int
    """P: positions whose tokens are predicted."""

    @property
    def num_tokens(self) -> int:
        """T: real tokens of all sequences."""
        return sum(self.lengths)

    @property
    def num_pairs(self) -> int:
        """Pairs of a query and a key, the sum of the squared lengths."""
        return sum(length * length for length in self.lengths)

    @property
    def num_slots(self) -> int:
        """B · S: places of the padded form."""
        return len(self.lengths) * self.width


@dataclass(frozen=True)
class Levers:
    """Choices that make a step faster. All off: autocast, padded attention with dropout, PyTorch's default AdamW."""

    fused_adamw: bool = False
    """One pass over weights, gradients and moments, in place of ten."""
    varlen: bool = False
    """Attention goes by variable-length flash attention and never sees padding."""
    compiled_layers: bool = False
    """Dropout, addition, norm and cast of a sub-layer are one kernel forward and one backward."""
    bf16_residual: bool = False
    """The stream between the layers has 16 bits, so that nothing is cast."""
    fused_cross_entropy: bool = False
    """Softmax, loss and gradient of the logits in two reads and one write, without blocks."""
    last_layer_rows: bool = False
    """The last layer's rows behind attention are computed where a head reads them: P + B of T."""


ALL_LEVERS = Levers(*[True] * len(fields(Levers)))


@dataclass(frozen=True)
class Operation:
    """Part of a step, forward and backward together."""

    component: str
    bytes: float
    flops: float = 0.0
    is_attention: bool = False

    def seconds(self, ceilings: Ceilings, width: int, varlen: bool) -> float:
        """Time: the longer of that for its operations and that for its bytes."""
        rate = ceilings.product_flops_per_s * ceilings.product_share
        if self.is_attention:
            rate = ceilings.attention_flops_per_s(width, varlen)
        return max(self.flops / rate, self.bytes / (ceilings.copy_bytes_per_s * ceilings.memory_share))


def product(component: str, rows: int, inputs: int, outputs: int) -> Operation:
    """Matrix product (rows, inputs) · (inputs, outputs) and its two gradients: three products of the same size."""
    elements = rows * inputs + inputs * outputs + rows * outputs
    return Operation(component, 3 * _SHORT * elements, 3 * 2.0 * rows * inputs * outputs)


def sublayer_bytes(levers: Levers) -> int:
    """Bytes for each element of (T, H) that dropout, addition, norm and casts of one sub-layer read and write."""
    stream = _SHORT if levers.bf16_residual else _FULL
    if levers.compiled_layers:
        copy = 0 if levers.bf16_residual else _SHORT
        forward = _SHORT + stream + 2 * stream + copy  # branch, stream → sum, output, copy for the next product
        backward = (stream + _SHORT + stream) + (stream + _SHORT)  # two gradients, sum → gradients of stream and branch
        return forward + backward
    cast = 0 if levers.bf16_residual else 2 * (stream + _SHORT)  # and the gradient's cast back
    dropout = 2 * (2 * _SHORT + 1)  # with a mask of one byte
    add = _SHORT + 2 * stream + (0 if levers.bf16_residual else stream + _SHORT)  # and the branch's gradient, cast
    norm = 2 * stream + 3 * stream
    two_gradients = 3 * stream  # of the stream, which goes into the sub-layer and around it
    return cast + dropout + add + norm + two_gradients


def attention_operations(config: BertConfig, shape: BatchShape, levers: Levers) -> Iterator[Operation]:
    """Attention of one layer: scores and contexts, and the way into and out of padded rows where it needs these."""
    hidden, tokens, slots = config.hidden_size, shape.num_tokens, shape.num_slots
    rows, pairs = (tokens, shape.num_pairs) if levers.varlen else (slots, slots * shape.width)
    # 2 products forward, 5 backward (the scores are computed again): 2 · H for each pair and product.
    yield Operation("attention", 24 * rows * hidden, 14.0 * hidden * pairs, is_attention=True)
    if not levers.varlen:
        to_rows = 3 * (3 * _SHORT * slots + 2 * _SHORT * tokens) + 3 * 2 * _SHORT * tokens  # q, k, v; and backward
        to_tokens = 2 * _SHORT * tokens + _SHORT * slots + 3 * _SHORT * tokens
        yield Operation("attention", (to_rows + to_tokens) * hidden)


def layer_operations(config: BertConfig, shape: BatchShape, levers: Levers, rows: int) -> Iterator[Operation]:
    """One layer whose part behind attention is computed for `rows` tokens."""
    hidden, inner, tokens = config.hidden_size, config.intermediate_size, shape.num_tokens
    yield product("products", tokens, hidden, 3 * hidden)
    yield from attention_operations(config, shape, levers)
    yield product("products", rows, hidden, hidden)
    yield product("products", rows, hidden, inner)
    yield product("products", rows, inner, hidden)
    activation = 5 * _SHORT * rows * inner  # forward 2, backward 3
    biases = _SHORT * (tokens * 3 * hidden + rows * (2 * hidden + inner))
    joined_gradients = 2 * _SHORT * tokens * 3 * hidden  # of queries, keys and values, into one tensor
    yield Operation("elementwise", 2 * sublayer_bytes(levers) * rows * hidden + activation + biases + joined_gradients)


def cross_entropy_operations(config: BertConfig, shape: BatchShape, levers: Levers) -> Iterator[Operation]:
    """Head over the vocabulary: two products, then softmax, loss and gradient of the logits (P, V)."""
    hidden, vocabulary, predictions = config.hidden_size, config.vocab_size, shape.num_predictions
    yield product("products", predictions, hidden, hidden)
    yield product("products", predictions, hidden, vocabulary)
    if levers.fused_cross_entropy:
        yield Operation("cross entropy", 3 * _SHORT * predictions * vocabulary)
        return
    # To fp32, maximum, softmax, its maximum, its sum for the bias, back to bf16.
    passes = (_SHORT + _FULL) + _FULL + 2 * _FULL + _FULL + _FULL + (_FULL + _SHORT)
    added_blocks = max(0, -(-predictions // CROSS_ENTROPY_ROWS) - 1) * (_SHORT + 2 * _FULL)
    scaled = 2 * _FULL  # the weight's gradient times that of the loss
    yield Operation("cross entropy", passes * predictions * vocabulary + (added_blocks + scaled) * vocabulary * hidden)


def step_operations(config: BertConfig, shape: BatchShape, levers: Levers) -> Iterator[Operation]:
    hidden, tokens = config.hidden_size, shape.num_tokens
    matrices = config.num_hidden_layers * (4 * hidden + 2 * config.intermediate_size) * hidden
    table = config.vocab_size * hidden
    # Three rows looked up and added up, norm, dropout, the same backward; the table's gradient, zeroed and added.
    lookups = _FULL * (3 * 2 + 2 * 3 + 2 + 3 + 2 + 2 + 3) + 2
    yield Operation("embedding", lookups * tokens * hidden + 4 * _FULL * table)
    for place in range(config.num_hidden_layers):
        is_cut = levers.last_layer_rows and place == config.num_hidden_layers - 1
        rows = min(tokens, shape.num_predictions + len(shape.lengths)) if is_cut else tokens
        yield from layer_operations(config, shape, levers, rows)
    yield from cross_entropy_operations(config, shape, levers)
    adamw = 7 * _FULL if levers.fused_adamw else 20 * _FULL
    clipping = 3 * _FULL
    casts = 2 * (_FULL + _SHORT)  # of matrices in autocast, and of their gradients
    yield Operation("optimizer", (adamw + clipping) * (matrices + table) + casts * (matrices + table))


def step_ms(config: BertConfig, shape: BatchShape, levers: Levers, ceilings: Ceilings | None = None) -> float:
    rates = ceilings or Ceilings()
    operations = step_operations(config, shape, levers)
    return sum(1000 * operation.seconds(rates, shape.width, levers.varlen) for operation in operations)


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
