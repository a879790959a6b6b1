"""Code, command and machine of a driver: changes that make the same code again, all sorts of hosts, no secrets.

pytest tests/orchestrator/provenance/test_capture.py
"""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from bert_core import __version__
from orchestrator.provenance import capture as module
from orchestrator.provenance.capture import (
    Provenance,
    SourceCode,
    capture,
    command_line,
    installed_versions,
    read_machine,
    read_source_code,
)


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
        "import sys\nfrom orchestrator.provenance.capture import capture\nmade = capture(['a=1'])\n"
        "assert made.environment['versions']['torch'], made\n"
        "print([name for name in ('torch', 'ray', 'numpy', 'sqlalchemy', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_gpus_are_told_by_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr(module, "_PROGRAM_PATIENCE_S", 0.2)
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
    monkeypatch.setattr(module, "version", broken)
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

    monkeypatch.setattr(module, "read_source_code", broken)
    made = capture()
    assert isinstance(made, Provenance)
    assert (made.command, made.code.commit) == (None, None)
    assert made.code.reason == "could not be captured: password=***"


def git(folder: Path, *words: str, given: bytes | None = None) -> str:
    name = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main", "-c", "core.hooksPath="]
    command = ["git", *name, *words]
    return subprocess.run(command, cwd=folder, input=given, check=True, capture_output=True).stdout.decode()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A committed checkout with the packages' folders."""
    root = tmp_path / "project"
    for package in ("bert_core", "orchestrator"):
        (root / package).mkdir(parents=True)
        (root / package / "__init__.py").write_text("one = 1\ntwo = 2\n", encoding="utf-8")
    (root / "experiments").mkdir()
    (root / "experiments" / "one.yaml").write_text("kind: corpus\n", encoding="utf-8")
    (root / ".gitignore").write_text("ignored*\n", encoding="utf-8")
    git(root, "init")
    git(root, "add", ".")
    git(root, "commit", "-m", "first")
    return root


def edit(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_bytes(text.encode())


def test_an_unchanged_checkout_is_its_commit(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD").strip()
    code = read_source_code(checkout)
    assert code == SourceCode(__version__, commit)
    assert code.code_version == f"{__version__}+g{commit[:12]}"


def test_changes_are_kept_so_that_they_make_the_same_code_again(checkout: Path, tmp_path: Path) -> None:
    edit(checkout, "bert_core/__init__.py", "one = 1\ntwo = 'zwei – ä'\r\nlast = 3")
    edit(checkout, "orchestrator/new/file.py", "x = 1\ny = 2\n")
    edit(checkout, "orchestrator/new/without_end.py", "x = 1\ry = 2")
    edit(checkout, "orchestrator/empty.py", "")
    (checkout / "orchestrator" / "__init__.py").unlink()
    code = read_source_code(checkout)
    assert code.diff is not None
    assert code.changed_files == (
        "bert_core/__init__.py",
        "orchestrator/__init__.py",
        "orchestrator/empty.py",
        "orchestrator/new/file.py",
        "orchestrator/new/without_end.py",
    )
    again = tmp_path / "again"
    git(tmp_path, "clone", str(checkout), str(again))
    git(again, "apply", "--index", "-", given=code.diff.encode())
    for name in code.changed_files:
        assert (again / name).exists() == (checkout / name).exists()
        if (again / name).exists():
            assert (again / name).read_bytes() == (checkout / name).read_bytes()


def test_equal_changes_are_one_version_and_others_another(checkout: Path) -> None:
    versions = []
    for text in ("a = 1\n", "a = 2\n", "a = 1\n"):
        edit(checkout, "bert_core/new.py", text)
        versions.append(read_source_code(checkout).code_version)
    assert versions[0] == versions[2] != versions[1]


def test_what_is_not_run_is_no_change(checkout: Path) -> None:
    edit(checkout, "experiments/one.yaml", "kind: tokenizer\n")
    edit(checkout, "orchestrator/ignored.txt", "x")
    edit(checkout, "notes.txt", "x")
    assert read_source_code(checkout).diff_digest is None


def test_a_large_change_is_named_and_not_kept(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DIFF_BYTES", 1000)
    edit(checkout, "bert_core/new.py", "a = 1\n" * 1000)
    code = read_source_code(checkout)
    assert code.diff is None
    assert code.diff_bytes > 6000
    assert code.changed_files == ("bert_core/new.py",)
    assert code.code_version.endswith(f".d{(code.diff_digest or '')[:8]}")


def test_secrets_in_changes_are_masked_and_told(checkout: Path) -> None:
    edit(checkout, "orchestrator/new.py", "url = 'postgresql://lab:c4n4ry@db/lab'\n")
    code = read_source_code(checkout)
    assert "c4n4ry" not in str(code)
    assert code.has_masked_secrets
    edit(checkout, "orchestrator/new.py", "rating = '***'\n")
    assert not read_source_code(checkout).has_masked_secrets


def test_a_folder_below_the_top_of_a_checkout_is_seen(tmp_path: Path, checkout: Path) -> None:
    git(tmp_path, "init")
    git(tmp_path, "config", "advice.addEmbeddedRepo", "false")
    for path in (checkout / ".git").rglob("*"):
        path.chmod(0o755)
    subprocess.run(["rm", "-rf", str(checkout / ".git")], check=True)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "all")
    edit(checkout, "bert_core/new.py", "a = 1\n")
    assert read_source_code(checkout).changed_files == ("project/bert_core/new.py",)


def test_a_wheel_inside_a_foreign_checkout_has_no_commit(tmp_path: Path) -> None:
    site = tmp_path / "venv" / "site-packages"
    (site / "bert_core").mkdir(parents=True)
    (site / "bert_core" / "__init__.py").touch()
    git(tmp_path, "init")
    code = read_source_code(site)
    assert code == SourceCode(__version__, reason="installed as a package, not from a git checkout")
    assert code.code_version == __version__


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (None, "git is not installed"),
        ("#!/bin/sh\nexec sleep 20\n", "git did not answer within 0.5 s"),
        ("#!/bin/sh\necho 'fatal: not a git repository' >&2\nexit 128\n", "installed as a package"),
        ("#!/bin/sh\necho 'fatal: detected dubious ownership' >&2\nexit 128\n", "git said: fatal: detected dubious"),
        ("#!/bin/sh\nexit 1\n", "git said: "),
        ("not a program\n", "git could not be asked: "),
    ],
)
def test_trouble_with_git_is_told_and_never_raised(
    checkout: Path, tmp_path: Path, script: str | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_GIT_PATIENCE_S", 0.5)
    program = tmp_path / "git"
    if script is not None:
        program.write_text(script, encoding="utf-8")
        program.chmod(0o755)
    code = read_source_code(checkout, git=str(program))
    assert code.commit is None
    assert (code.reason or "").startswith(reason)


def test_a_repository_cannot_have_programs_run(checkout: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    for key in ("core.fsmonitor", "diff.external", "diff.x.textconv", "diff.x.command"):
        git(checkout, "config", key, f"touch {ran}; true")
    edit(checkout, ".gitattributes", "*.py diff=x\n")
    edit(checkout, "bert_core/__init__.py", "one = 2\n")
    assert read_source_code(checkout).changed_files == ("bert_core/__init__.py",)
    assert not ran.exists()


def test_the_environment_of_a_hook_does_not_mislead(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    monkeypatch.setenv("GIT_WORK_TREE", "/nowhere")
    assert read_source_code(checkout).commit
