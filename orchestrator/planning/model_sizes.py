"""How large the networks of a spec will be and whether they fit, as far as that is known before anything runs.

A later stage of a pipeline may start from what an earlier one will make: its size follows from what that one asks for.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from bert_core.config import CONFIG_FILE, BertConfig
from orchestrator.errors import SpecError
from orchestrator.models.config import build_config
from orchestrator.models.resolve import resolve_name, resolve_tokenizer
from orchestrator.settings import Settings
from orchestrator.specs import DistillSpec, PretrainSpec, Spec, SweepSpec, TokenizerSpec
from orchestrator.specs.references import RANDOM, STAGE_MARK
from orchestrator.storage import join, local_copy, read_json

if TYPE_CHECKING:
    from orchestrator.tasks import Task


@dataclass(frozen=True)
class Networks:
    """The networks of a pipeline's stages, or of a single spec. What only the run decides is None."""

    stages: Mapping[str, Spec]
    settings: Settings

    def pretraining_parameters(self, spec: PretrainSpec) -> int | None:
        """Weights of the pretrained network, its heads included."""
        from bert_core.heads import BertForPreTraining

        config = self._pretraining(spec)
        return None if config is None else sum(p.numel() for p in BertForPreTraining(config, seed=None).parameters())

    def trial_parameters(self, spec: SweepSpec) -> int | None:
        """Weights of the largest encoder that a trial may have, and of recurrent layers on it."""
        known = [config for config in self._trials(spec) if config is not None]
        counts = [_encoder_parameters(config) + _recurrent_parameters(config, spec) for config in known]
        return max(counts, default=None)

    def distillation_parameters(self, spec: DistillSpec) -> tuple[int | None, int | None]:
        """Weights of the student's encoder and of the teacher's."""
        configs = (self._student(spec), self._named(spec.teacher))
        student, teacher = (None if config is None else _encoder_parameters(config) for config in configs)
        return student, teacher

    def check_student(self, spec: DistillSpec) -> None:
        """See that the student is smaller where it must be, and as wide where it must be, and that the teacher was
        fine-tuned for the task, or, pretrained, reads the student's tokens.

        Raises: SpecError, ConfigError, TokenizerError, TaskDataError, CheckpointError.
        """
        from orchestrator.distillation.student import check_widths
        from orchestrator.finetuning.recipe_checks import check_recipe
        from orchestrator.tasks import load_task

        head = None
        if spec.pretraining is not None:
            self._check_tokenizer(spec.teacher, spec.pretraining.tokenizer)
        if spec.task is not None:
            task = load_task(spec.task)
            head = task.head
            check_recipe(spec.recipe, head)
            self._check_teacher(spec.teacher, task)
        student, teacher = self._student(spec), self._named(spec.teacher)
        if student is not None and teacher is not None:
            check_widths(spec, student, teacher, head)

    def check_start(self, spec: PretrainSpec | SweepSpec | DistillSpec) -> None:
        """See that the models to start from read what the spec gives them, and have the layers that the head reads.

        Raises: SpecError, TokenizerError.
        """
        if isinstance(spec, PretrainSpec):
            field, longest = "phases.max_seq_length", max(phase.max_seq_length for phase in spec.phases)
            models = [spec.init_from]
        elif isinstance(spec, DistillSpec) and spec.pretraining is not None:
            field, longest = (
                "pretraining.phases.max_seq_length",
                max(phase.max_seq_length for phase in spec.pretraining.phases),
            )
            models = [spec.teacher]
        elif isinstance(spec, DistillSpec):
            field, longest = "recipe.max_seq_length", spec.recipe.max_seq_length
            models = [spec.teacher, spec.recipe.init_from]
        else:
            from orchestrator.finetuning.search_space import listed_values, value_bounds

            field, longest = "recipe.max_seq_length", int(value_bounds(spec, "max_seq_length")[1])
            models = [str(name) for name in listed_values(spec, "init_from")]
        for name in models:
            config = None if name == RANDOM else self._named(name)
            if config is not None and longest > config.max_seq_length:
                raise SpecError(
                    f"{field} {longest} is longer than the {config.max_seq_length} positions of {name}; "
                    "lower it or start from another model"
                )
        if isinstance(spec, PretrainSpec) and spec.init_from != RANDOM:
            self._check_tokenizer(spec.init_from, spec.tokenizer)
        if isinstance(spec, SweepSpec) or (isinstance(spec, DistillSpec) and spec.num_hidden_layers is None):
            self._check_depths(spec)

    def _check_depths(self, spec: SweepSpec | DistillSpec) -> None:
        """See that a head that reads four layers has them below it, in every combination of the values listed."""
        from orchestrator.finetuning.search_space import listed_values

        head_inputs, models, sizes = (
            listed_values(spec, name) if isinstance(spec, SweepSpec) else (getattr(spec.recipe, name),)
            for name in ("layer_pooling", "init_from", "size")
        )
        configs = {f"init_from {name}": self._named(str(name)) for name in models if name != RANDOM}
        configs |= {f"size {size}": BertConfig.from_size(str(size)) for size in sizes} if RANDOM in models else {}
        for layer_pooling in (name for name in head_inputs if str(name).endswith("four")):
            for what, config in configs.items():
                if config is not None and config.num_hidden_layers < 4:
                    raise SpecError(
                        f"recipe.layer_pooling {layer_pooling} needs four layers, "
                        f"and {what} has {config.num_hidden_layers}; "
                        "choose another layer_pooling or a deeper model"
                    )

    def _check_teacher(self, teacher: str, task: "Task") -> None:
        """See that a teacher was, or will be, fine-tuned for a task; its weights are not read."""
        from bert_core.checkpoints.pretrained import WEIGHTS_FILE
        from bert_core.text.tokenization import Tokenizer
        from orchestrator.finetuning.evaluation import with_labels_of
        from orchestrator.finetuning.heads import HEADS
        from orchestrator.finetuning.model_folder import FineTunedModel, read_record

        if teacher.startswith(STAGE_MARK):
            self._check_stage_of_teacher(teacher, task)
            return
        folder = local_copy(resolve_name("teacher", teacher, self.settings), skip=(WEIGHTS_FILE,))
        config = BertConfig.from_pretrained(folder)
        record = read_record(folder, config)
        head = HEADS[record.head]
        model = head.model_type(config, seed=None)  # without storage: only its labels are asked for
        with_labels_of(FineTunedModel(model, Tokenizer.load(folder), record), task, teacher)
        head.check_objective(folder, task.objective)

    def _check_stage_of_teacher(self, teacher: str, task: "Task") -> None:
        """See that a stage's task has the head, the labels and the columns of the one that its model is to teach."""
        from orchestrator.tasks import load_task

        stage = self.stages[teacher.removeprefix(STAGE_MARK)]
        learnt = load_task(stage.task) if isinstance(stage, SweepSpec | DistillSpec) and stage.task else None
        head = "no task" if learnt is None else learnt.head
        if learnt is None or head != task.head:
            raise SpecError(
                f"teacher {teacher} makes a model for {head}, task {task.id} needs one for {task.head}; "
                f"name a stage that fine-tunes for {task.head}"
            )
        pairs = {"labels": (learnt.labels, task.labels), "columns": (learnt.columns.names, task.columns.names)}
        for what, (theirs, own) in pairs.items():
            if set(theirs) != set(own):
                raise SpecError(
                    f"teacher {teacher} will know the {what} {', '.join(theirs) or 'none'}; task {task.id} has "
                    f"{', '.join(own) or 'none'}: give both stages the same task"
                )

    def _check_tokenizer(self, init_from: str, tokenizer: str) -> None:
        from bert_core.text.tokenization import Tokenizer
        from orchestrator.pretraining.job import check_start

        if not init_from.startswith(STAGE_MARK) and not tokenizer.startswith(STAGE_MARK):
            folder = resolve_name("init_from", init_from, self.settings)
            check_start(folder, Tokenizer.load(local_copy(resolve_tokenizer(tokenizer, self.settings))))

    def _pretraining(self, spec: PretrainSpec) -> BertConfig | None:
        if spec.init_from != RANDOM:
            return self._named(spec.init_from)
        vocab_size = self._vocab_size(spec.tokenizer)
        return None if vocab_size is None else build_config(spec.model, vocab_size)

    def _trials(self, spec: SweepSpec) -> Iterator[BertConfig | None]:
        from orchestrator.finetuning.search_space import listed_values, value_bounds

        models = [str(name) for name in listed_values(spec, "init_from")]
        yield from (self._named(name) for name in models if name != RANDOM)
        if RANDOM in models:
            num_positions = max(512, int(value_bounds(spec, "max_seq_length")[1]))
            axes = (listed_values(spec, name) for name in ("size", "family", "tokenizer"))
            for size, family, tokenizer in product(*axes):
                vocab_size = self._vocab_size(str(tokenizer))
                changes = {"vocab_size": vocab_size, "max_position_embeddings": num_positions}
                yield None if vocab_size is None else BertConfig.from_size(str(size), str(family), **changes)

    def _student(self, spec: DistillSpec) -> BertConfig | None:
        from bert_core.distillation import student_config

        teacher = self._named(spec.teacher)
        if spec.num_hidden_layers is not None:
            return None if teacher is None else student_config(teacher, spec.num_hidden_layers)
        if spec.pretraining is not None:
            return self._pretraining(spec.pretraining)
        if spec.recipe.init_from != RANDOM:
            return self._named(spec.recipe.init_from)
        if teacher is None:
            return None
        return BertConfig.from_size(spec.recipe.size, spec.recipe.family, vocab_size=teacher.vocab_size)

    def _named(self, name: str) -> BertConfig | None:
        if not name.startswith(STAGE_MARK):
            folder = resolve_name("init_from", name, self.settings)
            return BertConfig.from_dict(read_json(join(folder, CONFIG_FILE)))
        stage = self.stages[name.removeprefix(STAGE_MARK)]
        if isinstance(stage, PretrainSpec):
            return self._pretraining(stage)
        if isinstance(stage, DistillSpec):
            return self._student(stage)
        first, *others = self._trials(stage) if isinstance(stage, SweepSpec) else (None,)
        return first if all(config == first for config in others) else None

    def _vocab_size(self, name: str) -> int | None:
        from bert_core.text.tokenization import Tokenizer

        if not name.startswith(STAGE_MARK):
            return Tokenizer.load(local_copy(resolve_tokenizer(name, self.settings))).vocab_size
        stage = self.stages[name.removeprefix(STAGE_MARK)]
        if isinstance(stage, TokenizerSpec):
            return stage.vocab_size
        return self._vocab_size(stage.tokenizer) if isinstance(stage, PretrainSpec) else None


def _recurrent_parameters(config: BertConfig, spec: SweepSpec) -> int:
    from bert_core.heads import BertForTokenClassification
    from orchestrator.finetuning.search_space import listed_values, value_bounds

    num_layers = int(value_bounds(spec, "num_lstm_layers")[1])
    counts = [0]
    for layer_pooling, size in product(*(listed_values(spec, name) for name in ("layer_pooling", "lstm_hidden_size"))):
        head: dict[str, Any] = {"layer_pooling": layer_pooling, "lstm_hidden_size": size, "num_lstm_layers": num_layers}
        model = BertForTokenClassification(replace(config, **head), seed=None)
        counts.append(0 if model.recurrent is None else sum(p.numel() for p in model.recurrent.parameters()))
    return max(counts)


def _encoder_parameters(config: BertConfig) -> int:
    from bert_core.model import BertModel

    return sum(p.numel() for p in BertModel(config, seed=None).parameters())
