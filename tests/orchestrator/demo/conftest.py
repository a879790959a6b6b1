"""The demo's generated files, written once for all tests that read them."""

import pytest

from orchestrator.demo.demo_data import DemoData, write_demo_data


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> DemoData:
    return write_demo_data(tmp_path_factory.mktemp("demo"), seed=0)
