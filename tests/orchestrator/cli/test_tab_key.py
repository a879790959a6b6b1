"""Completion by the Tab key in bash, zsh and fish themselves, each on a terminal; a missing shell is skipped.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_tab_key.py
"""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.registry import Registry
from orchestrator.results import ModelResult
from orchestrator.settings import Settings
from tests.contracts.imports import ROOT
from tests.orchestrator.cli.laboratory import RecordedSweep
from tests.orchestrator.cli.typed_shell import SHELLS, TypedShell, typed_shell

SPEC = "kind: sweep\ntask: {id: sst2, folder: data}\n"


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest, recorded_sweep: RecordedSweep, tmp_path: Path) -> Iterator[TypedShell]:
    """A shell in a folder with a spec and a folder; its registry has a sweep and a model."""
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed: apt-get install {request.param}")
    with Registry(Settings.from_options().registry) as registry:
        registry.models.register("minilm", ModelResult("m", "a" * 64, 1, "pretraining"))
    (tmp_path / "tiny.yaml").write_text(SPEC)
    (tmp_path / "notes").mkdir()
    script = tmp_path / "bin" / "orchestrator"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'from orchestrator.cli import main; main()' \"$@\"\n")
    script.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{script.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "TERM": "dumb",
    }
    with typed_shell(SHELLS[request.param], environment) as typed:
        yield typed


def test_a_command_and_an_option_are_completed_with_a_space_behind(shell: TypedShell) -> None:
    assert shell.line_after("orchestrator lea") == "orchestrator leaderboard "
    assert shell.line_after("orchestrator runs list --tri") == "orchestrator runs list --trials "


def test_a_field_of_a_spec_waits_for_its_value_and_the_value_is_completed(shell: TypedShell) -> None:
    assert shell.line_after("orchestrator run tiny.yaml recipe.bat") == "orchestrator run tiny.yaml recipe.batch_size="
    line = "orchestrator run tiny.yaml recipe.precision=b"
    assert shell.line_after(line) == "orchestrator run tiny.yaml recipe.precision=bf16 "


def test_a_run_and_a_version_of_a_model_are_completed(shell: TypedShell, recorded_sweep: RecordedSweep) -> None:
    run_id = recorded_sweep.run_id
    assert shell.line_after(f"orchestrator runs show {run_id[:4]}") == f"orchestrator runs show {run_id} "
    for typed in ("minilm@", "minilm@1"):
        assert shell.line_after(f"orchestrator models show {typed}") == "orchestrator models show minilm@1 "


def test_a_folder_is_completed_where_a_model_may_be_one(shell: TypedShell) -> None:
    assert shell.line_after("orchestrator predict ./no") == "orchestrator predict ./notes/"


def test_what_nothing_fits_stays_as_it_was_typed(shell: TypedShell) -> None:
    assert shell.line_after("orchestrator runs show zzzz") == "orchestrator runs show zzzz"
