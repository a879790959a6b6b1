"""Specs carried out end to end on Ray, killed and resumed. Alone: pytest tests/orchestrator/execution/test_runner.py"""

import dataclasses
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from orchestrator.base.errors import CorpusError, InputError, NotFoundError, RunFailedError, SpecError
from orchestrator.base.results import ModelResult, PretrainResult, SweepResult, TokenizerResult
from orchestrator.base.run_states import RunState
from orchestrator.base.settings import Settings
from orchestrator.execution.runner import check_storage_and_capacity, plan_spec, resume_run, run_spec
from orchestrator.finetuning import sweep as sweep_module
from orchestrator.finetuning.search_space import TrialQueue
from orchestrator.kinds import resolved_inputs
from orchestrator.kinds.corpus import TokenizerKind
from orchestrator.kinds.preflight import check_storage
from orchestrator.kinds.pretrain import PretrainKind
from orchestrator.registry import Registry
from orchestrator.registry.recorder import Recorder, RunOutcome
from orchestrator.specs.loading import load_spec, parse_spec, spec_values
from orchestrator.storage import digest_file
from tests.orchestrator.registry.samples import model_result
from tests.orchestrator.small_specs import TOKENIZER
from tests.orchestrator.tiny_models import save_pretrained
from tests.waiting import wait_until

SEED = 20261120
SPEC = """
kind: pipeline
stages:
  words:
    kind: tokenizer
    corpus: {files: [corpus.txt]}
    vocab_size: 200
    min_frequency: 1
  model:
    kind: pretrain
    corpus: {files: [corpus.txt]}
    tokenizer: "@words"
    validation_fraction: 0.1
    shard_bytes: 2048
    model: {hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 2}
    steps: 300
    phases: [{max_seq_length: 48}]
    global_batch_size: 8
    execution: {checkpoint_every_steps: 20, log_every_steps: 5, evaluate_every_steps: 100}
  task:
    kind: sweep
    task: {id: own, head: classification, text_columns: [text], files: {train: train.csv, validation: dev.csv}}
    recipe: {tokenizer: "@words", epochs: 2, batch_size: 8, max_seq_length: 32}
    space: {init_from: ["@model", random]}
"""


def write_inputs(folder: Path) -> Path:
    generator = random.Random(SEED)
    words = [a + b + c for a in "bdkm" for b in "aeiou" for c in ("n", "rt", "sk")]
    documents = []
    for _ in range(150):
        theme = generator.sample(words, 3)
        documents.append(" ".join(f"{' '.join(generator.choices(theme, k=6)).capitalize()}." for _ in range(6)))
    (folder / "corpus.txt").write_text("\n\n".join(documents) + "\n")
    for name, count in (("train", 32), ("dev", 16)):
        rows = [
            f"{' '.join(generator.choices(words[:30] if i % 2 else words[30:], k=6))},{i % 2}" for i in range(count)
        ]
        (folder / f"{name}.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    spec = folder / "small.yaml"
    spec.write_text(SPEC)
    return spec


@pytest.fixture
def laboratory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Settings]:
    monkeypatch.chdir(tmp_path)
    return write_inputs(tmp_path), Settings.from_options(home=str(tmp_path / "home"), environ={})


def pretraining(settings: Settings) -> Any:
    with Registry(settings.registry) as registry:
        return registry.run(registry.runs("kind = 'pretrain'")["id"][0])


@pytest.mark.ray
@pytest.mark.core
def test_a_pipeline_runs_is_recorded_and_is_not_done_twice(
    ray_cluster: None, laboratory: tuple[Path, Settings]
) -> None:
    path, settings = laboratory
    spec = load_spec(path, ["stages.model.steps=20"])
    record = run_spec(spec, settings=settings)
    assert record.state == "COMPLETED"
    with Registry(settings.registry) as registry:
        runs = registry.runs(trials=False)
        assert sorted(runs["name"]) == ["small", "small/model", "small/task", "small/words"]
        assert set(runs["state"]) == {"COMPLETED"}
        assert len(registry.runs("kind = 'trial'")) == 2
        history = registry.metrics.history(pretraining(settings).id, "mlm_loss").frame()
        assert history[history["split"] == "train"]["step"].tolist() == [5, 10, 15, 20]
        assert registry.models.get("small/model").head == "pretraining"
        assert registry.models.get("small/task").head == "classification"
    assert "mlm" in (Path(settings.storage) / "runs" / pretraining(settings).id / "log.txt").read_text()
    log = (Path(settings.storage) / "runs" / record.id / "log.txt").read_text()
    assert "model: 20 steps in" in log
    assert "task: accuracy" in log

    with Registry(settings.registry) as registry:
        recorder, stage = Recorder(registry), pretraining(settings).id
        recorder.start({"kind": "pretrain", "name": "merged"}, "f" * 64, run_id="a-newer-one")
        recorder.complete("a-newer-one", RunOutcome(model_folder="/of/the/cluster"))
        registry.annotations.tag(
            "a-newer-one",
            [next(tag for tag in registry.annotations.tags(stage) if tag.startswith("inputs:"))],
            reserved=True,
        )
    again = run_spec(spec, settings=settings)
    assert again.id != record.id
    with Registry(settings.registry) as registry:
        assert len(registry.runs(trials=False)) == 6, "only the pipeline's own row is new beside the merged one"

    assert resume_run(record.id, settings=settings).finished_at == record.finished_at


@pytest.fixture
def without_training(no_cluster: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stages that leave a model or scores at once, but for those that are named: somebody interrupts them."""
    interrupted: list[str] = []

    def pretrain(kind: Any, spec: Any, inputs: Any, context: Any) -> PretrainResult:
        if spec.name in interrupted:
            raise KeyboardInterrupt
        folder = save_pretrained(Path(context.run_folder) / "model")
        return PretrainResult(ModelResult(folder, context.run_id.ljust(64, "0"), 1, "pretraining"), spec.steps, {}, [])

    def train(kind: Any, spec: Any, inputs: Any, context: Any) -> TokenizerResult:
        save_pretrained(Path(context.run_folder) / "tokenizer")
        return TokenizerResult(f"{context.run_folder}/tokenizer", "t" * 64, 100)

    def sweep(spec: Any, **arguments: Any) -> SweepResult:
        queue, trials = TrialQueue(spec, "accuracy", {}), []
        while (plan := queue.next()) is not None:
            trials.append(plan.result(RunState.COMPLETED, best_step=1, metrics={"accuracy": 0.5}))
            arguments["listener"].on_trial_result(trials[-1])
        return SweepResult("own", "accuracy", trials, dataclasses.replace(trials[0], model=model_result()))

    monkeypatch.setattr(PretrainKind, "run", pretrain)
    monkeypatch.setattr(TokenizerKind, "run", train)
    monkeypatch.setattr(sweep_module, "run_sweep", sweep)
    return interrupted


@pytest.mark.heavy
def test_variants_of_a_stage_are_runs_of_their_own_that_a_sweep_tells_apart(
    without_training: list[str], laboratory: tuple[Path, Settings]
) -> None:
    path, settings = laboratory
    overrides = ["stages.model.steps=6", "stages.model.variants={tokens: {}, spans: {mask_unit: span}}"]
    overrides += [
        'stages.task.space.init_from=["@model"]',
        "stages.model.execution.device=cpu",
        "stages.task.execution.gpus_per_trial=0",
    ]
    started: list[str] = []
    without_training.append("small/model.spans")
    with pytest.raises(KeyboardInterrupt):
        run_spec(load_spec(path, overrides), settings=settings, on_started=started.append)
    without_training.clear()
    assert resume_run(started[0], settings=settings).state == "COMPLETED"
    with Registry(settings.registry) as registry:
        models = [registry.run(run_id) for run_id in registry.runs("kind = 'pretrain'", sort="created_at")["id"]]
        assert [(run.name, run.attempt) for run in models] == [("small/model.tokens", 1), ("small/model.spans", 2)]
        starts = ["small/model.spans@1", "small/model.tokens@1"]
        assert sorted(registry.runs("kind = 'trial'")["params.init_from"]) == starts
        assert len(registry.runs("params.recipe.init_from = 'small/model.spans@1'")) == 1
        assert sorted(registry.leaderboard("own").values("init_from")) == starts
    run_spec(load_spec(path, [*overrides, "stages.model.variants.spans.steps=8"]), settings=settings)
    with Registry(settings.registry) as registry:
        counts = registry.runs(trials=False)["name"].value_counts().to_dict()
        again = ("small", "small/model.spans", "small/task")
        assert counts == dict.fromkeys(again, 2) | {"small/words": 1, "small/model.tokens": 1}
        newest = registry.runs("kind = 'trial'", sort="-created_at", limit=2)
        assert sorted(newest["params.init_from"]) == ["small/model.spans@2", "small/model.tokens@1"]


@pytest.mark.ray
@pytest.mark.core
def test_a_killed_driver_resumes_in_mid_epoch_to_the_same_weights(
    ray_cluster: None, laboratory: tuple[Path, Settings], tmp_path: Path
) -> None:
    path, settings = laboratory
    spec = load_spec(path, ["stages.model.steps=120"])
    model = spec.stages["model"].model_copy(update={"tokenizer": str(_tokenizer(spec, settings))})
    straight = run_spec(model.named("straight"), settings=settings)

    (tmp_path / "model.yaml").write_text(yaml.safe_dump(spec_values(model)))
    command = [Path(sys.executable).with_name("orchestrator"), "--home", str(tmp_path / "killed"), "run", "model.yaml"]
    environment = {**os.environ, "RAY_ADDRESS": "local"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, start_new_session=True) as driver:
        killed = Settings.from_options(home=str(tmp_path / "killed"), environ={})
        runs = Path(killed.storage) / "runs"
        wait_until(lambda: any(runs.glob("*/checkpoints.json")) or driver.poll() is not None, "there is no checkpoint")
        assert driver.stderr is not None
        assert driver.poll() is None, driver.stderr.read().decode()
        os.killpg(driver.pid, 9)
    interrupted = pretraining(killed)
    assert interrupted.state in ("RUNNING", "LOST")
    resumed = resume_run(interrupted.id, settings=killed)
    assert (resumed.state, resumed.attempt) == ("COMPLETED", 2)
    weights = [digest_file(f"{record.model_folder}/model.safetensors") for record in (straight, resumed)]
    assert weights[0] == weights[1]
    with Registry(killed.registry) as registry:
        history = registry.metrics.history(resumed.id, "mlm_loss").frame()
    assert history[history["split"] == "train"]["step"].tolist() == list(range(5, 121, 5))


def _tokenizer(spec: Any, settings: Settings) -> str:
    record = run_spec(spec.stages["words"].named("words"), settings=settings)
    with Registry(settings.registry) as registry:
        return str(registry.datasets.table(record.id).values("path")[0])


@pytest.mark.ray
def test_a_failure_is_recorded_with_its_reason(ray_cluster: None, laboratory: tuple[Path, Settings]) -> None:
    path, settings = laboratory
    spec = load_spec(path, ["stages.model.learning_rate=1e30", "stages.model.max_grad_norm=1e30"])
    with pytest.raises(RunFailedError, match="lower learning_rate"):
        run_spec(spec, settings=settings)
    with Registry(settings.registry) as registry:
        failed = registry.runs("state = 'FAILED'", trials=False)
        assert sorted(failed["kind"]) == ["pipeline", "pretrain"]
        assert all("lower learning_rate" in registry.run(run_id).error for run_id in failed["id"])


@pytest.mark.parametrize(
    ("override", "error", "named"),
    [
        ("stages.words.corpus.files=[absent.txt]", CorpusError, r"absent\.txt"),
        ("stages.model.tokenizer=@wrods", SpecError, r"stages\.model: @wrods"),
        (
            "stages.model.variants={plain: {}, odd: {tokenizer: nowhere}}",
            NotFoundError,
            r"stages\.model\.odd: tokenizer: 'nowhere'",
        ),
    ],
    ids=["a missing file", "a stage that is not there", "a variant that does not fit"],
)
def test_what_cannot_be_run_is_named_before_anything_starts(
    laboratory: tuple[Path, Settings], override: str, error: type[Exception], named: str
) -> None:
    path, settings = laboratory
    with pytest.raises(error, match=named):
        run_spec(load_spec(path, [override]), settings=settings)
    assert not Path(settings.home).exists()


def test_a_storage_that_cannot_be_written_is_found_before_anything_starts(laboratory: tuple[Path, Settings]) -> None:
    path, settings = laboratory
    with pytest.raises(InputError, match=r"--storage .*corpus\.txt"):
        run_spec(load_spec(path), settings=dataclasses.replace(settings, storage=str(path.with_name("corpus.txt"))))
    assert not Path(settings.registry).exists()


def test_a_home_that_cannot_be_written_is_refused_by_plan_as_by_run(laboratory: tuple[Path, Settings]) -> None:
    path, settings = laboratory
    file = path.with_name("corpus.txt")
    settings = dataclasses.replace(settings, home=file / "home")
    spec, before = load_spec(path), sorted(path.parent.rglob("*"))
    message = rf"--home {file}/home"
    with pytest.raises(InputError, match=message):
        check_storage_and_capacity(spec, resolved_inputs(spec, settings))
    with pytest.raises(InputError, match=message):
        run_spec(spec, settings=settings)
    assert sorted(path.parent.rglob("*")) == before


def test_a_home_that_a_run_needs_not_may_be_read_only(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    home, storage = tmp_path / "file" / "home", str(tmp_path / "storage")
    settings = Settings.from_options(home, storage, "file:url", "192.0.2.1:6379", environ={})
    spec = parse_spec(TOKENIZER)
    check_storage(spec, resolved_inputs(spec, settings))
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "a check leaves nothing"


@pytest.mark.heavy
def test_a_plan_has_each_variant_of_a_stage(laboratory: tuple[Path, Settings]) -> None:
    path, settings = laboratory
    spec = load_spec(path, ["stages.model.variants={one: {}, two: {model.num_hidden_layers: 2}}"])
    rows = {(row.stage, row.what): row.value for row in plan_spec(spec, resolved_inputs(spec, settings))}
    assert rows["model.one", "parameters"] == "38,058"
    assert rows["model.two", "parameters"] == "50,762"
    assert rows["task", "trials"] == "3 (3 points × 1 seed)"
