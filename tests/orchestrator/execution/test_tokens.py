"""Drivers that do not have a cluster's token.

Alone: .venv/bin/pytest tests/orchestrator/execution/test_tokens.py
"""

import subprocess
from pathlib import Path

import pytest

from tests.orchestrator.execution.ray_head import RayHead
from tests.waiting import PATIENCE_S


@pytest.mark.ray
def test_a_driver_with_a_wrong_token_is_told_of_the_token_and_of_nothing_else(
    ray_head: RayHead, tmp_path: Path
) -> None:
    (tmp_path / "words.txt").write_text("a tokenizer learns from words like these\n\n" * 300)
    (tmp_path / "words.yaml").write_text("kind: tokenizer\ncorpus: {files: [words.txt]}\nvocab_size: 120\n")
    environment = {name: value for name, value in ray_head.environment.items() if name != "RAY_AUTH_TOKEN_PATH"}
    done = subprocess.run(
        ["orchestrator", "--home", "home", "--address", ray_head.driver_address, "run", "words.yaml"],
        env=environment | {"RAY_AUTH_TOKEN": "0" * 64},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 5
    refusal = f"Error: Ray at {ray_head.driver_address} refuses the token, or there is none; set RAY_AUTH_MODE=token"
    assert done.stderr.splitlines()[-1].startswith(refusal)
    assert "gcs_client" not in done.stderr
