"""Gauges of runs, and the servers that read and draw them.

Alone: pytest tests/orchestrator/cluster/test_administration.py
"""

import json
import os
import re
import urllib.request
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from bert_core.objectives import OBJECTIVES
from orchestrator.base.errors import ClusterError
from orchestrator.base.results import MetricEvent
from orchestrator.cluster import administration as module
from orchestrator.cluster.administration import GAUGE_LABELS, metrics_servers, show_gauges
from tests.waiting import PATIENCE_S, wait_until

PROGRAM = """#!/bin/sh
echo "$0 $@" > {folder}/{name}.arguments
env > {folder}/{name}.part
mv {folder}/{name}.part {folder}/{name}.environment
exec sleep 600
"""


@pytest.fixture
def ray_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "ray" / "session_latest" / "metrics" / "prometheus"
    folder.mkdir(parents=True)
    (folder / "prometheus.yml").write_text("scrape_configs: []\n")
    return tmp_path / "ray"


def install(folder: Path, *names: str) -> None:
    """Programs that write down how they were called and stay."""
    for name in names:
        path = folder / name
        path.write_text(PROGRAM.format(folder=folder, name=name))
        path.chmod(0o755)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setattr(module.shutil, "which", lambda name: str(folder / name) if (folder / name).exists() else None)
    return folder


def test_both_servers_read_rays_configuration_and_answer_on_this_machine_alone(
    ray_folder: Path, programs: Path, tmp_path: Path
) -> None:
    install(programs, "prometheus", "grafana")
    with metrics_servers(ray_folder, tmp_path / "data") as servers:
        assert [server.name for server in servers] == ["prometheus", "grafana"]
        wait_until(lambda: (programs / "grafana.environment").exists(), "grafana was not started")
        wait_until(lambda: (programs / "prometheus.environment").exists(), "prometheus was not started")
        called = (programs / "prometheus.arguments").read_text()
        assert f"--config.file={ray_folder}/session_latest/metrics/prometheus/prometheus.yml" in called
        assert "--web.listen-address=127.0.0.1:" in called
        assert "GF_SERVER_HTTP_ADDR=127.0.0.1\n" in (programs / "grafana.environment").read_text()
        board = ray_folder / "session_latest" / "metrics" / "grafana" / "dashboards" / "bert-lab.json"
        assert json.loads(board.read_text())["uid"] == "bert-lab"
    assert all(server.process.poll() is not None for server in servers)


def test_prometheus_runs_alone_without_grafana(ray_folder: Path, programs: Path, tmp_path: Path) -> None:
    install(programs, "prometheus")
    with metrics_servers(ray_folder, tmp_path / "data") as servers:
        assert [server.name for server in servers] == ["prometheus"]


def test_without_prometheus_it_is_said_how_to_get_it(ray_folder: Path, programs: Path, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="apt install prometheus"), metrics_servers(ray_folder, tmp_path / "data"):
        pass


def test_where_no_dashboard_has_run_it_is_said_where_to_start_it(tmp_path: Path, programs: Path) -> None:
    install(programs, "prometheus")
    with pytest.raises(ClusterError, match="on the cluster's head"), metrics_servers(tmp_path, tmp_path / "data"):
        pass


def test_the_board_shows_measurements_that_there_are_with_their_labels() -> None:
    board = json.loads(files("orchestrator.cluster").joinpath("board.json").read_text())
    known = {"loss", "tokens_per_s", "learning_rate", "grad_norm", "data_wait_s", "checkpoint_s", "gpu_memory_bytes"}
    known |= {"step", "mfu"} | {name for objective in OBJECTIVES.values() for name in objective.curve_names}
    for panel in board["panels"]:
        (target,) = panel["targets"]
        gauge, labels = re.fullmatch(r"ray_bert_(\w+)\{(.*)\}", target["expr"]).groups()
        assert gauge in known, panel["title"]
        assert {label.partition("=")[0].strip() for label in labels.split(",")} <= set(GAUGE_LABELS)


@pytest.mark.ray
def test_prometheus_reads_them_where_ray_exports_its_own(ray_cluster: Any) -> None:
    import ray

    show_gauges("7f3a", "first try", MetricEvent(40, "train", {"loss": 2.5, "nsp-f1": 0.5}))
    (node,) = ray.nodes()
    address = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"

    def lines() -> list[str]:
        with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
            return [line for line in answer.read().decode().splitlines() if line.startswith("ray_bert_")]

    wait_until(lambda: len(lines()) >= 3, "Ray exports no gauge of the run")
    found = {line.partition("{")[0]: line for line in lines()}
    assert set(found) == {"ray_bert_loss", "ray_bert_nsp_f1", "ray_bert_step"}
    assert 'run="7f3a"' in found["ray_bert_loss"]
    assert 'name="first try"' in found["ray_bert_loss"]
    assert found["ray_bert_loss"].endswith(" 2.5")
