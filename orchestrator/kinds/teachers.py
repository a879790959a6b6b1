"""Checks of a distillation's teacher: was it, or will it be, fine-tuned for the student's task? No weights are read."""

from bert_core.checkpoints.weight_files import WEIGHTS_FILE
from bert_core.config import BertConfig
from bert_core.text.tokenization import Tokenizer
from orchestrator.errors import SpecError
from orchestrator.finetuning.evaluation import with_labels_of
from orchestrator.finetuning.heads import HEADS
from orchestrator.finetuning.model_folder import FineTunedModel, read_record
from orchestrator.kinds.resolved import Resolved
from orchestrator.specs.parts import task_of
from orchestrator.specs.references import STAGE_MARK
from orchestrator.storage import local_copy
from orchestrator.tasks import Task


def check_teacher(teacher: str, task: Task, inputs: Resolved) -> None:
    """Check that a teacher has the head, the labels and the columns of a task.

    Raises: SpecError, CheckpointError.
    """
    if teacher.startswith(STAGE_MARK):
        _check_stage(teacher, task, inputs)
        return
    folder = local_copy(inputs.folder("teacher", teacher), skip=(WEIGHTS_FILE,))
    config = BertConfig.from_pretrained(folder)
    record = read_record(folder, config)
    head = HEADS[record.head]
    model = head.model_type(config, seed=None)  # without storage: only its labels are asked for
    with_labels_of(FineTunedModel(model, Tokenizer.load(folder), record), task, teacher)
    head.check_objective(folder, task.objective)


def _check_stage(teacher: str, task: Task, inputs: Resolved) -> None:
    """Check that the task of an earlier stage has the head, the labels and the columns of the one to teach."""
    asked = task_of(inputs.stage(teacher))
    earlier = None if asked is None else inputs.task(asked)
    head = "no task" if earlier is None else earlier.head
    if earlier is None or head != task.head:
        raise SpecError(
            f"teacher {teacher} makes a model for {head}, task {task.id} needs one for {task.head}; "
            f"name a stage that fine-tunes for {task.head}"
        )
    pairs = {"labels": (earlier.labels, task.labels), "columns": (earlier.columns.names, task.columns.names)}
    for what, (theirs, own) in pairs.items():
        if set(theirs) != set(own):
            raise SpecError(
                f"teacher {teacher} will know the {what} {', '.join(theirs) or 'none'}; task {task.id} has "
                f"{', '.join(own) or 'none'}: give both stages the same task"
            )
