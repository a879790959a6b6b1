"""The code that runs: the package's version and, in a git checkout, its commit and the changes that are in no commit.

`code_version` says it in one word, which is equal for runs of the same code:

    0.1.0                            installed from a wheel, or git could not be asked
    0.1.0+g1f2e3d4c5b6a              this commit, unchanged
    0.1.0+g1f2e3d4c5b6a.d0a1b2c3d    this commit with changes; the last part is the beginning of their SHA-256

Only changes of what is imported and of what is installed count (`_PATHS`): an edited spec or document is no other code.
"""

import hashlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bert_core import __version__
from orchestrator.provenance.secret_masking import MASK, mask_secrets

MAX_DIFF_BYTES = 256 * 1024
"""Size up to which a difference is kept whole; of a larger one only its digest and the names of its files."""
_MAX_NEW_FILE_BYTES = 1024 * 1024
_MAX_FILES_NAMED = 100
_GIT_PATIENCE_S = 5.0
"""Time for all questions to git together."""
_PATHS = ("bert_core", "orchestrator", "pyproject.toml", "constraints.txt")
_LANDMARK = "bert_core/__init__.py"
"""A file that a checkout of this project has in its index; one that merely surrounds an installation has not."""
_CHANGED_FILE = re.compile(rb"^diff --git a/(.*?) b/", re.MULTILINE)


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


def read_source_code(root: Path | None = None, *, git: str = "git") -> SourceCode:
    """Read which code this process runs; git is asked for seconds at most, and nothing raises.

    Args:
        root: folder that holds the packages; that of this very file when left out.
    """
    root = Path(__file__).resolve().parents[2] if root is None else root
    repository = _Repository(root, git)
    try:
        if not repository.ask("ls-files", "--", _LANDMARK):
            return SourceCode(__version__, reason="installed as a package, not from a git checkout")
        commit = repository.ask("rev-parse", "HEAD").decode().strip()
        return _with_changes(repository, commit)
    except FileNotFoundError:
        reason = "git is not installed"
    except subprocess.TimeoutExpired:
        reason = f"git did not answer within {_GIT_PATIENCE_S:g} s"
    except subprocess.CalledProcessError as error:
        said = (error.stderr or b"").decode("utf-8", "replace").strip().splitlines()
        is_none = any("not a git repository" in line for line in said)
        reason = "installed as a package, not from a git checkout" if is_none else f"git said: {' '.join(said[:1])}"
    except (OSError, UnicodeError) as error:
        reason = f"git could not be asked: {error}"
    return SourceCode(__version__, reason=mask_secrets(reason))


def _with_changes(repository: "_Repository", commit: str) -> SourceCode:
    digest = hashlib.sha256()
    kept, num_bytes, files = bytearray(), 0, []
    for part in repository.changes():
        digest.update(part)
        num_bytes += len(part)
        files += [name.decode("utf-8", "replace") for name in _CHANGED_FILE.findall(part)]
        if num_bytes <= MAX_DIFF_BYTES:
            kept += part
    if not num_bytes:
        return SourceCode(__version__, commit)
    text = _as_text(bytes(kept)) if num_bytes <= MAX_DIFF_BYTES else None
    masked = None if text is None else mask_secrets(text)
    return SourceCode(
        __version__,
        commit,
        masked,
        digest.hexdigest(),
        num_bytes,
        tuple(dict.fromkeys(files))[:_MAX_FILES_NAMED],
        has_masked_secrets=masked is not None and MASK in masked and masked != text,
    )


def _as_text(diff: bytes) -> str | None:
    """The difference as text; None for one that is not UTF-8, which could not be applied from text."""
    try:
        return diff.decode("utf-8")
    except UnicodeDecodeError:
        return None


class _Repository:
    """A folder in which git is asked; nothing that the repository's configuration names is run."""

    def __init__(self, root: Path, git: str) -> None:
        self._root, self._git = root, git
        self._deadline = time.monotonic() + _GIT_PATIENCE_S

    def ask(self, *words: str) -> bytes:
        """Return what git prints. Raises: OSError, subprocess.SubprocessError."""
        with tempfile.TemporaryFile() as output:
            self._run(words, output)
            output.seek(0)
            return output.read()

    def changes(self) -> Sequence[bytes]:
        """The difference from the commit in parts, new files as additions. Raises: as `ask`."""
        diff = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--binary", "--no-renames", "HEAD", "--")
        parts = []
        with tempfile.TemporaryFile() as output:
            self._run((*diff, *self._paths()), output)
            output.seek(0)
            while part := output.read(1 << 20):
                parts.append(part)
        listed = self.ask("ls-files", "--others", "--exclude-standard", "-z", "--full-name", "--", *self._paths())
        prefix = self.ask("rev-parse", "--show-prefix").decode().strip()
        return [*parts, *(self._addition(name, prefix) for name in sorted(listed.decode().split("\0")) if name)]

    def _paths(self) -> list[str]:
        return [path for path in _PATHS if (self._root / path).exists()]

    def _addition(self, name: str, prefix: str) -> bytes:
        """A file that git does not know, as a part of a difference that adds it.

        Args:
            name: its path from the top of the checkout.
            prefix: that of the folder in which git is asked.
        """
        path = self._root / name.removeprefix(prefix)
        head = f"diff --git a/{name} b/{name}\nnew file mode 100644\n".encode()
        if path.is_symlink() or path.stat().st_size > _MAX_NEW_FILE_BYTES:
            return head + b"Binary files /dev/null and this one differ\n"
        content = path.read_bytes()
        if not content:
            return head
        lines = content.removesuffix(b"\n").split(b"\n")
        body = b"\n".join(b"+" + line for line in lines) + b"\n"
        end = b"" if content.endswith(b"\n") else b"\\ No newline at end of file\n"
        return head + f"--- /dev/null\n+++ b/{name}\n@@ -0,0 +1,{len(lines)} @@\n".encode() + body + end

    def _run(self, words: Sequence[str], output: IO[bytes]) -> None:
        command = [self._git, "-c", "core.fsmonitor=false", "-c", "core.quotepath=off", "--no-optional-locks", *words]
        # GIT_DIR and its like, as a hook sets them, would lead to another repository.
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        subprocess.run(
            command,
            cwd=self._root,
            env={**environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            timeout=max(0.1, self._deadline - time.monotonic()),
            check=True,
        )
