"""What tests of several packages share: one Ray for the whole session, started when the first test asks for it."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.browser import Browser, find_browser, open_browser
from tests.waiting import PATIENCE_S

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# No network: who tests the hub has one of its own (tests/hub_server.py).
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_CACHE"] = "/nonexistent"
# Before torch is imported: many threads on few cores make small models slower by far.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A busy machine is no failure: Ray's workers are as nice as other processes, and Ray has the patience of the tests.
os.environ.setdefault("RAY_worker_niceness", "0")
for timeout in (
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S",
    "RAY_gcs_server_port_wait_time_s",
    "RAY_worker_register_timeout_seconds",
):
    os.environ.setdefault(timeout, f"{PATIENCE_S:.0f}")
# A script's `&` ignores SIGINT for what it starts, and so would each process that a test interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("project", deadline=None)
settings.load_profile("project")


def pytest_configure(config: pytest.Config) -> None:
    """Ray warns about its own defaults; the project's warnings stay errors."""
    config.addinivalue_line("filterwarnings", r"ignore::DeprecationWarning:ray\..*")
    config.addinivalue_line("filterwarnings", r"ignore::FutureWarning:ray\..*")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that asks for a browser or an object store has the mark by which `make` leaves it out."""
    for item in items:
        for fixture, mark in (("browser", "browser"), ("s3_server", "s3")):
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(mark)


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Copies of remote files lie in a folder of this session, for the processes that it starts as well."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ORCHESTRATOR_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """A local Ray of 6 logical CPUs with a small object store; it is imported and started only on demand."""
    import ray

    ray.init(
        address="local",
        num_cpus=6,
        object_store_memory=300 << 20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A real browser without a window; skips where there is none."""
    program = find_browser()
    if program is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with open_browser(program, tmp_path_factory.mktemp("profile")) as opened:
        yield opened
