"""Names in a spec, looked up once: their folders, tokenizers, configurations, tasks."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from bert_core.checkpoints.weight_files import WEIGHTS_FILE
from bert_core.config import BertConfig
from bert_core.model import BertModel
from bert_core.text.tokenization import Tokenizer
from orchestrator.base.results import Split
from orchestrator.base.settings import Settings
from orchestrator.registry.model_names import content_digest, pin_names, resolve_name
from orchestrator.registry.parameters import RECORDED_DIGITS
from orchestrator.specs import PretrainSpec, Spec, TaskSpec
from orchestrator.specs.pretrain import pretraining_of
from orchestrator.specs.references import NAME_FIELDS, STAGE_MARK, TOKENIZER_FIELDS, Product, SpecT, names_of
from orchestrator.storage import local_copy
from orchestrator.storage.hub import check_size, is_hub
from orchestrator.storage.uris import is_local
from orchestrator.tasks.loading import load_task
from orchestrator.tasks.task import Task
from orchestrator.training.checkpoints import saved_states
from orchestrator.training.snapshots import snapshot_folders

if TYPE_CHECKING:
    from orchestrator.kinds.base import AnyKind

logger = logging.getLogger(__name__)


class Resolved:
    """The inputs of a spec, or of all stages of a pipeline. The checks ask first; the run asks the same object again.

    Each thing is looked up when it is first asked for and kept, so that a run uses what its checks have seen. A model's
    weights are read to check them alone, and only where they are on this machine's disks. A name may be `@stage`: what
    that stage will make is told as far as its spec decides it, and None says that only the run does. For one thread.

    Args:
        stages: the specs that `@stage` can name.
        kind_of: returns the kind of a stage's spec.
    """

    def __init__(self, stages: Mapping[str, Spec], settings: Settings, kind_of: "Callable[[Spec], AnyKind]") -> None:
        self.stages = stages
        self.settings = settings
        self._kind_of = kind_of
        self._folders: dict[tuple[bool, str], str] = {}
        self._tokenizers: dict[str, Tokenizer] = {}
        self._tokenizers_like: dict[str, Tokenizer | None] = {}
        self._configs: dict[str, BertConfig] = {}
        self._tasks: dict[str, Task] = {}
        self._checked: set[str] = set()
        self._warned: set[str] = set()

    def stage(self, name: str) -> Spec:
        """Return the spec of the stage that `@stage` names."""
        return self.stages[name.removeprefix(STAGE_MARK)]

    def names_of(self, spec: Spec) -> list[tuple[str, str]]:
        """Return the field and the name of each model and tokenizer that no stage makes."""
        return [(field, name) for field, name in names_of(spec) if not name.startswith(STAGE_MARK)]

    def folder(self, field: str, name: str) -> str:
        """Return the absolute folder or file that the value of a field leads to. Raises: NotFoundError."""
        key = (field in TOKENIZER_FIELDS, name)
        if key not in self._folders:
            self._folders[key] = resolve_name(field, name, self.settings)
        return self._folders[key]

    def check(self, spec: Spec) -> None:
        """Check that the models and tokenizers of a spec are there, and that a model's weights can be read.

        Raises: NotFoundError, CheckpointError.
        """
        for field, name in self.names_of(spec):
            folder = self.folder(field, name)
            if NAME_FIELDS[field] in (Product.ENCODER, Product.TASK_MODEL) and folder not in self._checked:
                check_weights(folder)
                self._checked.add(folder)

    def fetch(self, spec: Spec) -> None:
        """Download the weights that are on the hub alone. Raises: InputError, CheckpointError."""
        for field, name in self.names_of(spec):
            folder = self.folder(field, name)
            if is_hub(folder) and field not in TOKENIZER_FIELDS and check_size(folder):
                local_copy(folder)
                check_weights(folder)

    def pin(self, spec: SpecT) -> SpecT:
        """Return the spec with registered names as `name@version`; these lead to the folders found already.

        Raises: NotFoundError for a name that leads nowhere.
        """
        pinned = pin_names(spec, self.settings, self.folder)
        for (field, name), (_, label) in zip(names_of(spec), names_of(pinned), strict=True):
            if not name.startswith(STAGE_MARK):
                self._folders[field in TOKENIZER_FIELDS, label] = self.folder(field, name)
        return pinned

    def content_digest(self, field: str, name: str) -> str:
        """Return the digest of the weights, or of the tokenizer, that a name leads to, as they are now."""
        return content_digest(field, self.folder(field, name))

    def tokenizer(self, name: str) -> Tokenizer:
        """Return the tokenizer of a folder, file or model. Raises: NotFoundError, TokenizerError."""
        folder = self.folder("tokenizer", name)
        if folder not in self._tokenizers:
            self._tokenizers[folder] = Tokenizer.load(local_copy(folder, skip=(WEIGHTS_FILE,)))
        return self._tokenizers[folder]

    def tokenizer_like(self, name: str) -> Tokenizer | None:
        """Return a tokenizer; for a stage's tokenizer a similar one to measure with, or None where nothing tells."""
        if not name.startswith(STAGE_MARK):
            return self.tokenizer(name)
        if name not in self._tokenizers_like:
            stage = self.stage(name)
            self._tokenizers_like[name] = self._kind_of(stage).tokenizer_like(stage, self)
        return self._tokenizers_like[name]

    def vocab_size(self, name: str) -> int | None:
        """Return how many entries a tokenizer has, or will have at most."""
        if name.startswith(STAGE_MARK):
            stage = self.stage(name)
            return self._kind_of(stage).vocab_size(stage, self)
        return self.tokenizer(name).vocab_size

    def config(self, name: str) -> BertConfig | None:
        """Return a model's configuration; that of a stage's model where all that it may leave are alike."""
        if name.startswith(STAGE_MARK):
            stage = self.stage(name)
            first, *others = list(self._kind_of(stage).model_configs(stage, self)) or [None]
            return first if all(config == first for config in others) else None
        folder = self.folder("init_from", name)
        if folder not in self._configs:
            self._configs[folder] = BertConfig.from_pretrained(local_copy(folder, skip=(WEIGHTS_FILE,)))
        return self._configs[folder]

    def snapshots(self, name: str) -> dict[int, str]:
        """Return the model folders that a pretraining run keeps, by step; of a stage, its `@stage` for each of them.

        Raises: NotFoundError; CheckpointError where the run's list of them is damaged.
        """
        if name.startswith(STAGE_MARK):
            made = self.stage_pretraining(name)
            return {} if made is None else dict.fromkeys(sorted(made.execution.snapshot_steps), name)
        run_folder, _, _ = self.folder("run", name).rstrip("/").rpartition("/")
        return snapshot_folders(run_folder)

    def stage_pretraining(self, name: str) -> PretrainSpec | None:
        """Return what a stage, `@stage`, pretrains; None where it does not, and of other names."""
        return pretraining_of(self.stage(name)) if name.startswith(STAGE_MARK) else None

    def training_states(self, name: str) -> dict[int, str]:
        """Return the training states that a pretraining run keeps, by step; of a stage, its `@stage` for each of them.

        Raises: NotFoundError; CheckpointError where the run's list of them is damaged.
        """
        if name.startswith(STAGE_MARK):
            made = self.stage_pretraining(name)
            if made is None:
                return {}
            kept = made.execution.snapshot_steps if made.execution.snapshot_optimizer else ()
            last = () if made.steps == "auto" else (made.steps,)
            return dict.fromkeys(sorted({*kept, *last}), name)
        folder = self.folder("init_from", name)
        return {} if is_hub(folder) else saved_states(folder.rstrip("/").rpartition("/")[0])

    def task(self, spec: TaskSpec) -> Task:
        """Return a task with its labels. Raises: SpecError, TaskDataError."""
        key = spec.model_dump_json()
        if key not in self._tasks:
            self._tasks[key] = load_task(spec)
        return self._tasks[key]

    def warn(self, message: str) -> None:
        """Warn a person of something about the inputs, once, however many stages it concerns."""
        if message not in self._warned:
            self._warned.add(message)
            logger.warning(message)

    def drop_examples(self) -> None:
        """Let the examples that tasks have read go, so that those of a pipeline's stages are not all held at once."""
        self._tasks = {key: replace(task, reads={}) for key, task in self._tasks.items()}


def check_weights(folder: str) -> None:
    """Read the weights of a model folder on this machine's disks; elsewhere loading the model reads them first.

    Raises: CheckpointError, as loading the model does; InputError where they are too large to be fetched from the hub.
    """
    if is_local(folder) or (is_hub(folder) and not check_size(folder)):
        BertModel.from_pretrained(local_copy(folder), seed=None)  # takes no memory for a model


def data_digests(task: Task, splits: Iterable[Split]) -> dict[str, str]:
    """Digests of splits by name: of the examples, of the file, and of the whole split where a limit takes a part.

    The leaderboard ranks scores on the same examples together. By the others it knows a model that learned from some of
    the examples that another run is scored on.
    """
    digests: dict[str, str] = {}
    for split in splits:
        taken, whole, file = task.digests(split)
        digests |= {split: taken, f"{split}_file": file}
        if whole != taken:
            digests[f"{split}_whole"] = whole
    return {name: digest[:RECORDED_DIGITS] for name, digest in digests.items()}
