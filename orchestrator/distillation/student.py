"""The student as it starts: some of the teacher's layers, another model's encoder, or random weights."""

from bert_core.config import BertConfig
from bert_core.distillation import student_of
from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import SpecError
from orchestrator.finetuning.building import build_model, check_fit
from orchestrator.finetuning.heads import HEADS, HeadModel
from orchestrator.finetuning.model_folder import FineTunedModel
from orchestrator.specs.distill import DistillSpec
from orchestrator.specs.task import Head
from orchestrator.storage import local_copy
from orchestrator.tasks import Task


def build_student(spec: DistillSpec, teacher: FineTunedModel, task: Task, init_folder: str | None) -> HeadModel:
    """A model with the teacher's head and vocabulary, which decodes as the teacher does.

    Args:
        init_folder: of the model that `recipe.init_from` names.

    Raises: SpecError, ConfigError, TokenizerError, CheckpointError where student and teacher do not go together.
    """
    recipe, theirs = spec.recipe, teacher.model
    check_fit(theirs.config, recipe.model_copy(update={"init_from": spec.teacher}), teacher.tokenizer)
    if spec.num_hidden_layers is not None:
        student: HeadModel = student_of(theirs, spec.num_hidden_layers, recipe.dropout, recipe.attention_dropout)
    else:
        if init_folder is not None:
            teacher.tokenizer.check_agrees(Tokenizer.load(local_copy(init_folder)))
        recipe = recipe.model_copy(update={"token_decoder": theirs.config.token_decoder})
        folder = None if init_folder is None else str(local_copy(init_folder))
        student = build_model(task, recipe, folder, teacher.tokenizer)
    HEADS[task.head].follow_teacher(student, theirs, task.objective, recipe)
    check_widths(spec, student.config, theirs.config, task.head)
    return student


def check_widths(spec: DistillSpec, student: BertConfig, teacher: BertConfig, head: Head | None = None) -> None:
    """Check that hidden states, or a task's vectors, can be compared where they are to be. Raises: SpecError."""
    compared = {"hidden_cosine_weight": "hidden states"}
    if head is not None and HEADS[head].gives_vectors:
        compared["soft_targets_weight"] = "vectors"
    for field, what in compared.items():
        if getattr(spec.objective, field) and student.hidden_size != teacher.hidden_size:
            raise SpecError(
                f"objective.{field} compares {what}, which are {student.hidden_size} wide in the student and "
                f"{teacher.hidden_size} in {spec.teacher}; set it to 0, or take layers of the teacher "
                "(num_hidden_layers)"
            )
