"""Results and events that workers and jobs hand to the driver: frozen, made of plain values, free of third-party types.

Results say how a run ended; events say what happens while it works. The driver alone records them, and recording one
twice changes nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from orchestrator.base.run_states import RunState

Split = Literal["train", "validation", "test"]


class MetricEvent(NamedTuple):  # made for every measurement, four times as fast as a frozen dataclass
    """Measurements at one optimizer step. Natural key: (run, split, name, step)."""

    step: int
    split: Split
    values: Mapping[str, float]
    """Values by name: `mlm_loss`, `tokens_per_s`, `f1`, …; every score is a fraction from 0 to 1."""
    epoch: float | None = None


@dataclass(frozen=True)
class CheckpointEvent:
    """A checkpoint that is whole on the storage. Natural key: (run, step)."""

    step: int
    path: str
    digest: str
    """SHA-256 of its manifest."""
    num_bytes: int


@dataclass(frozen=True)
class WorkersEvent:
    """A group of training workers that begins. Natural key: (attempt, first step)."""

    first_step: int
    """Number of steps that had ended before."""
    hosts: Sequence[str]
    """Host of each worker, by rank."""
    machine: Mapping[str, object] | None = None
    """Machine of rank 0 (the fields of `provenance.capture.Machine`)."""

    def __str__(self) -> str:
        return f"{len(self.hosts)} worker{'s' * (len(self.hosts) > 1)} on {', '.join(dict.fromkeys(self.hosts))}"


@dataclass(frozen=True)
class MessageEvent:
    """One line of a run's log, as a person should read it."""

    text: str
    level: Literal["info", "warning", "error"] = "info"


@dataclass(frozen=True)
class DriftEvent:
    """Changed inputs of a resumed run, which the person allowed."""

    step: int
    """Step of the checkpoint."""
    differences: tuple[str, ...]
    """A line for each field, file or version that has changed, as `spec.learning_rate: 0.01 → 0.003`."""


Event = MetricEvent | CheckpointEvent | WorkersEvent | MessageEvent | DriftEvent


@dataclass(frozen=True)
class FileCount:
    path: str
    num_bytes: int
    num_documents: int
    num_bad_records: int = 0
    digest: str | None = None
    """SHA-256 of the file as it is stored; None of a remote file and of one not read to its end."""


@dataclass(frozen=True)
class DatasetResult:
    """Data as a run used it: a token store, a task's tokenized splits, or a tokenizer."""

    name: str
    kind: Literal["corpus", "task", "tokenizer"]
    fingerprint: str
    """SHA-256 over the content and everything that shaped it."""
    path: str
    counts: Mapping[str, int]
    """Counts by name: `num_documents`, `num_sentences`, `num_tokens`, `num_train_examples`, …"""
    files: Sequence[FileCount] = ()
    reused: bool = False
    tokenizer_digest: str | None = None
    """Fingerprint of the tokenizer that a token store was made with."""


@dataclass(frozen=True)
class TokenizerResult:
    folder: str
    fingerprint: str
    vocab_size: int
    report: Mapping[str, float] = field(default_factory=dict)
    """`fertility` (word pieces per word) and `unknown_rate` on text it was not trained on, where there was some."""


@dataclass(frozen=True)
class ModelResult:
    """A model folder in Hugging Face layout."""

    folder: str
    digest: str
    """SHA-256 of `model.safetensors`."""
    num_parameters: int
    head: str
    """`pretraining`, or the head of the task that the model was trained for (`specs.task.Head`)."""


@dataclass(frozen=True)
class PretrainResult:
    """Result of a pretraining: the model and its last scores."""

    model: ModelResult
    num_steps: int
    metrics: Mapping[str, float]
    """Last value of each score, by `split.name`."""
    datasets: Sequence[DatasetResult] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class TrialStart:
    """A trial that begins, or begins again after its process died. `key` is its natural key, as in its result."""

    key: str
    number: int
    parameters: Mapping[str, object]
    """Every field of its recipe, by name, the seed included."""
    seed: int


@dataclass(frozen=True)
class TrialResult:
    """Result of one trial of a sweep. `key` is its natural key: a digest of its parameters."""

    key: str
    number: int
    parameters: Mapping[str, object]
    state: RunState
    """COMPLETED, FAILED or PRUNED."""
    seed: int
    best_step: int = 0
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Validation scores at the best step, by name; `baseline.NAME` is the majority baseline's, `collapsed` is 1 for a
    trial that never left it."""
    model: ModelResult | None = None
    predictions_path: str | None = None
    error: str | None = None
    seconds: float = 0.0
    host: str | None = None
    """Host on which it ran last; None where it has not said."""


@dataclass(frozen=True)
class TrialEvents:
    """Measurements of a trial that runs, by the trial's natural key."""

    key: str
    events: Sequence[MetricEvent]


TrialChange = TrialStart | TrialEvents | TrialResult
"""Change of a trial. A result is the last one; start and measurements may come several times before it."""


@dataclass(frozen=True)
class SweepResult:
    """Result of a sweep: its trials in order, the best one, and that one's single look at the test split."""

    task: str
    metric: str
    trials: Sequence[TrialResult]
    best: TrialResult
    test_metrics: Mapping[str, float] = field(default_factory=dict)
    datasets: Sequence[DatasetResult] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class DistillResult:
    """Result of a distillation: the student at its best step, beside its teacher."""

    task: str
    metric: str
    model: ModelResult
    best_step: int
    metrics: Mapping[str, float]
    """Scores on the validation split: the student's scores by name, its teacher's as `teacher.NAME`, the majority's as
    `baseline.NAME`; `agreement`; `num_parameters`, `examples_per_s` of both, `parameter_ratio`, `speed_ratio`."""
    test_metrics: Mapping[str, float] = field(default_factory=dict)
    predictions_path: str | None = None
    datasets: Sequence[DatasetResult] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class EvaluationResult:
    task: str
    split: Split
    metrics: Mapping[str, float]
    num_examples: int
    predictions_path: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    """Counts of a collection: `num_documents`, `num_empty_documents` left out, `num_truncated_documents`."""
