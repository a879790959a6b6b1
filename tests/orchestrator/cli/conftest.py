"""A laboratory to try commands on: a home of its own, a tiny model, and a sweep in the registry."""

from pathlib import Path

import pytest

from orchestrator.base.settings import Settings
from orchestrator.cli.entry import run_command_line
from tests.orchestrator.cli.laboratory import Command, Outcome, RecordedSweep


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder; the current directory is its parent, and no variable of this machine leads elsewhere."""
    for name in ("STORAGE", "REGISTRY"):
        monkeypatch.delenv(f"ORCHESTRATOR_{name}", raising=False)
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ORCHESTRATOR_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def command(home: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command line in this process."""

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        status = run_command_line(arguments)
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return run


@pytest.fixture
def spec(home: Path, tmp_path: Path) -> str:
    """A tokenizer's spec in the current folder, and its text."""
    text = "kind: tokenizer\ncorpus: {files: [text.txt]}\nvocab_size: 100\nmin_frequency: 1\n"
    (tmp_path / "words.yaml").write_text(text)
    (tmp_path / "text.txt").write_text("a tokenizer learns from words like these\n\n" * 30)
    return "words.yaml"


@pytest.fixture
def recorded_sweep(home: Path) -> RecordedSweep:
    """A finished sweep of sst2: two recipes with two seeds each, and one trial that failed."""
    from orchestrator.base.results import MetricEvent, ModelResult, SweepResult, TrialResult
    from orchestrator.base.run_states import RunState
    from orchestrator.kinds.sweep import SweepKind
    from orchestrator.registry import Registry
    from orchestrator.registry.recorder import Recorder
    from orchestrator.specs.loading import parse_spec, spec_values

    spec = parse_spec(
        {
            "kind": "sweep",
            "name": "first",
            "tags": ["tried"],
            "task": {"id": "sst2", "folder": "data"},
            "recipe": {"tokenizer": "words"},
            "space": {"learning_rate": [1e-4, 3e-4]},
            "seeds": [0, 1],
        }
    )
    settings = Settings.from_options()
    settings.home.mkdir(parents=True)
    (home / "model").mkdir(parents=True)
    model = ModelResult(str(home / "model"), "d" * 64, 4_385_920, "classification")
    trials = [
        TrialResult(
            key=f"{rate}-{seed}",
            number=number,
            parameters={"learning_rate": rate},
            state=RunState.COMPLETED,
            seed=seed,
            metrics={"accuracy": (70 + 5 * number) / 100, "baseline.accuracy": 0.5},
            model=model if number == 3 else None,
            seconds=12.0,
        )
        for number, (rate, seed) in enumerate([(1e-4, 0), (1e-4, 1), (3e-4, 0), (3e-4, 1)])
    ]
    failed = TrialResult("bad", 4, {"learning_rate": 3e-4}, RunState.FAILED, 2, error="diverged\x1b[31m at step 7")
    with Registry(settings.registry) as registry:
        recorder = Recorder(registry)
        folder = str(home / "storage" / "runs" / "r")
        run = recorder.start(spec_values(spec), spec.fingerprint(), metric="accuracy", storage_path=folder)
        ids = recorder.registry.trials.record(run.id, [*trials, failed])
        registry.metrics.record(ids[3], [MetricEvent(step, "train", {"loss": 1 / step}) for step in (1, 2, 4)])
        result = SweepResult("sst2", "accuracy", trials, trials[3], {"accuracy": 0.8}, seconds=50.0)
        recorder.complete(run.id, SweepKind().record(result, run.id, recorder))
    (home / "storage" / "runs" / "r").mkdir(parents=True)
    (home / "storage" / "runs" / "r" / "log.txt").write_text("trial 3: accuracy 0.85\n")
    return RecordedSweep(run.id, tuple(ids))
