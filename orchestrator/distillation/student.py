"""The student as it starts: some of the teacher's layers, another model's encoder, or random weights."""

from bert_core.config import BertConfig
from bert_core.distillation import student_of
from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import SpecError
from orchestrator.finetuning.dual_encoder import DualEncoder
from orchestrator.finetuning.heads import HeadModel, build_model, check_fit
from orchestrator.finetuning.model_folder import FineTunedModel
from orchestrator.specs.distill import DistillSpec
from orchestrator.specs.task import Head
from orchestrator.storage import local_copy
from orchestrator.tasks import Task


def build_student(spec: DistillSpec, teacher: FineTunedModel, task: Task, init_folder: str | None) -> HeadModel:
    """A model with the teacher's head and vocabulary, which decodes as the teacher does.

    A CRF starts with the teacher's transitions: on equal ones, a word's posterior follows from the emissions alone,
    and these are what a student learns from its teacher. For the same reason pairs of vectors are compared by the
    teacher's classifier, where it has one, and tokens pooled as the teacher does unless the recipe says otherwise.

    Args:
        init_folder: of the model that `recipe.init_from` names.

    Raises: SpecError, ConfigError, TokenizerError, CheckpointError where student and teacher do not go together.
    """
    recipe, theirs = spec.recipe, teacher.model
    check_fit(theirs.config, recipe.model_copy(update={"init_from": spec.teacher}), teacher.tokenizer)
    if spec.num_hidden_layers is not None:
        student = student_of(theirs, spec.num_hidden_layers, recipe.dropout)
    else:
        if init_folder is not None:
            teacher.tokenizer.check_agrees(Tokenizer.load(local_copy(init_folder)))
        recipe = recipe.model_copy(update={"token_decoder": theirs.config.token_decoder})
        folder = None if init_folder is None else str(local_copy(init_folder))
        extra = task.columns.width
        student = build_model(task.head, task.labels, recipe, folder, teacher.tokenizer, extra, task.objective)
        if theirs.config.token_decoder == "crf":
            student.get_submodule("crf").load_state_dict(theirs.get_submodule("crf").state_dict())
    if isinstance(student, DualEncoder) and isinstance(theirs, DualEncoder):
        assert task.objective is not None, "a task for embeddings has one"
        student.prepare(task.objective, theirs.embedding, recipe)
        if student.classifier is not None and theirs.classifier is not None:
            student.classifier.load_state_dict(theirs.classifier.state_dict())
    check_widths(spec, student.config, theirs.config, task.head)
    return student


def check_widths(spec: DistillSpec, student: BertConfig, teacher: BertConfig, head: Head | None = None) -> None:
    """See that hidden states, or a task's vectors, can be compared where they are to be. Raises: SpecError."""
    for field, what in (("hidden_cosine", "hidden states"), ("soft_targets", "vectors")):
        is_compared = getattr(spec.objective, field) and (field == "hidden_cosine" or head == "embedding")
        if is_compared and student.hidden_size != teacher.hidden_size:
            raise SpecError(
                f"objective.{field} compares {what}, which are {student.hidden_size} wide in the student and "
                f"{teacher.hidden_size} in {spec.teacher}; set it to 0, or take layers of the teacher "
                "(num_hidden_layers)"
            )
