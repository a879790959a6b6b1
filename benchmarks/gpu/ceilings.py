"""Ceilings of the card: the rate of bf16 matrix products on random data, and of copies, bytes read plus written.

Beside them the rate of the products of base's and large's layers, which have a small inner dimension, and the time
that a small operation takes to be launched.
"""

import statistics
from collections.abc import Iterator, Sequence

import torch

from benchmarks.gpu.results import NOT_REACHED, Report, Row
from benchmarks.gpu.roofline import Ceilings
from benchmarks.gpu.setting import SMALL_SIZE, Budget, Setting

LARGE_PRODUCT = "large product"
COPY = "copy"
LAUNCH = "launch of a small operation, µs"
_ROUNDS = 5


def measure(setting: Setting, budget: Budget, report: Report) -> Iterator[Row]:
    """Measure each ceiling; zeros would run faster than data do, so all numbers are random."""
    size = setting.choose(8192, 128)
    yield product_row(setting, LARGE_PRODUCT, size, size, size)
    yield copy_row(setting)
    yield {"ceiling": LAUNCH, "rate": launch_us(setting)}
    rows = setting.choose(32_768, 64)
    for model in setting.choose(("base", "large"), (SMALL_SIZE,)):
        config = setting.build_config(model)
        hidden, inner, vocabulary = config.hidden_size, config.intermediate_size, config.vocab_size
        for name, num_rows, inputs, outputs in (
            ("queries, keys, values", rows, hidden, 3 * hidden),
            ("into the feed-forward network", rows, hidden, inner),
            ("out of the feed-forward network", rows, inner, hidden),
            ("vocabulary", rows * 15 // 100, hidden, vocabulary),
            ("vocabulary, padded to a multiple of 64", rows * 15 // 100, hidden, -(-vocabulary // 64) * 64),
        ):
            case = f"{model}: {name}"
            yield (
                {"ceiling": case, "outcome": NOT_REACHED}
                if budget.is_spent
                else product_row(setting, case, num_rows, inputs, outputs)
            )


def product_row(setting: Setting, name: str, rows: int, inputs: int, outputs: int) -> Row:
    """Measure the product (rows, inputs) · (inputs, outputs), the second factor stored as a layer's weight is."""
    x = torch.randn(rows, inputs, device=setting.device, dtype=torch.bfloat16)
    weight = torch.randn(outputs, inputs, device=setting.device, dtype=torch.bfloat16)
    for _ in range(3):
        torch.nn.functional.linear(x, weight)
    times = [setting.ms(lambda: torch.nn.functional.linear(x, weight), repeats=10) for _ in range(_ROUNDS)]
    return rate_row(name, f"{rows} × {inputs} × {outputs}", 2 * rows * inputs * outputs, "TFLOP/s", times)


def copy_row(setting: Setting) -> Row:
    source = torch.randn(copy_size(setting), device=setting.device)
    target = torch.empty_like(source)
    target.copy_(source)
    times = [setting.ms(lambda: target.copy_(source), repeats=5) for _ in range(_ROUNDS)]
    return rate_row(COPY, f"{source.nbytes / 2**30:.3g} GiB", 2 * source.nbytes, "TB/s", times)


def rate_row(name: str, shape: str, amount: int, unit: str, times_ms: Sequence[float]) -> Row:
    """Make the row of a ceiling from how much was done in each of some times; the unit is of 10^12."""
    ms = statistics.median(times_ms)
    rate, spread = amount / (ms / 1000) / 1e12, (max(times_ms) - min(times_ms)) / ms
    return {"ceiling": name, "shape": shape, "rate": rate, "unit": unit, "spread": spread}


def copy_size(setting: Setting) -> int:
    """Numbers that are copied: source and copy, of four bytes each, take half of the memory that is free at most."""
    if not setting.is_cuda:
        return setting.choose(2**30, 2**18)
    free, _ = torch.cuda.mem_get_info(setting.device)
    return min(setting.choose(2**30, 2**18), free // 16)


def launch_us(setting: Setting) -> float:
    """Microseconds between the starts of operations that have nothing to do."""
    number = torch.zeros(1, device=setting.device)
    number.add_(1)
    return 1000 * setting.ms(lambda: number.add_(1), repeats=setting.choose(2000, 100))


def measured_rate(report: Report, ceiling: str) -> float | None:
    """Rate of a ceiling as this run measured it, in the unit of its row; None where it did not."""
    found = [row.get("rate") for row in report.rows("ceilings", ceiling=ceiling)]
    return found[0] if found and isinstance(found[0], float) else None


def measured_ceilings(report: Report) -> Ceilings | None:
    """Ceilings with the rates that this run measured; None where it did not: those of another card say nothing."""
    products, copies, launch = (measured_rate(report, each) for each in (LARGE_PRODUCT, COPY, LAUNCH))
    if products is None or copies is None or launch is None:
        return None
    return Ceilings(product_flops_per_s=1e12 * products, copy_bytes_per_s=1e12 * copies, launch_us=launch)
