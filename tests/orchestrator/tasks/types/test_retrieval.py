"""Collections in BEIR's layout, and Cranfield. Alone: pytest tests/orchestrator/tasks/types/test_retrieval.py"""

import json
from collections import Counter
from pathlib import Path

import pytest

from orchestrator.base.errors import SpecError, TaskDataError
from orchestrator.specs import TaskSpec
from orchestrator.tasks.loading import load_task
from orchestrator.tasks.scoring import majority_baseline, prediction_rows, score
from orchestrator.tasks.types.retrieval import QueryExample, RankingPrediction
from tests.shared_data import shared_file

QUERIES = [{"_id": "q1", "text": "cats"}, {"_id": "q2", "text": "planes"}, {"_id": "q3", "text": "none"}]
JUDGMENTS = ["q2\tb\t1", "q1\ta\t2", "q1\td\t1", "q3\ta\t0"]


def collection(folder: Path, judgments: list[str] = JUDGMENTS, name: str = "qrels.tsv") -> TaskSpec:
    (folder / "corpus.jsonl").write_text('{"_id": "a", "text": "x"}\n')
    (folder / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in QUERIES))
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("query-id\tcorpus-id\tscore\n" + "".join(line + "\n" for line in judgments))
    return TaskSpec(id="own", head="retrieval", folder=str(folder))


def test_queries_come_in_their_order_with_their_gains_and_splits_have_files_of_their_own(tmp_path: Path) -> None:
    task = load_task(collection(tmp_path))
    assert (task.metric, task.splits) == ("ndcg_at_10", ("validation",))
    assert task.examples("validation") == (
        QueryExample("q1", "cats", {"a": 2.0, "d": 1.0}),
        QueryExample("q2", "planes", {"b": 1.0}),
    )
    for name in ("train", "dev", "test"):
        spec = collection(tmp_path, name=f"qrels/{name}.tsv")
    assert load_task(spec).splits == ("train", "validation", "test")


def test_rankings_are_scored_and_kept(tmp_path: Path) -> None:
    task = load_task(collection(tmp_path))
    found = [RankingPrediction(("d", "a")), RankingPrediction(("a",))]
    scores = score(task, "validation", found)
    assert (scores["recall_at_10"], scores["mrr_at_10"]) == (0.5, 0.5)
    assert scores["ndcg_at_10"] == pytest.approx((1 + 2 / 1.5849625) / (2 + 1 / 1.5849625) / 2)
    first, second = prediction_rows(task, "validation", found)
    assert first == {"id": "q1", "prediction": ["d", "a"], "gold": {"a": 2.0, "d": 1.0}, "found": True}
    assert not second["found"]
    assert majority_baseline(task, "validation")["recall_at_10"] == 0.0


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels.tsv"])
def test_every_file_of_a_collection_is_in_its_fingerprint(name: str, tmp_path: Path) -> None:
    task = load_task(collection(tmp_path))
    before = task.fingerprint("validation")
    with (tmp_path / name).open("a") as file:
        file.write("\n")
    assert task.fingerprint("validation") != before


def test_a_collection_that_has_moved_is_the_same(tmp_path: Path) -> None:
    tasks = []
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        tasks.append(load_task(collection(tmp_path / place)))
    here, there = (task.fingerprint("validation") for task in tasks)
    assert here == there


BROKEN = {"q9\ta\t1": "line 2: query-id 'q9' is not in", "q1\ta\tgood": "line 2: score 'good' is not a number"}
BROKEN |= {"q1\ta": "line 2: 2 fields", "q1\ta\t0": "gives no example"}


@pytest.mark.parametrize("judgment", BROKEN)
def test_a_broken_judgment_is_named(judgment: str, tmp_path: Path) -> None:
    with pytest.raises(TaskDataError, match=BROKEN[judgment]):
        load_task(collection(tmp_path, [judgment])).examples("validation")


@pytest.mark.parametrize(
    ("query", "complaint"),
    [({"_id": "q1", "text": "again"}, "_id 'q1' stands twice"), ({"_id": "q4", "text": " "}, "text holds no text")],
)
def test_a_broken_query_is_named_or_left_out(query: dict[str, str], complaint: str, tmp_path: Path) -> None:
    spec = collection(tmp_path)
    with (tmp_path / "queries.jsonl").open("a") as file:
        file.write(json.dumps(query) + "\n")
    with pytest.raises(TaskDataError, match=rf"queries\.jsonl, line 4: {complaint}"):
        load_task(spec).examples("validation")
    read = load_task(spec.model_copy(update={"on_bad_record": "skip"})).read("validation")
    assert (len(read.examples), read.bad.count) == (2, 1)


def test_a_collection_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"task\.folder: task own is read from a folder"):
        load_task(TaskSpec(id="own", head="retrieval"))
    with pytest.raises(TaskDataError, match=r"there is no corpus\.jsonl in"):
        load_task(TaskSpec(id="own", head="retrieval", folder=str(tmp_path)))
    spec = collection(tmp_path)
    (tmp_path / "qrels.tsv").unlink()
    with pytest.raises(TaskDataError, match=r"has neither qrels\.tsv nor qrels/dev\.tsv"):
        load_task(spec)


def test_cranfield_has_its_queries_and_codes() -> None:
    folder = shared_file("retrieval/cranfield")
    queries = load_task(TaskSpec(id="cranfield", folder=str(folder))).examples("validation")
    assert len(queries) == 225
    gains = Counter(gain for query in queries if isinstance(query, QueryExample) for gain in query.gains.values())
    assert sum(gains.values()) == 1837
    assert set(gains) == {1.0, 2.0, 3.0, 4.0}
