"""The public data sets that lie beside a checkout (`../shared/data`), for tests that want real input."""

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
