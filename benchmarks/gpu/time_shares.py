"""Shares of a step's time by kind of kernel, told from kernels' names, and the share in which the device is idle.

A product of the head over the vocabulary has the name of any other product, and stands with these.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator

from torch.profiler import ProfilerActivity, profile

from benchmarks._pretraining_batches import make_batch
from benchmarks.gpu.results import NOT_REACHED, Report, Row, Value
from benchmarks.gpu.setting import SMALL_SIZE, Budget, Setting
from benchmarks.gpu.sides import HERE, HERE_COMPILED, Side, build_side, build_side_model

KINDS = (
    ("optimizer", r"multi_tensor_apply|adam|lpnorm|foreach|clip_grad|vector_norm"),
    ("cross entropy", r"cross_?entropy|^_rows_kernel|softmax|nll_loss|aten::(amax|max|gather|scatter_add_?|eq|log)$"),
    ("attention", r"flash|fmha|attention|attn|GroupedAttention|aten::(bmm|baddbmm)$"),
    ("products", r"gemm|gemv|cutlass|cublas|nvjet|matmul|splitk|aten::(mm|addmm|linear)$|mkldnn.*linear"),
    ("waiting and copies from the host", r"memcpy|memset|synchronize|aten::(item|_local_scalar_dense|nonzero)$"),
    ("embedding", r"embedding|index_select|index_copy|index_add|indexSelect|indexFunc|gather|scatter"),
    ("norm", r"layer_?norm|GammaBeta|triton_(per|red)"),
    ("dropout", r"dropout|bernoulli|random_|philox"),
    ("elementwise", r"elementwise|vectorized|unrolled|reduce_kernel|CatArray|triton_|gelu|aten::"),
)
"""Kinds of kernels with patterns of their names; the first that fits is taken. `aten::` names are those of CPUs."""
OTHER = "other"
_CASES = ((HERE, "tiny", 128), (HERE, "base", 128), (HERE_COMPILED, "base", 128))
"""Sides, sizes and widths of the full form; what is compiled comes last, as a compiler may fail."""


def measure(setting: Setting, budget: Budget, report: Report) -> Iterator[Row]:
    """Profile a step of each case: one row for each kind of kernel, and one for the idle share."""
    slots = setting.choose(32_768, 64)
    for name, size, width in setting.choose(_CASES, ((HERE, SMALL_SIZE, 16),)):
        named: dict[str, Value] = {"side": name, "size": size, "S": width}
        if budget.is_spent:
            yield {**named, "kind": NOT_REACHED}
            continue
        config = setting.build_config(size)
        batches = [make_batch(config, slots // width, width, 1.0, seed) for seed in range(2)]
        side = build_side(setting, name, build_side_model(setting, name, config), batches)
        side.make_steps()
        wall_ms = setting.ms(side.make_steps, repeats=2) / len(batches)
        kernels = kernel_ms(setting, side)
        busy_ms = sum(kernels.values())
        for kind, ms in sorted(by_kind(kernels.items()).items(), key=lambda entry: -entry[1]):
            yield {**named, "kind": kind, "ms": ms, "share of busy time": ms / busy_ms}
        if setting.is_cuda:
            idle_ms = max(0.0, wall_ms - busy_ms)
            yield {**named, "kind": "idle", "ms": idle_ms, "share of wall time": idle_ms / wall_ms}
        yield {**named, "kind": "wall time without the profiler", "ms": wall_ms}


def kernel_ms(setting: Setting, side: Side) -> dict[str, float]:
    """Milliseconds of each kernel in a step, by its name; of each operation by itself on a CPU."""
    activity = ProfilerActivity.CUDA if setting.is_cuda else ProfilerActivity.CPU
    with profile(activities=[activity]) as profiled:
        side.make_steps()
        setting.synchronize()
    found: dict[str, float] = defaultdict(float)
    for event in profiled.key_averages():
        if setting.is_cuda and event.is_user_annotation:
            continue  # a name for a stretch of kernels, whose time they have already
        us = event.self_device_time_total if setting.is_cuda else event.self_cpu_time_total
        found[event.key] += us / 1000 / len(side.steps)
    return {name: ms for name, ms in found.items() if ms > 0}


def by_kind(kernels: Iterable[tuple[str, float]]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for name, ms in kernels:
        found[kind_of(name)] += ms
    return dict(found)


def kind_of(kernel: str) -> str:
    fitting = (kind for kind, pattern in KINDS if re.search(pattern, kernel, re.IGNORECASE))
    return next(fitting, OTHER)
