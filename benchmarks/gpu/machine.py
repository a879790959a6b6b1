"""Machine of a run of the GPU benchmark: card, driver, PyTorch, memory, and who else is on the card."""

import os
import platform
import re
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import torch

from benchmarks.gpu.results import Report, Row
from benchmarks.gpu.setting import Budget, Setting
from orchestrator.pretraining.meter import peak_flops

_MEASURED_CODE = (
    "bert_core/**/*.py",
    "benchmarks/**/*.py",
    "orchestrator/pretraining/meter.py",
    "orchestrator/pretraining/device_*.py",
)
"""Files of the code that the benchmark runs."""


def measure(setting: Setting, budget: Budget, report: Report) -> Iterator[Row]:
    """Tell what the machine is: one row for each fact."""
    for what, found in facts(setting).items():
        yield {"what": what, "found": found}


def facts(setting: Setting) -> dict[str, str]:
    """Find the facts of the machine that a figure depends on."""
    found = {
        "processor": f"{processor_name()}, {os.cpu_count()} CPUs",
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": installed_version("transformers"),
        "triton": installed_version("triton"),
    }
    return found | (card_facts(setting.device) if setting.is_cuda else {"card": "none: the small form on the CPU"})


def card_facts(device: torch.device) -> dict[str, str]:
    properties = torch.cuda.get_device_properties(device)
    free, total = torch.cuda.mem_get_info(device)
    return {
        "card": properties.name,
        "driver": ask_card("--query-gpu=driver_version"),
        "CUDA of torch": str(torch.version.cuda),
        "capability": f"{properties.major}.{properties.minor}, {properties.multi_processor_count} multiprocessors",
        "memory": f"{free / 2**30:.1f} GiB free of {total / 2**30:.1f}",
        "other processes on the card": ask_card("--query-compute-apps=pid,used_memory"),
        "clocks (SM, memory) and power": ask_card("--query-gpu=clocks.sm,clocks.mem,power.draw"),
        "bf16": "yes" if torch.cuda.is_bf16_supported(including_emulation=False) else "no",
        "data sheet": f"{(peak_flops(properties.name) or 0) / 1e12:.0f} TFLOP/s",
    }


def ask_card(question: str) -> str:
    return ask("nvidia-smi", question, "--format=csv,noheader")


def ask(*command: str) -> str:
    """Ask another program; a dash where it is not installed or does not answer."""
    try:
        answer = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return "–"
    return "; ".join(answer.stdout.split("\n")).strip("; ") or "none"


def commit() -> str:
    """Name of the commit, marked where a file differs from it; the results, which are being written, do not count."""
    name = ask("git", "describe", "--always")
    changed = ask("git", "diff", "--name-only", "HEAD", "--", ":(top)", ":(top,exclude)benchmarks/results")
    return name if changed == "none" or name == "–" else f"{name}-dirty"


def code_digest() -> str:
    """Digest of all Python code that is measured or measures: a commit's name says nothing of changes since."""
    root, found = Path(__file__).parents[2], sha256()
    for path in sorted({path for pattern in _MEASURED_CODE for path in root.glob(pattern)}):
        found.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return found.hexdigest()[:12]


def installed_version(package: str) -> str:
    """Version of a package; `not installed` where it cannot be imported."""
    if find_spec(package) is None:
        return "not installed"
    from importlib.metadata import version

    return version(package)


def processor_name() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def card_name(setting: Setting) -> str:
    """Name of the card for a file: `h200`; `small-cpu` without one."""
    if not setting.is_cuda:
        return f"small-{setting.device.type}"
    name = torch.cuda.get_device_name(setting.device).removeprefix("NVIDIA ")
    return re.sub(r"\W+", "-", name).strip("-").lower() + ("-small" if setting.is_small else "")
