"""Commands by a dashboard's address alone: which are sent to the cluster's head, in which words, and `submit`.

Alone: .venv/bin/pytest tests/orchestrator/cli/test_head.py
"""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import orchestrator.execution.head_commands
from orchestrator.cli.entry import Interrupted
from orchestrator.errors import ClusterError
from orchestrator.execution.head_commands import HeadCommand, HeadOutcome, Streams
from orchestrator.run_ids import is_run_id
from orchestrator.run_states import RunState
from orchestrator.settings import Settings
from tests.orchestrator.cli.laboratory import Command
from tests.orchestrator.execution.job_cluster import Details, JobCluster, Status

ADDRESS = "http://127.0.0.1:8265"
RUN_ID = "7f3a90b1c2d4"
SPEC = "kind: tokenizer\ncorpus: {files: [text.txt]}\nvocab_size: 100\n"


class Head:
    """Stands for the cluster's head: keeps the commands, and answers each as a test has said."""

    def __init__(self) -> None:
        self.commands: list[HeadCommand] = []
        self.answer: Callable[[Streams], HeadOutcome] = lambda streams: HeadOutcome(0)

    def carry_out(self, command: HeadCommand, settings: Settings, address: str, streams: Streams) -> HeadOutcome:
        assert address == ADDRESS
        self.commands.append(command)
        return self.answer(streams)

    @property
    def words(self) -> str:
        """Words of the only command."""
        (command,) = self.commands
        return shlex.join(command.words)


@pytest.fixture
def head(monkeypatch: pytest.MonkeyPatch) -> Head:
    made = Head()
    monkeypatch.setattr(orchestrator.execution.head_commands, "carry_out_on_head", made.carry_out)
    return made


@pytest.fixture
def spec(home: Path, tmp_path: Path) -> str:
    (tmp_path / "words.yaml").write_text(SPEC)
    (tmp_path / "text.txt").write_text("a tokenizer learns from words like these\n\n" * 30)
    return "words.yaml"


@pytest.mark.parametrize(
    "words",
    [
        "runs list --trials -f csv --limit 5",
        "runs show -- 7f3a",
        "runs trials -- 7f3a",
        "runs metrics -- 7f3a mlm_loss",
        "runs logs --worker 1 -- 7f3a",
        "runs logs --worker all -- 7f3a",
        "runs logs -f -- 7f3a",
        "query --sort -name -- \"metrics.f1 > 0.9 and name = 'a b'\"",
        "leaderboard -- sst2",
        "stop --force --timeout 5.0 -- 7f3a",
        "wait --timeout 5.0 -- 7f3a",
        "models list",
        "models show -- m@2",
        "db upgrade",
        "db current",
        "doctor",
        "gc --dry-run --older-than 90d",
    ],
)
def test_a_command_goes_to_the_head_in_the_words_that_were_typed(command: Command, head: Head, words: str) -> None:
    def answer(streams: Streams) -> HeadOutcome:
        streams.out("data é".encode())
        streams.err("a word ä\n".encode())
        return HeadOutcome(4)

    head.answer = answer
    outcome = command("--address", ADDRESS, *shlex.split(words))
    assert (outcome.status, outcome.out, outcome.err) == (4, "data é", "a word ä\n")
    sent = shlex.split(head.words)
    assert [word for word in sent if word in shlex.split(words)] == shlex.split(words)


def test_the_variable_of_the_dashboard_is_enough(command: Command, head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", ADDRESS)
    assert command("runs", "list", "--debug").status == 0
    assert head.words == "runs list --debug --limit 30 --offset 0"


def test_a_registry_that_was_given_is_read_from_here(command: Command, head: Head, home: Path) -> None:
    outcome = command("runs", "list", "--address", ADDRESS, "--registry", str(home / "r.sqlite"))
    assert (outcome.status, head.commands) == (4, [])
    assert "There is no registry at" in outcome.err


def test_a_local_registry_of_the_environment_gives_way_to_a_dashboard(
    command: Command, head: Head, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setenv("ORCHESTRATOR_REGISTRY", str(home / "registry.sqlite"))
    assert command("runs", "list", "--address", ADDRESS).status == 0
    assert head.words == "runs list --limit 30 --offset 0"


def test_on_a_cluster_the_registry_is_read_where_the_command_is(
    command: Command, head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", ADDRESS)
    assert command("runs", "list").status == 0
    assert head.commands == []


@pytest.mark.parametrize(
    "words",
    ["resume 7f3a", "evaluate m sst2", "predict m", "embed m", "fill-mask m x", "next-sentence m a b",
     "search m x --documents d", "mine m own -o x", "models export m to"],
)  # fmt: skip
def test_a_command_of_this_machine_alone_says_so(command: Command, head: Head, words: str) -> None:
    outcome = command(*words.split(), "--address", ADDRESS)
    assert (outcome.status, outcome.out, head.commands) == (2, "", [])
    assert "works on this machine alone" in outcome.err
    assert "submit --resume" in outcome.err


def test_what_needs_no_registry_does_not_care_about_a_dashboard(command: Command, head: Head) -> None:
    assert command("schema", "--address", ADDRESS).status == 0
    assert head.commands == []


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        ("runs list -o {}/runs.csv", "runs list -o runs.csv --limit 30 --offset 0"),
        ("runs plot 7f3a {}/runs.csv", "runs plot -o runs.csv -- 7f3a"),
        ("runs export {}/runs.csv --where x", "runs export --where x -o runs.csv"),
    ],
)
def test_a_file_is_written_here(command: Command, head: Head, tmp_path: Path, words: str, sent: str) -> None:
    head.answer = lambda streams: HeadOutcome(0, b"\x89 bytes")
    outcome = command(*words.format(tmp_path).split(), "--address", ADDRESS)
    assert outcome.status == 0
    assert (tmp_path / "runs.csv").read_bytes() == b"\x89 bytes"
    assert (head.words, head.commands[0].returned) == (sent, "runs.csv")


def test_a_plan_sends_the_spec_with_its_overrides_in_it(command: Command, head: Head, spec: str) -> None:
    assert command("plan", spec, "vocab_size=123", "--address", ADDRESS, "-f", "json").status == 0
    assert head.words == "plan -f json -- spec.yaml"
    (text,) = head.commands[0].files.values()
    assert b'"vocab_size": 123' in text
    assert b'"name": "words"' in text


def test_a_broken_spec_asks_nobody(command: Command, head: Head, spec: str) -> None:
    assert command("plan", spec, "vocab_sise=1", "--address", ADDRESS).status == 2
    assert head.commands == []


def test_a_plan_on_the_head_is_the_heads(command: Command, cluster: JobCluster, spec: str, tmp_path: Path) -> None:
    """The whole way, without Ray: a job on this machine with a home of its own."""
    done = command("plan", spec, "--address", ADDRESS, "-o", str(tmp_path / "plan.csv"))
    assert (done.status, done.out) == (0, ""), done.err
    assert "tokenizer" in (tmp_path / "plan.csv").read_text()
    assert done.err == "checking what the spec names\nwrote plan.csv\n"


def test_a_submitted_run_is_known_by_its_id_at_once(
    command: Command, cluster: JobCluster, head: Head, spec: str
) -> None:
    outcome = command("submit", spec, "--no-wait", "--address", ADDRESS)
    run_id = outcome.out.strip()
    assert (outcome.status, is_run_id(run_id)) == (0, True)
    assert head.words == "plan spec.yaml"
    assert list(cluster.runs) == [run_id]
    assert f"stop it:    orchestrator --address {ADDRESS} stop {run_id}" in outcome.err
    assert f"follow it:  orchestrator --address {ADDRESS} runs logs -f {run_id}" in outcome.err


def test_what_the_head_refuses_is_not_submitted(
    command: Command, cluster: JobCluster, spec: str, tmp_path: Path
) -> None:
    """The whole way, without Ray: the text is not on the cluster."""
    (tmp_path / "text.txt").unlink()
    outcome = command("submit", spec, "--address", ADDRESS)
    assert (outcome.status, outcome.out, cluster.runs) == (2, "", {})
    assert outcome.err.startswith("reading the spec words.yaml\nchecking what the spec names\nError: ")
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
    def answer(streams: Streams) -> HeadOutcome:
        streams.out(f'{{"id": "{RUN_ID}", "name": "words", "kind": "tokenizer", "state": "STOPPED"}}'.encode())
        return HeadOutcome(0)

    head.answer = answer
    words = ["submit", "--resume", "7f3a", "execution.num_workers=2", "--no-wait", "--address", ADDRESS]
    outcome = command(*words, "--allow-drift")
    assert (outcome.status, outcome.out) == (0, f"{RUN_ID}\n")
    assert head.words == "resume --check --allow-drift -- 7f3a execution.num_workers=2"
    job = cluster.runs[f"{RUN_ID}-2"]
    assert job["entrypoint"].endswith(f"resume --allow-drift -- {RUN_ID} execution.num_workers=2")
    assert job["metadata"]["job_name"] == "words"


def test_a_completed_run_is_not_submitted_again(command: Command, cluster: JobCluster, head: Head) -> None:
    def answer(streams: Streams) -> HeadOutcome:
        streams.out(b'{"id": "x", "name": "words", "kind": "tokenizer", "state": "COMPLETED"}')
        return HeadOutcome(0)

    head.answer = answer
    assert command("submit", "--resume", "7f3a", "--address", ADDRESS).status == 0
    assert cluster.submitted == {}


def test_an_unknown_run_is_not_resumed(command: Command, cluster: JobCluster) -> None:
    """The whole way, without Ray: the head's registry has no run yet."""
    outcome = command("submit", "--resume", "7f3a", "--address", ADDRESS)
    assert (outcome.status, cluster.runs) == (3, {})
    assert "No run's id begins with '7f3a'" in outcome.err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [(["submit"], "give a SPEC.yaml, or --resume RUN"), (["submit", "x.yaml", "--allow-drift"], "goes with --resume")],
)
def test_words_of_submit_that_do_not_go_together_are_wrong_usage(
    command: Command, words: list[str], complaint: str
) -> None:
    outcome = command(*words, "--address", ADDRESS)
    assert outcome.status == 2
    assert complaint in outcome.err


def test_a_command_that_came_from_elsewhere_speaks_of_the_address_there(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestrator.registry import Registry
    from orchestrator.registry.recorder import Recorder

    monkeypatch.setenv("ORCHESTRATOR_ASKED_AT", ADDRESS)
    with Registry(Settings.from_options().registry) as registry:
        run = Recorder(registry).start({"kind": "tokenizer", "name": "words"}, "f", run_id=RUN_ID)
        registry.lifecycle.start_attempt(run.id, host="elsewhere", pid=1)
        registry.lifecycle.finish(run.id, RunState.STOPPED)
    assert f"go on with: orchestrator --address {ADDRESS} submit --resume {RUN_ID}\n" in command("stop", "7f3a").err
