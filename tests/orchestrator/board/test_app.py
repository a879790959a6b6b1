"""The board below the browser: windows of the list, pages, refusals, and who is answered.

Alone: pytest tests/orchestrator/board/test_app.py
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from orchestrator.board.app import build_app
from orchestrator.registry import Registry
from orchestrator.registry.run_differences import compare_runs
from orchestrator.reports.difference_texts import field_text
from orchestrator.results import DatasetResult, MetricEvent
from tests.orchestrator.registry.samples import made_with, new_run
from tests.orchestrator.reports.samples import HOSTILE, add_pretraining, add_sweep

ADDRESS = "http://127.0.0.1:8100"


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    with Registry(str(tmp_path / "registry.sqlite")) as opened:
        yield opened


@pytest.fixture
def client(registry: Registry) -> TestClient:
    return TestClient(build_app(registry), base_url=ADDRESS)


def test_windows_of_the_list_join_without_a_gap(registry: Registry, client: TestClient) -> None:
    ids = {new_run(registry, name=f"run {number}") for number in range(7)}
    whole = [row["id"] for row in client.get("/rows", params={"sort": "created_at"}).json()["rows"]]
    assert set(whole) == ids
    rows = []
    for offset in range(0, 7, 3):
        answer = client.get("/rows", params={"offset": offset, "limit": 3, "sort": "created_at"}).json()
        assert answer["total"] == 7
        rows += answer["rows"]
    assert [row["id"] for row in rows] == whole


@pytest.mark.parametrize("descending", [True, False])
def test_windows_of_a_list_sorted_by_a_metric_end_with_runs_that_lack_it(
    registry: Registry, client: TestClient, descending: bool
) -> None:
    ids = [new_run(registry, name=f"run {number}") for number in range(9)]
    for number, run_id in enumerate(ids[:4]):
        registry.metrics.record(run_id, [MetricEvent(1, "validation", {"f1": 0.1 * number})])
    sort = "-metrics.f1" if descending else "metrics.f1"
    rows = [
        row["id"]
        for offset in range(0, 9, 2)
        for row in client.get("/rows", params={"offset": offset, "limit": 2, "sort": sort}).json()["rows"]
    ]
    whole = client.get("/rows", params={"sort": sort}).json()["rows"]
    assert rows == [row["id"] for row in whole]
    assert rows[:4] == (ids[:4][::-1] if descending else ids[:4])


def test_a_query_selects_and_trials_come_on_request(registry: Registry, client: TestClient, tmp_path: Path) -> None:
    add_pretraining(registry)
    add_sweep(registry, tmp_path)
    assert client.get("/rows").json()["total"] == 2
    answer = client.get("/rows", params={"trials": "yes", "filter": "metrics.accuracy > 0.9 and kind = 'trial'"}).json()
    assert answer["total"] == len(answer["rows"]) == 3
    assert all(row["score"].endswith(" accuracy") for row in answer["rows"])


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"filter": "task ="}, "The query ends too early"),
        ({"sort": "nonsense"}, "No run has a field 'nonsense'"),
        ({"offset": "many"}, "offset and limit are whole numbers"),
    ],
)
def test_a_wrong_request_is_told(client: TestClient, registry: Registry, query: dict[str, str], says: str) -> None:
    add_pretraining(registry)
    answer = client.get("/rows", params=query)
    assert answer.status_code == 400
    assert says in answer.json()["error"]


def test_an_archived_pipelines_stages_are_neither_listed_nor_counted(registry: Registry, client: TestClient) -> None:
    whole = new_run(registry, kind="pipeline", name="whole")
    new_run(registry, name="whole/words", tags=[f"pipeline:{whole}"])
    before = client.get("/rows").json()["total"]
    registry.annotations.set_flag(whole, "archived")
    answer = client.get("/rows").json()
    assert answer["total"] == before - 2
    assert not {"whole", "whole/words"} & {row["name"] for row in answer["rows"]}


def test_archived_runs_are_in_the_list_on_request_alone(registry: Registry, client: TestClient) -> None:
    kept, away = new_run(registry, name="kept"), new_run(registry, name="away")
    registry.annotations.set_flag(away, "archived")
    answer = client.get("/rows").json()
    assert ([row["id"] for row in answer["rows"]], answer["total"]) == ([kept], 1)
    for offset, shown in ((0, [away, kept]), (1, [kept])):
        answer = client.get("/rows", params={"archived": "yes", "offset": offset, "sort": "name"}).json()
        assert ([row["id"] for row in answer["rows"]], answer["total"]) == (shown, 2)


def test_a_window_beyond_the_list_is_empty(client: TestClient, registry: Registry) -> None:
    add_pretraining(registry)
    answer = client.get("/rows", params={"offset": str(10**30)})
    assert (answer.status_code, answer.json()) == (200, {"rows": [], "total": 1})


def test_a_run_has_its_page_and_one_at_work_is_looked_at_again(registry: Registry, client: TestClient) -> None:
    done = client.get(f"/runs/{add_pretraining(registry)}")
    assert done.status_code == 200
    assert "data-refresh-s" not in done.text.partition("<body")[2][:40]
    run_id = new_run(registry)
    registry.lifecycle.start_attempt(run_id)
    assert 'data-refresh-s="5.0"' in client.get(f"/runs/{run_id}").text


def test_a_run_has_its_page_by_its_name_the_newest_of_several(registry: Registry, client: TestClient) -> None:
    new_run(registry, name="spring/tune")
    newest = new_run(registry, name="spring/tune")
    answer = client.get("/runs/spring/tune")
    assert answer.status_code == 200
    assert newest in answer.text
    beside = client.get("/compare", params={"runs": f"spring/tune,{new_run(registry, name='summer')}"})
    assert beside.status_code == 200


def test_an_unknown_run_is_told_on_a_page(client: TestClient, registry: Registry) -> None:
    new_run(registry, name="spring/tune")
    answer = client.get("/runs/zzz")
    assert answer.status_code == 404
    assert "zzz" in answer.text
    assert "did you mean spring/tune?" in client.get("/runs/spring/tun").text


def test_runs_stand_side_by_side_with_what_differs(registry: Registry, client: TestClient) -> None:
    ids = [
        new_run(registry, name=f"size {size}", spec={"kind": "pretrain", "size": size, "seed": 0})
        for size in ("tiny", "mini")
    ]
    for run_id in ids:
        registry.metrics.record(run_id, [MetricEvent(step, "train", {"mlm_loss": 1.0 / step}) for step in (1, 2)])
    page = client.get("/compare", params={"runs": ",".join(ids)})
    assert page.status_code == 200
    assert "<td>size</td>" in page.text
    assert "<td>seed</td>" not in page.text
    assert "size tiny, train" in page.text


def test_a_run_of_any_name_has_a_column_of_its_own_beside_others(registry: Registry, client: TestClient) -> None:
    ids = [
        new_run(registry, name=name, spec={"kind": "pretrain", "size": size})
        for name, size in (("setting", "tiny"), ("run", "mini"), ("c", "base"))
    ]
    page = client.get("/compare", params={"runs": ",".join(ids)}).text
    cells = "".join(f"<td>{text}</td>" for text in ("size", "tiny", "mini", "base"))
    assert cells in page


def test_two_runs_are_compared_by_all_that_runs_diff_tells(registry: Registry, client: TestClient) -> None:
    ids = [
        new_run(registry, name=name, spec={"kind": "pretrain", "value": value})
        for name, value in (("a", 1), ("b", HOSTILE))
    ]
    for number, run_id in enumerate(ids):
        made = made_with("ab"[number] * 40)
        registry.lifecycle.start_attempt(run_id, made_with=made)
        counts = {"num_documents": 10 + number}
        registry.datasets.record(run_id, DatasetResult("text", "corpus", str(number) * 64, "/data", counts))
        registry.metrics.record(run_id, [MetricEvent(1, "validation", {"mlm_loss": 2.0 + number})])
    page = client.get("/compare", params={"runs": ",".join(ids)}).text
    found = compare_runs(registry, *ids).differences
    assert {each.section for each in found} >= {"spec", "data", "code", "scores"}
    for each in found:
        assert f">{field_text(each.field)}</td>" in page
    assert "+1</td>" in page
    assert "bbbbbbbbbbbb" in page
    assert HOSTILE not in page
    assert all(f'<a href="/runs/{run_id}">{run_id}</a>' in page for run_id in ids)


def test_a_run_compared_with_itself_is_the_same(registry: Registry, client: TestClient) -> None:
    run_id = add_pretraining(registry)
    page = client.get("/compare", params={"runs": f"{run_id},{run_id}"}).text
    assert "The same in both: kind, task and state, scores, speed." in page


def test_a_window_is_counted_unless_that_is_refused(registry: Registry, client: TestClient) -> None:
    new_run(registry)
    assert "total" in client.get("/rows").json()
    assert "total" not in client.get("/rows", params={"count": "no"}).json()


@pytest.mark.parametrize("runs", ["", "a", ",".join("abcdefghijklmnopqrstuvwxyz")])
def test_too_few_or_too_many_runs_are_refused(client: TestClient, runs: str) -> None:
    answer = client.get("/compare", params={"runs": runs})
    assert answer.status_code == 400
    assert "name 2 to 20 runs" in answer.text


def test_nobody_is_answered_by_a_strange_name_and_nothing_can_be_changed(
    registry: Registry, client: TestClient
) -> None:
    strange = TestClient(build_app(registry), base_url="http://evil.example:8100")
    assert strange.get("/rows").status_code == 400
    for path in ("/", "/rows", "/compare"):
        assert client.post(path).status_code == 405
        assert client.delete(path).status_code == 405


def test_hostile_names_stay_text(registry: Registry, client: TestClient) -> None:
    run_id = new_run(registry, name=HOSTILE)
    assert HOSTILE not in client.get(f"/runs/{run_id}").text
