"""Code, command, versions and machine of a driver: what its runs are made with, captured when it connects to Ray.

Versions come from the files that were installed, the GPUs from `nvidia-smi`. `SourceCode.code_version` is equal for
runs of the same code:

    0.1.0                            installed from a wheel, or git could not be asked
    0.1.0+g1f2e3d4c5b6a              this commit, unchanged
    0.1.0+g1f2e3d4c5b6a.d0a1b2c3d    this commit with changes; the last part is the beginning of their SHA-256

Only changes of what is imported and of what is installed count (`_PATHS`): an edited spec or document is no other code.
"""

import getpass
import hashlib
import logging
import os
import platform
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from bert_core import __version__
from orchestrator.provenance.secret_masking import MASK, mask_secrets, mask_words

T = TypeVar("T")
logger = logging.getLogger(__name__)
_PROGRAM = "orchestrator"
_MAX_COMMAND_CHARS = 8_000
MAX_DIFF_BYTES = 256 * 1024
"""Size up to which a difference is kept whole; of a larger one only its digest and the names of its files."""
_MAX_FILES_NAMED = 100
_GIT_PATIENCE_S = 5.0
"""Time for all questions to git together."""
_PATHS = ("bert_core", "orchestrator", "pyproject.toml", "constraints.txt")
_LANDMARK = "bert_core/__init__.py"
"""A file in the index of a checkout of this project; another repository around an installation lacks it."""
_CHANGED_FILE = re.compile(rb"^diff --git a/(.*?) b/", re.MULTILINE)
_DISTRIBUTIONS = ("torch", "ray", "tokenizers", "numpy", "safetensors", "pyarrow", "optuna")
_PROGRAM_PATIENCE_S = 5.0
_CUDA_OF_TORCH = re.compile(r"^cuda\b[^=]*=\s*['\"]([\d.]+)['\"]", re.MULTILINE)


@dataclass(frozen=True)
class SourceCode:
    """The code of a driver as it stood when it started."""

    version: str
    """Version of the package."""
    commit: str | None = None
    """Id of the commit that is checked out; None outside a git checkout."""
    diff: str | None = None
    """Changes since the commit, as `git apply` takes them, secrets masked; None where there are none, or too many."""
    diff_digest: str | None = None
    """SHA-256 of the changes before anything was masked; None where there are none."""
    diff_bytes: int = 0
    changed_files: tuple[str, ...] = ()
    has_masked_secrets: bool = False
    """Whether `diff` lacks secrets that were masked, so that it does not make the same code again."""
    reason: str | None = None
    """Reason why there is no commit."""

    @property
    def code_version(self) -> str:
        """The code in one word, as the module says."""
        commit = f"+g{self.commit[:12]}" if self.commit else ""
        return self.version + commit + (f".d{self.diff_digest[:8]}" if self.diff_digest else "")


@dataclass(frozen=True)
class Machine:
    """Machine of a process, with the versions that are installed on it; None where something is not known."""

    hostname: str | None = None
    user: str | None = None
    platform: str | None = None
    processor: str | None = None
    """Model name of the processor."""
    num_cores: int | None = None
    """Number of cores that this process may use."""
    memory_bytes: int | None = None
    """Size of the memory, or of the container's part of it."""
    gpus: tuple[str, ...] = ()
    """Model name of each GPU of the machine."""
    gpu_driver: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of Python, of this package and of what decides its numbers; `cuda` is what torch was built for."""


@dataclass(frozen=True)
class Provenance:
    """Code, command and machine of one driver."""

    code: SourceCode
    command: str | None = None
    """Command line as it was typed, secrets masked; that of a notebook's server where it was a notebook."""
    overrides: Sequence[str] = ()
    """KEY=VALUE words as they were typed, secrets masked."""
    environment: Mapping[str, Any] = field(default_factory=dict)
    """Versions and machine as plain values (`Machine`)."""


def capture(overrides: Sequence[str] = ()) -> Provenance:
    """Capture code, command and machine of this process; takes a fraction of a second, and never raises.

    Args:
        overrides: KEY=VALUE words as they were typed.
    """
    try:
        words = tuple(mask_words(overrides))
        return Provenance(read_source_code(), command_line(sys.orig_argv), words, asdict(read_machine()))
    except Exception as error:  # a run is worth more than the record of its machine
        logger.debug("what this run is made with cannot be told", exc_info=True)
        return Provenance(SourceCode(__version__, reason=f"could not be captured: {mask_secrets(str(error))[:200]}"))


def command_line(words: Sequence[str]) -> str:
    """Return the words of a process as a person would type them, secrets masked; of very many, the first ones.

    >>> command_line(["/lab/.venv/bin/python3", "/lab/.venv/bin/orchestrator", "run", "a b.yaml", "--token", "x"])
    "orchestrator run 'a b.yaml' --token '***'"
    >>> command_line(["/usr/bin/python3", "-m", "orchestrator.cli", "demo"])
    'python3 -m orchestrator.cli demo'
    """
    program, *rest = words or [_PROGRAM]
    if rest and Path(rest[0]).name == _PROGRAM:
        program, *rest = rest
    text = shlex.join([Path(program).name, *mask_words(rest)])
    return text if len(text) <= _MAX_COMMAND_CHARS else text[:_MAX_COMMAND_CHARS] + "…"


def read_source_code(root: Path | None = None, *, git: str = "git") -> SourceCode:
    """Read which code this process runs; git is asked for seconds at most, and nothing raises.

    Args:
        root: folder that holds the packages; that of this very file when left out.
    """
    root = Path(__file__).resolve().parents[2] if root is None else root
    ask = _Git(root, git)
    no_checkout = "installed as a package, not from a git checkout"
    try:
        if not ask("ls-files", "--", _LANDMARK):
            return SourceCode(__version__, reason=no_checkout)
        commit = ask("rev-parse", "HEAD").decode().strip()
        return _with_changes(commit, _read_changes(ask, root))
    except FileNotFoundError:
        reason = "git is not installed"
    except subprocess.TimeoutExpired:
        reason = f"git did not answer within {_GIT_PATIENCE_S:g} s"
    except subprocess.CalledProcessError as error:
        said = (error.stderr or b"").decode("utf-8", "replace").strip().splitlines()
        is_none = any("not a git repository" in line for line in said)
        reason = no_checkout if is_none else f"git said: {' '.join(said[:1])}"
    except (OSError, UnicodeError) as error:
        reason = f"git could not be asked: {error}"
    return SourceCode(__version__, reason=mask_secrets(reason))


class _Git:
    """Git, asked in a folder; nothing that the repository's configuration names is run."""

    def __init__(self, root: Path, program: str) -> None:
        self._root, self._program = root, program
        self._deadline = time.monotonic() + _GIT_PATIENCE_S

    def __call__(self, *words: str, index: str | None = None) -> bytes:
        """Return what git prints. Raises: OSError, subprocess.SubprocessError."""
        command = [self._program, "-c", "core.fsmonitor=false", "-c", "core.quotepath=off", "--no-optional-locks"]
        # GIT_DIR and its like, as a hook sets them, would lead to another repository.
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        environ |= {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"} | ({"GIT_INDEX_FILE": index} if index else {})
        done = subprocess.run(
            [*command, *words],
            cwd=self._root,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=max(0.1, self._deadline - time.monotonic()),
            check=True,
        )
        return done.stdout


def _read_changes(ask: _Git, root: Path) -> bytes:
    """The difference from the commit; new files are in it by way of a copy of the index that has their names."""
    paths = [path for path in _PATHS if (root / path).exists()]
    with tempfile.TemporaryDirectory() as folder:
        index = shutil.copy(root / ask("rev-parse", "--git-path", "index").decode().strip(), folder)
        ask("add", "--intent-to-add", "--", *paths, index=index)
        options = ("--no-ext-diff", "--no-textconv", "--no-color", "--binary", "--no-renames")
        return ask("diff", *options, "HEAD", "--", *paths, index=index)


def _with_changes(commit: str, diff: bytes) -> SourceCode:
    if not diff:
        return SourceCode(__version__, commit)
    text = None
    if len(diff) <= MAX_DIFF_BYTES:
        with suppress(UnicodeDecodeError):  # it could not be applied from text
            text = diff.decode("utf-8")
    masked = None if text is None else mask_secrets(text)
    files = dict.fromkeys(name.decode("utf-8", "replace") for name in _CHANGED_FILE.findall(diff))
    return SourceCode(
        __version__,
        commit,
        masked,
        hashlib.sha256(diff).hexdigest(),
        len(diff),
        tuple(files)[:_MAX_FILES_NAMED],
        has_masked_secrets=masked is not None and MASK in masked and masked != text,
    )


def read_machine(root: Path = Path("/")) -> Machine:
    """Read the machine that this process is on; what cannot be read is left out.

    Args:
        root: folder below which `proc` and `sys` lie.
    """
    gpus, driver = _or_none(_read_gpus) or ((), None)
    return Machine(
        hostname=_or_none(socket.gethostname),
        user=_or_none(getpass.getuser),
        platform=_or_none(platform.platform),
        processor=_or_none(lambda: _read_processor(root)),
        num_cores=_or_none(count_cores),
        memory_bytes=_or_none(lambda: read_memory(root)),
        gpus=gpus,
        gpu_driver=driver,
        versions=_or_none(installed_versions) or {},
    )


def _or_none(read: Callable[[], T]) -> T | None:
    """Return what a function reads, None where it raises: no run ends because its machine says something unheard-of."""
    try:
        return read()
    except Exception:
        return None


def installed_versions() -> dict[str, str]:
    """Return the versions of Python, this package, the libraries that decide numbers, and CUDA; by name."""
    found = {"python": platform.python_version(), "bert-orchestrator": __version__}
    for name in _DISTRIBUTIONS:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    torch = find_spec("torch")
    if torch is not None and torch.origin is not None:
        with suppress(OSError):  # loading torch, which knows it too, takes seconds
            cuda = _CUDA_OF_TORCH.search(Path(torch.origin).with_name("version.py").read_text(encoding="utf-8"))
            found |= {"cuda": cuda[1]} if cuda else {}
    return found


def count_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def read_memory(root: Path = Path("/")) -> int:
    """Size in bytes of the memory, or of the container's part of it."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            return min(whole, int((root / name).read_text(encoding="ascii")))
    return whole


def _read_processor(root: Path) -> str | None:
    if sys.platform == "darwin":
        return _ask("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()
    text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    found = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def _read_gpus() -> tuple[tuple[str, ...], str | None]:
    """Model names of the NVIDIA GPUs, and the version of their driver."""
    said = _ask("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    rows = [line.split(", ") for line in said.splitlines() if ", " in line]
    return tuple(row[0] for row in rows), rows[0][1] if rows else None


def _ask(program: str, *words: str) -> str:
    """Return what a program prints within its time; nothing where there is no such program, or it fails."""
    with suppress(subprocess.SubprocessError, OSError):
        done = subprocess.run(
            [program, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PROGRAM_PATIENCE_S,
            check=True,
        )
        return done.stdout.strip()
    return ""
