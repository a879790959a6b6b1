"""The board below the browser: the list, pages, refusals, and who is answered.

Alone: pytest tests/orchestrator/reports/test_board.py
"""

import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from orchestrator.base.results import MetricEvent
from orchestrator.registry import Registry
from orchestrator.reports import board
from orchestrator.reports.board import build_app
from tests.orchestrator.registry.samples import new_run
from tests.orchestrator.reports.samples import HOSTILE, add_pretraining, add_sweep


@pytest.fixture
def client(registry: Registry) -> TestClient:
    return TestClient(build_app(registry), base_url="http://127.0.0.1:8100")


def listed(client: TestClient, **asked: str) -> list[str]:
    """Ids of the runs in the list, from the top."""
    return re.findall('name="run" value="([^"]*)"', client.get("/", params=asked).text)


def test_the_newest_runs_are_listed_and_a_query_finds_the_rest(
    registry: Registry, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two runs of one millisecond stand in the order of their ids.
    ids = [new_run(registry, name=f"run {number}", run_id=f"{number}" * 12) for number in range(7)]
    assert listed(client) == ids[::-1]
    monkeypatch.setattr(board, "MAX_ROWS", 3)
    assert listed(client) == ids[:3:-1]
    assert "the newest 3 of 7 runs" in client.get("/").text
    assert listed(client, query="name = 'run 0'") == [ids[0]]


def test_trials_and_archived_runs_come_on_request(registry: Registry, client: TestClient, tmp_path: Path) -> None:
    away = add_pretraining(registry)
    registry.annotations.set_flag(away, "archived")
    sweep = add_sweep(registry, tmp_path)
    assert listed(client) == [sweep]
    assert listed(client, archived="on") == [sweep, away]
    assert len(listed(client, trials="on", query="metrics.accuracy > 0.9 and kind = 'trial'")) == 3


def test_a_wrong_query_is_told_beside_the_form(registry: Registry, client: TestClient) -> None:
    answer = client.get("/", params={"query": "task ="})
    assert answer.status_code == 400
    assert 'name="query" value="task ="' in answer.text
    assert re.search(r"\n +\^", answer.text)


def test_what_is_at_work_is_looked_at_again(registry: Registry, client: TestClient) -> None:
    assert "<body data-live>" in client.get("/").text
    assert "<body>" in client.get(f"/runs/{add_pretraining(registry)}").text
    run_id = new_run(registry)
    registry.lifecycle.start_attempt(run_id)
    assert "<body data-live>" in client.get(f"/runs/{run_id}").text


def test_a_run_has_its_page_by_its_name_the_newest_of_several(registry: Registry, client: TestClient) -> None:
    new_run(registry, name="spring/tune")
    newest = new_run(registry, name="spring/tune")
    assert newest in client.get("/runs/spring/tune").text
    beside = client.get("/compare", params={"run": ["spring/tune", new_run(registry, name="summer")]})
    assert beside.status_code == 200


@pytest.mark.parametrize("path", ["/runs/zzz", "/tasks/zzz"])
def test_what_is_not_there_is_told_on_a_page(registry: Registry, client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert "zzz" in answer.text


def test_runs_of_any_name_stand_side_by_side_with_what_differs(registry: Registry, client: TestClient) -> None:
    ids = [
        new_run(registry, name=name, spec={"kind": "pretrain", "size": size, "seed": 0})
        for name, size in (("setting", "tiny"), ("run 0", "mini"), (HOSTILE, "base"))
    ]
    for run_id in ids:
        registry.metrics.record(run_id, [MetricEvent(step, "train", {"mlm_loss": 1.0 / step}) for step in (1, 2)])
    page = client.get("/compare", params={"run": ids}).text
    assert "".join(f"<td>{text}</td>" for text in ("size", "tiny", "mini", "base")) in page
    assert "<td>seed</td>" not in page
    assert "run 0, train" in page
    assert HOSTILE not in page
    assert all(f'<a href="/runs/{run_id}">' in page for run_id in ids)


@pytest.mark.parametrize("runs", [[], ["a"], list("abcdefghijklmnopqrstuvwxyz")])
def test_too_few_or_too_many_runs_are_refused(client: TestClient, runs: list[str]) -> None:
    assert client.get("/compare", params={"run": runs}).status_code == 400


def test_nobody_is_answered_by_a_strange_name_and_nothing_can_be_changed(
    registry: Registry, client: TestClient
) -> None:
    strange = TestClient(build_app(registry), base_url="http://evil.example:8100")
    assert strange.get("/").status_code == 400
    for path in ("/", "/compare"):
        assert client.post(path).status_code == 405
        assert client.delete(path).status_code == 405


def test_hostile_names_stay_text(registry: Registry, client: TestClient) -> None:
    run_id = new_run(registry, name=HOSTILE, task='"><script>')
    for path in ("/", f"/runs/{run_id}"):
        page = client.get(path, params={"query": f"name != '{HOSTILE[:20]}'"} if path == "/" else None).text
        assert HOSTILE not in page
        assert "&lt;/script&gt;" in page
        assert '"><script>' not in page.replace('role="img"', "")
