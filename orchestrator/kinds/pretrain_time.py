"""Time of a pretraining's steps on this machine's CPU, from a few of them."""

from bert_core.config import BertConfig
from orchestrator.kinds.base import MeasuredTime
from orchestrator.kinds.passes import TextTooShortError, open_first_text
from orchestrator.kinds.resolved import Resolved
from orchestrator.kinds.start_checks import trains_on_gpu
from orchestrator.pretraining.meter import measure_training
from orchestrator.specs import PretrainSpec
from orchestrator.training.step_time import FORWARD_SHARE


def measure_steps(
    spec: PretrainSpec, inputs: Resolved, config: BertConfig | None, teacher: BertConfig | None = None
) -> MeasuredTime | None:
    """Measure steps on the text itself, or on its beginning, and return what all of them would take.

    Args:
        config: of the model; None where only the run decides it, which gives None.
        teacher: of a model that reads every batch as well, without learning.

    Returns None on GPUs too, for models whose steps take long, and where the beginning of the text has too few
    documents to train on.
    """
    tokenizer = inputs.tokenizer_like(spec.tokenizer)
    if config is None or tokenizer is None or trains_on_gpu(spec.execution.device):
        return None
    try:
        with open_first_text(spec, tokenizer, inputs.settings.storage) as (stream, _):
            own = measure_training(spec, config, stream)
            theirs = 0.0 if teacher is None else measure_training(spec, teacher, stream)
    except TextTooShortError:
        return None
    if own is None or theirs is None:
        return None
    return MeasuredTime(own + FORWARD_SHARE * theirs, f"{spec.steps:,} steps")
