"""Commands by a dashboard's address alone: which are sent to the cluster's head, in which words, and `submit`.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_head.py
"""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.base.errors import ClusterError
from orchestrator.base.run_states import is_run_id
from orchestrator.base.settings import Settings
from orchestrator.cli.entry import Interrupted
from orchestrator.cli.frame import ON_HEAD, ON_THIS_MACHINE
from orchestrator.cli.tree import PLACES
from orchestrator.execution.head_commands import HeadAnswer
from tests.orchestrator.cli.laboratory import Command
from tests.orchestrator.execution.job_cluster import Details, JobCluster, Status

ADDRESS = "http://127.0.0.1:8265"
RUN_ID = "7f3a90b1c2d4"


class Head:
    """Stands for the cluster's head: keeps the commands, and answers each as a test has said."""

    def __init__(self) -> None:
        self.words: list[str] = []
        """Words of the last command."""
        self.files: dict[str, bytes] = {}
        self.answer = HeadAnswer(0, b"", b"")

    def ask(
        self,
        words: Sequence[str],
        settings: Settings,
        address: str,
        *,
        files: dict[str, bytes] | None = None,
        returned: str | None = None,
    ) -> HeadAnswer:
        assert address == ADDRESS
        self.words, self.files = list(words), files or {}
        return self.answer


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Head:
    made = Head()
    monkeypatch.setattr("orchestrator.execution.head_commands.ask_head", made.ask)
    return made


@pytest.mark.parametrize(
    "words",
    [
        "runs list --trials -f csv --limit 5",
        "runs list --state FAILED --state LOST",
        "runs edit --note looked --unpin -- 7f3a",
        "runs logs --worker 1 -- 7f3a",
        "query --sort -name -- \"metrics.f1 > 0.9 and name = 'a b'\"",
        "stop --force --timeout 5.0 -- 7f3a",
        "gc --dry-run --older-than 90d",
    ],
)
def test_a_command_goes_to_the_head_in_the_words_that_were_typed(command: Command, head: Head, words: str) -> None:
    head.answer = HeadAnswer(4, "data é".encode(), "a word ä\n".encode())
    outcome = command("--address", ADDRESS, *shlex.split(words))
    assert (outcome.status, outcome.out) == (4, "data é")
    assert outcome.err.endswith("a word ä\n")
    assert [word for word in head.words if word in shlex.split(words)] == shlex.split(words)


def test_every_command_is_sent_kept_here_or_needs_no_registry() -> None:
    local = {"demo", "init", "run", "submit", "verify-resume", "corpus", "tokenizer", "schema", "cluster"}
    alone = {path for path in ON_THIS_MACHINE if " " not in path}
    assert ON_HEAD | alone | local | {"help", "completion"} == set(PLACES)


def test_on_a_cluster_the_registry_is_read_where_the_command_is(
    command: Command, head: Head, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    assert command("runs", "list", "--address", ADDRESS, "--registry", str(home / "r.sqlite")).status == 4
    assert command("schema", "--address", ADDRESS).status == 0
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", ADDRESS)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert command("runs", "list").status == 0
    assert head.words == []
    monkeypatch.delenv("RAY_ADDRESS")
    assert command("runs", "list", "--debug").status == 0
    assert head.words == ["runs", "list", "--debug"]


@pytest.mark.parametrize("words", ["resume 7f3a", "predict m", "models export m -o to"])
def test_a_command_of_this_machine_alone_says_so(command: Command, head: Head, words: str) -> None:
    outcome = command(*words.split(), "--address", ADDRESS)
    assert (outcome.status, outcome.out, head.words) == (2, "", [])
    assert "submit --resume" in outcome.err


@pytest.mark.parametrize("words", ["runs list -o {}/runs.csv", "runs plot 7f3a -o {}/runs.csv"])
def test_a_file_is_written_here(command: Command, head: Head, tmp_path: Path, words: str) -> None:
    head.answer = HeadAnswer(0, b"", b"", b"\x89 bytes")
    assert command(*words.format(tmp_path).split(), "--address", ADDRESS).status == 0
    assert (tmp_path / "runs.csv").read_bytes() == b"\x89 bytes"
    assert "-o runs.csv" in shlex.join(head.words)


def test_a_plan_sends_the_spec_with_its_overrides_in_it(command: Command, head: Head, spec: str) -> None:
    assert command("plan", spec, "vocab_size=123", "--address", ADDRESS, "-f", "json").status == 0
    assert head.words == ["plan", "-f", "json", "--", "spec.yaml"]
    (text,) = head.files.values()
    assert b'"vocab_size": 123' in text
    assert b'"name": "words"' in text


def test_a_followed_log_is_that_of_the_runs_newest_job(command: Command, cluster: JobCluster, head: Head) -> None:
    for job_id, name in ((RUN_ID, "words"), (f"{RUN_ID}-2", "words"), ("0a00c4d5e6f7", "others")):
        metadata = {"role": "run", "run_id": job_id[:12], "job_name": name}
        cluster.submitted[job_id] = {"metadata": metadata}
        cluster.logs[job_id], cluster.ends[job_id] = f"log of {job_id}\n", Details(Status.FAILED, 1)
    for run in ("words", "7f3a"):
        outcome = command("runs", "logs", "--follow", run, "--address", ADDRESS)
        assert (outcome.status, outcome.out) == (1, f"log of {RUN_ID}-2\n")
    assert command("runs", "logs", "--follow", "beef", "--address", ADDRESS).status == 3
    assert head.words == []


@pytest.mark.heavy
def test_a_plan_on_the_head_is_the_heads(command: Command, cluster: JobCluster, spec: str, tmp_path: Path) -> None:
    """The whole way, without Ray: a job on this machine with a home of its own."""
    done = command("plan", spec, "--address", ADDRESS, "-f", "csv")
    assert done.status == 0, done.err
    assert "tokenizer" in done.out


def test_a_submitted_run_is_known_by_its_id_at_once(
    command: Command, cluster: JobCluster, head: Head, spec: str
) -> None:
    outcome = command("submit", spec, "--no-wait", "--address", ADDRESS)
    run_id = outcome.out.strip()
    assert (outcome.status, is_run_id(run_id)) == (0, True)
    assert head.words == ["plan", "spec.yaml"]
    assert list(cluster.runs) == [run_id]
    assert f"orchestrator --address {ADDRESS} stop {run_id}" in outcome.err
    assert f"orchestrator --address {ADDRESS} runs logs --follow {run_id}" in outcome.err


@pytest.mark.heavy
def test_what_the_head_refuses_is_not_submitted(
    command: Command, cluster: JobCluster, spec: str, tmp_path: Path
) -> None:
    """The whole way, without Ray: the text is not on the cluster."""
    (tmp_path / "text.txt").unlink()
    outcome = command("submit", spec, "--address", ADDRESS)
    assert (outcome.status, outcome.out, cluster.runs) == (2, "", {})
    assert "text.txt" in outcome.err
    assert outcome.err.endswith("nothing was submitted\n")


def test_the_exit_status_of_a_followed_run_is_the_runs(
    command: Command, cluster: JobCluster, head: Head, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(details: Details, submit: Callable[..., str] = cluster.submit_job, **job: Any) -> str:
        job_id = submit(**job)
        cluster.logs[job_id], cluster.ends[job_id] = "step 1\n", details
        return job_id

    for end, status in ((Details(Status.FAILED, 1), 1), (Details(Status.SUCCEEDED, 0), 0)):
        monkeypatch.setattr(cluster, "submit_job", lambda end=end, **job: fail(end, **job))
        outcome = command("submit", spec, "--address", ADDRESS)
        assert outcome.status == status
        assert "step 1\n" in outcome.err


@pytest.mark.parametrize(
    ("error", "status", "said"), [(Interrupted(2), 130, "the run goes on"), (ClusterError("cut"), 5, "may go on")]
)
def test_who_stops_following_learns_how_to_go_on(
    command: Command, cluster: JobCluster, head: Head, spec: str, monkeypatch: pytest.MonkeyPatch,
    error: BaseException, status: int, said: str,
) -> None:  # fmt: skip
    def interrupted(*arguments: object) -> None:
        raise error

    monkeypatch.setattr("orchestrator.execution.jobs.follow", interrupted)
    outcome = command("submit", spec, "--address", ADDRESS)
    assert outcome.status == status
    assert said in outcome.err
    assert f"stop it:    orchestrator --address {ADDRESS} stop {outcome.out.strip()}" in outcome.err
    assert cluster.stopped == []


def test_a_run_is_resumed_by_the_beginning_of_its_id(command: Command, cluster: JobCluster, head: Head) -> None:
    head.answer = HeadAnswer(
        0, f'{{"id": "{RUN_ID}", "name": "words", "kind": "tokenizer", "state": "STOPPED"}}'.encode(), b""
    )
    words = ["submit", "--resume", "7f3a", "execution.num_workers=2", "--no-wait", "--address", ADDRESS]
    outcome = command(*words, "--allow-drift")
    assert (outcome.status, outcome.out) == (0, f"{RUN_ID}\n")
    assert shlex.join(head.words) == "resume --check --allow-drift -- 7f3a execution.num_workers=2"
    job = cluster.runs[f"{RUN_ID}-2"]
    assert job["entrypoint"].endswith(f"resume --allow-drift -- {RUN_ID} execution.num_workers=2")
    assert job["metadata"]["job_name"] == "words"


def test_a_completed_run_is_not_submitted_again(command: Command, cluster: JobCluster, head: Head) -> None:
    head.answer = HeadAnswer(0, b'{"id": "x", "name": "words", "kind": "tokenizer", "state": "COMPLETED"}', b"")
    assert command("submit", "--resume", "7f3a", "--address", ADDRESS).status == 0
    assert cluster.submitted == {}


def test_an_unknown_run_is_not_resumed(command: Command, cluster: JobCluster) -> None:
    """The whole way, without Ray: the head's registry has no run yet."""
    outcome = command("submit", "--resume", "7f3a", "--address", ADDRESS)
    assert (outcome.status, cluster.runs) == (3, {})
    assert "7f3a" in outcome.err


@pytest.mark.parametrize("words", [["submit"], ["submit", "x.yaml", "--allow-drift"]])
def test_words_of_submit_that_do_not_go_together_are_wrong_usage(command: Command, words: list[str]) -> None:
    outcome = command(*words, "--address", ADDRESS)
    assert outcome.status == 2
    assert "--resume" in outcome.err
