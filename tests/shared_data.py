"""Files beside a checkout for tests that want real input: data sets (`../shared/data`), odd files of all kinds
(`../shared/inputs`)."""

from pathlib import Path

import pytest

_CANDIDATE = Path(__file__).resolve().parents[2] / "shared" / "data"
SHARED_DATA: Path | None = _CANDIDATE if _CANDIDATE.is_dir() else None


def shared_file(relative: str) -> Path:
    """A file or folder of the shared data; skips the calling test with a reason where it is not there."""
    path = _CANDIDATE / relative
    if not path.exists():
        pytest.skip(f"{relative} of the shared data is not beside this checkout")
    return path


def shared_input(relative: str) -> Path:
    """A file or folder of the inputs as people have them; skips the calling test where they are not there."""
    path = _CANDIDATE.with_name("inputs") / relative
    if not path.exists():
        pytest.skip(f"{relative} of the shared inputs is not beside this checkout")
    return path
