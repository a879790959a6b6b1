"""Edges, trees, and what is stale. Alone: pytest tests/orchestrator/registry/test_lineage.py"""

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, update

from orchestrator.base.errors import NotFoundError
from orchestrator.base.results import DatasetResult, FileCount, TokenizerResult
from orchestrator.base.run_states import RunState
from orchestrator.registry import Registry
from orchestrator.registry.lineage import LineageTree
from orchestrator.registry.parameters import trial_id
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.registry.tables import ALL_RUNS, LINEAGE
from orchestrator.reports.model_export import write_card
from tests.orchestrator.registry.samples import model_result, trial_result

TOKENIZER, CORPUS, TASK = "a" * 64, "b" * 64, "c" * 64
PRETRAINED, TUNED, STUDENT = "1" * 64, "2" * 64, "3" * 64


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A file of text that was last written an hour ago."""
    path = tmp_path / "text.txt"
    path.write_text("words\n" * 100)
    an_hour_ago = time.time() - 3600
    os.utime(path, (an_hour_ago, an_hour_ago))
    return path


def complete(recorder: Recorder, run_id: str, **outcome: Any) -> str:
    recorder.complete(run_id, RunOutcome(**outcome))
    return run_id


def train_tokenizer(recorder: Recorder, text: Path, digest: str = TOKENIZER) -> str:
    run = recorder.start({"kind": "tokenizer", "name": "life/words", "corpus": {"files": [str(text)]}}, "f")
    recorder.registry.datasets.record_tokenizer(run.id, TokenizerResult("storage/tokenizers/words", digest, 100))
    return complete(recorder, run.id)


def pretrain(recorder: Recorder, text: Path, digest: str = PRETRAINED, **spec: Any) -> str:
    own = {"kind": "pretrain", "name": "life/encoder", "tokenizer": "storage/tokenizers/words", "init_from": "random"}
    run = recorder.start(own | spec, "f")
    files = [FileCount(str(text), text.stat().st_size if text.exists() else 600, 5)]
    recorder.registry.datasets.record(run.id, DatasetResult("text.txt", "corpus", CORPUS, "/corpora/b", {}, files))
    recorder.record_model(run.id, model_result(digest))
    return complete(recorder, run.id, model_folder=f"storage/{digest}")


def fine_tune(recorder: Recorder, starts: tuple[str, ...] = ("life/encoder@1",), digest: str = TUNED) -> str:
    """A sweep over models to start from; the last one wins."""
    run = recorder.start(
        {"kind": "sweep", "name": "life/tuned", "recipe": {"init_from": starts[0]}, "task": {"id": "sst2"}}, "f"
    )
    recorder.registry.datasets.record(run.id, DatasetResult("sst2", "task", TASK, "/features", {}, ()))
    results = [
        trial_result(
            f"k{n}",
            number=n,
            parameters={"init_from": name},
            model=model_result(digest if n == len(starts) - 1 else "9" * 64),
        )
        for n, name in enumerate(starts)
    ]
    recorder.registry.trials.record(run.id, results)
    recorder.record_model(run.id, model_result(digest))
    return complete(recorder, run.id, model_folder=f"storage/{digest}")


def distill(recorder: Recorder, teacher: str = "life/tuned@1", digest: str = STUDENT) -> str:
    spec = {"kind": "distill", "name": "life/student", "teacher": teacher, "recipe": {"init_from": "random"}}
    run = recorder.start(spec | {"task": {"id": "sst2"}}, "f")
    recorder.registry.datasets.record(run.id, DatasetResult("sst2", "task", TASK, "/features", {}, ()))
    recorder.record_model(run.id, model_result(digest))
    return complete(recorder, run.id, model_folder=f"storage/{digest}")


@pytest.fixture
def life(registry: Registry, text: Path) -> Registry:
    """A whole life: text, tokenizer, pretraining, fine-tuning, distillation, export."""
    recorder = Recorder(registry)
    train_tokenizer(recorder, text)
    pretrain(recorder, text)
    fine_tune(recorder)
    distill(recorder)
    registry.lineage.record_export(f"storage/{STUDENT}", "/exports/student")
    return registry


def drawn(tree: LineageTree) -> list[str]:
    """Lines of a tree, indented by depth; paths by their last part."""
    role = f"{tree.role}: " if tree.role else ""
    name = Path(tree.node.name).name if tree.node.kind in ("file", "tokenizer") else tree.node.name
    again = " (again)" if tree.is_repeated else ""
    below = [f"  {line}" for branch in tree.branches for line in drawn(branch)]
    return [f"{role}{tree.node.kind} {name}{again}", *below]


def parents(registry: Registry, name: str, role: str) -> list[LineageTree]:
    """Branches to the parents of a node that had this role."""
    return [branch for branch in registry.lineage.tree(name).branches if branch.role == role]


def stale(tree: LineageTree) -> dict[str, str]:
    """Reasons by the names of the stale nodes of a tree."""
    own = {tree.node.name: tree.stale} if tree.stale else {}
    for branch in tree.branches:
        own |= stale(branch)
    return own


def test_a_model_leads_back_to_the_files_of_its_text(life: Registry) -> None:
    assert drawn(life.lineage.tree("life/student")) == [
        "model life/student@1",
        "  examples: task sst2",
        "  teacher: model life/tuned@1",
        "    examples: task sst2",
        "    weights: model life/encoder@1",
        "      text: corpus text.txt",
        "        text: file text.txt",
        "        tokenizer: tokenizer words",
        "          text: file text.txt",
        "      tokenizer: tokenizer words (again)",
    ]


def test_a_file_leads_to_all_that_was_made_of_it_and_to_exports(life: Registry, text: Path) -> None:
    assert drawn(life.lineage.tree(str(text), downward=True)) == [
        "file text.txt",
        "  text: tokenizer words",
        "    tokenizer: model life/encoder@1",
        "      weights: model life/tuned@1",
        "        teacher: model life/student@1",
        "          copy: export /exports/student",
        "    tokenizer: corpus text.txt",
        "      text: model life/encoder@1 (again)",
        "  text: corpus text.txt (again)",
    ]


@pytest.mark.parametrize(
    "name",
    ["life/student", "life/student@1", f"storage/{STUDENT}", STUDENT[:8], "text.txt", "/exports/student", CORPUS[:12]],
)
@pytest.mark.heavy
def test_things_are_found_by_name_folder_path_or_digest(life: Registry, name: str) -> None:
    assert life.lineage.tree(name)
    (run_id,) = life.runs("name = 'life/encoder'").id
    assert life.lineage.tree(run_id[:6]).node.name == "life/encoder@1"
    assert life.lineage.tree("life/words").node.digest == TOKENIZER


def test_a_trial_leads_to_the_model_that_its_sweep_kept_of_it(registry: Registry, text: Path) -> None:
    recorder = Recorder(registry)
    pretrain(recorder, text)
    pretrain(recorder, text, "4" * 64)
    sweep = fine_tune(recorder, ("life/encoder@1", "life/encoder@2"))
    assert registry.lineage.tree(trial_id(sweep, "k1")).node.digest == TUNED
    (weights,) = parents(registry, TUNED[:8], "weights")
    assert weights.node.name == "life/encoder@2"
    with pytest.raises(NotFoundError, match=r"trial.* made nothing that stands in the lineage"):
        registry.lineage.tree(trial_id(sweep, "k0"))


def test_a_run_that_made_nothing_says_so(registry: Registry) -> None:
    recorder = Recorder(registry)
    run_id = complete(recorder, recorder.start({"kind": "evaluate", "name": "scored"}, "f").id)
    with pytest.raises(NotFoundError, match=rf"run {run_id} \(scored, evaluate\) made nothing .*runs show {run_id}"):
        registry.lineage.tree("scored", downward=True)


def test_a_name_that_begins_a_runs_id_as_well_is_the_name(registry: Registry, text: Path) -> None:
    recorder = Recorder(registry)
    runs = [recorder.start({"kind": "pretrain"}, "f", run_id=f"face0{n}000000") for n in range(2)]
    for run, digest in zip(runs, (PRETRAINED, TUNED), strict=True):
        recorder.registry.datasets.record(run.id, DatasetResult("face", "corpus", "e" + digest[1:], "/c", {}, ()))
        recorder.record_model(run.id, model_result(digest))
        complete(recorder, run.id)
    assert registry.lineage.tree("face").node.kind == "corpus"
    assert registry.lineage.tree("face01").node.digest == TUNED
    with pytest.raises(NotFoundError, match="face0"):
        registry.lineage.tree("face0")


@pytest.mark.parametrize("name", ["nothing", "", "%", "zz" * 8, "../x"])
@pytest.mark.heavy
def test_what_is_not_there_is_refused_with_the_models_that_are(life: Registry, name: str) -> None:
    with pytest.raises(NotFoundError, match="life/student@1"):
        life.lineage.tree(name)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda path: path.unlink(), "text.txt is gone"),
        (lambda path: path.write_text("other"), "text.txt has 5 bytes now, 600 were read"),
        (lambda path: os.utime(path, (time.time() + 60, time.time() + 60)), "text.txt was written again, "),
    ],
)
def test_all_that_was_made_of_a_changed_file_is_stale(life: Registry, text: Path, change: Any, reason: str) -> None:
    change(text)
    found = stale(life.lineage.tree(str(text), downward=True))
    assert found.keys() == {
        "storage/tokenizers/words", "text.txt", "life/encoder@1", "life/tuned@1", "life/student@1", "/exports/student"
    }  # fmt: skip
    assert found["text.txt"].startswith(reason)
    assert found["life/tuned@1"] == "made of life/encoder@1, which is stale"
    assert stale(life.lineage.tree("life/student"))["life/student@1"].startswith("made of life/tuned@1")


def test_a_file_that_was_only_touched_is_not_stale_where_its_digest_is_known(registry: Registry, text: Path) -> None:
    recorder = Recorder(registry)
    run = recorder.start({"kind": "corpus", "name": "life/store"}, "f")
    digest = hashlib.sha256(text.read_bytes()).hexdigest()
    files = [FileCount(str(text), text.stat().st_size, 5, digest=digest)]
    recorder.registry.datasets.record(run.id, DatasetResult("text.txt", "corpus", CORPUS, "/corpora/b", {}, files))
    complete(recorder, run.id)
    soon = time.time() + 60
    os.utime(text, (soon, soon))
    assert stale(registry.lineage.tree(str(text), downward=True)) == {}
    text.write_text("WORDS\n" * 100)
    os.utime(text, (soon - 3600, soon - 3600))
    assert stale(registry.lineage.tree(str(text), downward=True)) == {}, "neither size nor time differ"
    os.utime(text, (soon, soon))
    assert stale(registry.lineage.tree(str(text), downward=True))["text.txt"].startswith("text.txt was written again, ")


def test_a_newer_version_of_a_model_makes_its_children_stale(life: Registry, text: Path) -> None:
    pretrain(Recorder(life), text, "4" * 64)
    found = stale(life.lineage.tree("life/encoder@1", downward=True))
    assert found["life/tuned@1"] == "life/encoder@2 is newer"
    assert found["life/student@1"] == "made of life/tuned@1, which is stale"
    fine_tune(Recorder(life), ("life/encoder@2",), "5" * 64)
    assert "life/tuned@2" not in stale(life.lineage.tree("life/encoder@2", downward=True))


def test_a_tokenizer_that_was_trained_again_makes_its_children_stale(life: Registry, text: Path) -> None:
    again = train_tokenizer(Recorder(life), text, "d" * 64)
    assert stale(life.lineage.tree(TOKENIZER[:12], downward=True))["life/encoder@1"] in (
        f"run {again} made life/words again, otherwise",
        "made of text.txt, which is stale",
    )


def test_files_of_another_machine_are_not_looked_for(registry: Registry, tmp_path: Path) -> None:
    recorder = Recorder(registry)
    run_id = pretrain(recorder, tmp_path / "elsewhere.txt")
    assert stale(registry.lineage.tree("life/encoder")) != {}
    with registry._database.connection(writing=True) as connection:
        connection.execute(update(ALL_RUNS).where(ALL_RUNS.c.id == run_id).values(host="another"))
    assert stale(registry.lineage.tree("life/encoder")) == {}


def test_a_run_has_edges_from_its_completion_on(registry: Registry, text: Path) -> None:
    recorder = Recorder(registry)
    run = recorder.start({"kind": "pretrain", "init_from": "x@1"}, "f")
    recorder.record_model(run.id, model_result(PRETRAINED))
    registry.lifecycle.finish(run.id, RunState.FAILED)
    assert registry.lineage.tree(f"storage/{PRETRAINED}").branches == ()
    registry.lifecycle.finish(run.id, RunState.COMPLETED)
    assert [branch.node.name for branch in registry.lineage.tree(f"storage/{PRETRAINED}").branches] == ["x@1"]


def test_a_run_completes_whatever_became_of_its_files(registry: Registry, text: Path) -> None:
    recorder = Recorder(registry)
    run = recorder.start({"kind": "tokenizer", "corpus": {"files": [f"a[b]{'c' * 300}"]}}, "f")
    recorder.registry.datasets.record_tokenizer(run.id, TokenizerResult("storage/words", TOKENIZER, 100))
    complete(recorder, run.id)
    assert registry.run(run.id).state == RunState.COMPLETED


def test_a_card_lists_what_the_model_was_made_of(life: Registry) -> None:
    assert """- weights: model `life/encoder@1`
  - text: corpus `text.txt`
    - tokenizer: tokenizer `""" in write_card("life/tuned", life)


def test_a_token_stores_tokenizer_is_the_one_that_it_was_made_with(registry: Registry, text: Path) -> None:
    """Not the newest one of its folder, nor, where the run has recorded no digest, a later one."""
    recorder = Recorder(registry)
    train_tokenizer(recorder, text)
    train_tokenizer(recorder, text, "e" * 64)
    run = recorder.start({"kind": "pretrain", "name": "p", "tokenizer": "storage/tokenizers/words"}, "f")
    recorder.registry.datasets.record(
        run.id, DatasetResult("t", "corpus", CORPUS, "/b", {}, tokenizer_digest=TOKENIZER)
    )
    complete(recorder, run.id)
    former = recorder.start({"kind": "pretrain", "name": "q", "tokenizer": "storage/tokenizers/words"}, "f")
    recorder.registry.datasets.record(former.id, DatasetResult("u", "corpus", "d" * 64, "/d", {}))
    train_tokenizer(recorder, text, "7" * 64)
    complete(recorder, former.id)
    for data, tokenizer in ((CORPUS, TOKENIZER), ("d" * 64, "e" * 64)):
        (parent,) = parents(registry, data[:8], "tokenizer")
        assert (parent.node.digest, parent.node.name) == (tokenizer, "storage/tokenizers/words")


def test_edges_outlive_their_run(life: Registry) -> None:
    (run_id,) = {branch.run_id for branch in life.lineage.tree(PRETRAINED[:8]).branches}
    assert run_id is not None
    life.lifecycle.remove(run_id)
    assert {branch.run_id for branch in life.lineage.tree(PRETRAINED[:8]).branches} == {None}


@pytest.mark.parametrize("name", ["two\nlines", "a\0b", "\udc80", "🤖", "'; DROP TABLE lineage; --", "x" * 5000])
def test_hostile_names_are_names(registry: Registry, text: Path, name: str) -> None:
    recorder = Recorder(registry)
    pretrain(recorder, text, init_from=name)
    (weights,) = parents(registry, PRETRAINED[:8], "weights")
    assert registry.lineage.tree(weights.node.digest, downward=True).branches[0].node.digest == PRETRAINED


def test_a_long_chain_is_drawn(registry: Registry) -> None:
    edges = [
        {"child": f"{number:04}", "parent": f"{number - 1:04}", "role": "weights", "child_kind": "model"}
        | {"child_name": f"m@{number}", "parent_kind": "model", "parent_name": f"m@{number - 1}"}
        for number in range(1, 401)
    ]
    with registry._database.connection(writing=True) as connection:
        connection.execute(insert(LINEAGE), edges)
    tree, depth = registry.lineage.tree("m@0", downward=True), 0
    while tree.branches:
        (tree,), depth = tree.branches, depth + 1
    assert depth == 400
