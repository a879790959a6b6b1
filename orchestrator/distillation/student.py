"""The student as it starts: some of the teacher's layers, another model's encoder, or random weights."""

from bert_core.config import BertConfig
from bert_core.distillation import student_of
from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import SpecError
from orchestrator.finetuning.heads import HeadModel, build_model, check_fit
from orchestrator.finetuning.model_folder import FineTunedModel
from orchestrator.specs.distill import DistillSpec
from orchestrator.storage import local_copy
from orchestrator.tasks import Task


def build_student(spec: DistillSpec, teacher: FineTunedModel, task: Task, init_folder: str | None) -> HeadModel:
    """A model with the teacher's head and vocabulary, which decodes as the teacher does.

    A CRF starts with the teacher's transitions: on equal ones, a word's posterior follows from the emissions alone,
    and these are what a student learns from its teacher.

    Args:
        init_folder: of the model that `recipe.init_from` names.

    Raises: SpecError, ConfigError, TokenizerError, CheckpointError where student and teacher do not go together.
    """
    if task.head == "embedding":
        raise SpecError(
            f"task {task.id} is one of vectors (embedding), which a student cannot be taught here; give a task with "
            "labels, answers or values, or train a small model on it by a sweep"
        )
    recipe, theirs = spec.recipe, teacher.model
    check_fit(theirs.config, recipe.model_copy(update={"init_from": spec.teacher}), teacher.tokenizer)
    if spec.num_hidden_layers is not None:
        student = student_of(theirs, spec.num_hidden_layers, recipe.dropout)
    else:
        if init_folder is not None:
            teacher.tokenizer.check_agrees(Tokenizer.load(local_copy(init_folder)))
        recipe = recipe.model_copy(update={"token_decoder": theirs.config.token_decoder})
        folder = None if init_folder is None else str(local_copy(init_folder))
        student = build_model(task.head, task.labels, recipe, folder, teacher.tokenizer, task.columns.width)
        if theirs.config.token_decoder == "crf":
            student.get_submodule("crf").load_state_dict(theirs.get_submodule("crf").state_dict())
    check_widths(spec, student.config, theirs.config)
    return student


def check_widths(spec: DistillSpec, student: BertConfig, teacher: BertConfig) -> None:
    """See that hidden states can be compared where they are to be. Raises: SpecError."""
    if spec.objective.hidden_cosine and student.hidden_size != teacher.hidden_size:
        raise SpecError(
            f"objective.hidden_cosine compares hidden states, which are {student.hidden_size} wide in the student and "
            f"{teacher.hidden_size} in {spec.teacher}; set it to 0, or take layers of the teacher (num_hidden_layers)"
        )
