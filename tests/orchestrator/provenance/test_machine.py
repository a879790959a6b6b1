"""Facts of a machine and of a driver: hosts of all sorts, the command without secrets; no fault in them ends a run.

pytest tests/orchestrator/provenance/test_machine.py
"""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from orchestrator.provenance import machine
from orchestrator.provenance import machine as machine_module
from orchestrator.provenance.machine import MadeWith, capture, command_line, installed_versions, read_machine


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text, encoding="utf-8")


@pytest.fixture
def no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")


def test_this_machine_is_told() -> None:
    found = read_machine()
    assert found.hostname
    assert found.user
    assert found.platform
    assert found.num_cores is not None
    assert found.num_cores >= 1
    assert found.memory_bytes is not None
    assert found.memory_bytes > 2**28


def test_versions_are_those_that_would_be_loaded() -> None:
    import numpy
    import torch

    versions = installed_versions()
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert versions["numpy"] == numpy.__version__
    assert versions["torch"] == torch.__version__
    assert versions.get("cuda") == torch.version.cuda
    assert {"ray", "tokenizers", "bert-orchestrator"} <= versions.keys()


def test_nothing_heavy_is_loaded_for_it() -> None:
    program = (
        "import sys\nfrom orchestrator.provenance.machine import capture\nmade = capture(['a=1'])\n"
        "assert made.environment['versions']['torch'], made\n"
        "print([name for name in ('torch', 'ray', 'numpy', 'sqlalchemy', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.usefixtures("no_programs")
def test_gpus_are_told_by_their_driver(tmp_path: Path) -> None:
    for number in range(2):
        name = f"proc/driver/nvidia/gpus/0000:0{number}:00.0/information"
        write(tmp_path, name, "Model: \t\t NVIDIA H200\nIRQ:   \t\t 95\nGPU UUID: \t GPU-1\n")
    line = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build  (dvs-builder)"
    write(tmp_path, "proc/driver/nvidia/version", f"{line}  Wed Feb 26 2025\nGCC version:  gcc 12\n")
    found = read_machine(tmp_path)
    assert (found.gpus, found.gpu_driver) == (("NVIDIA H200", "NVIDIA H200"), "570.124.06")


def test_gpus_are_told_by_nvidia_smi_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "bin/nvidia-smi", "#!/bin/sh\necho 'Tesla T4, 535.1.2'\necho 'Tesla T4, 535.1.2'\n")
    (tmp_path / "bin" / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/bin")
    found = read_machine(tmp_path)
    assert (found.gpus, found.gpu_driver) == (("Tesla T4", "Tesla T4"), "535.1.2")


@pytest.mark.parametrize("script", ["exec sleep 20", "exit 9", "echo No devices were found; exit 6", "printf '\\377'"])
def test_an_ailing_gpu_driver_costs_little_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    write(tmp_path, "bin/nvidia-smi", f"#!/bin/sh\n{script}\n")
    (tmp_path / "bin" / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/bin")
    monkeypatch.setattr(machine, "_PROGRAM_PATIENCE_S", 0.2)
    found = read_machine(tmp_path)
    assert (found.gpus, found.gpu_driver) == ((), None)


@pytest.mark.usefixtures("no_programs")
@pytest.mark.parametrize(
    ("cpuinfo", "processor"),
    [
        ("processor\t: 0\nmodel name\t: AMD EPYC 9655\nflags: a\n", "AMD EPYC 9655"),
        ("processor : 0\nBogoMIPS : 50\nModel : Raspberry Pi 4\n", "Raspberry Pi 4"),
    ],
)
def test_processors_are_named(tmp_path: Path, cpuinfo: str, processor: str) -> None:
    write(tmp_path, "proc/cpuinfo", cpuinfo)
    assert read_machine(tmp_path).processor == processor


@pytest.mark.usefixtures("no_programs")
def test_a_container_has_its_part_of_the_memory(tmp_path: Path) -> None:
    write(tmp_path, "sys/fs/cgroup/memory.max", "1048576\n")
    assert read_machine(tmp_path).memory_bytes == 2**20
    write(tmp_path, "sys/fs/cgroup/memory.max", "max\n")
    assert (read_machine(tmp_path).memory_bytes or 0) > 2**20


@pytest.mark.usefixtures("no_programs")
def test_what_raises_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> str:
        raise KeyError("getpwuid(): uid not found: 1000")

    for name in ("getpass.getuser", "socket.gethostname", "platform.platform"):
        monkeypatch.setattr(name, broken)
    monkeypatch.setattr(machine, "version", broken)
    found = read_machine(tmp_path)
    assert (found.user, found.hostname, found.platform, found.processor, found.versions) == (None, None, None, None, {})


def test_a_capture_is_plain_values() -> None:
    made = capture(["seed=1"])
    assert json.loads(json.dumps(asdict(made)))["overrides"] == ["seed=1"]
    assert made.environment["versions"]["python"]
    assert made.code.version


def test_secrets_of_command_and_overrides_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://u:c4n4ry@h/d"
    words = ["python", "/bin/orchestrator", "--registry", url, "run", "a.yaml", "x.token=c4n4ry"]
    monkeypatch.setattr(sys, "orig_argv", words)
    made = capture(["x.token=c4n4ry"])
    assert "c4n4ry" not in str(made)
    assert made.command == "orchestrator --registry 'postgresql://u:***@h/d' run a.yaml 'x.token=***'"
    assert made.overrides == ("x.token=***",)


def test_a_very_long_command_is_cut() -> None:
    assert len(command_line(["python", "-c", "x" * 100_000])) < 10_000


@pytest.mark.parametrize("words", [[], ["python"]])
def test_a_process_without_words_has_a_command(words: list[str]) -> None:
    assert command_line(words)


def test_a_capture_that_breaks_says_so_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("password=c4n4ry")

    monkeypatch.setattr(machine_module, "read_source_code", broken)
    made = capture()
    assert isinstance(made, MadeWith)
    assert (made.command, made.code.commit) == (None, None)
    assert made.code.reason == "could not be captured: password=***"
