"""Form in which a run's steps are computed: with compiled layers or without, as CUDA graphs or not.

Each form has other last bits and other dropout, so checkpoints carry it, and a change within a run is told of.
"""

from collections.abc import Mapping
from typing import Any

from bert_core.heads import BertForPreTraining
from orchestrator.pretraining.collectives import Worker
from orchestrator.pretraining.layer_compilation import LayerCompilation, Tell
from orchestrator.pretraining.step_graphs import FIELD
from orchestrator.specs import PretrainSpec

_KEY = "steps_are_graphs"


class StepForm:
    """Form of one worker's steps; the spec decides whether they are graphs.

    Args:
        tell: told in a line how layers are compiled.
        warn: told of a compiler that fails, and of a form that changes within the run.
    """

    def __init__(self, spec: PretrainSpec, worker: Worker, tell: Tell, warn: Tell) -> None:
        self._compilation = LayerCompilation(spec, worker, tell, warn)
        self._are_graphs, self._warn = spec.execution.cuda_graphs, warn
        self._has_begun = False

    def begin(self, model: BertForPreTraining, checkpoint: Mapping[str, Any] | None) -> None:
        """Take the run's form, once; compiles the model's layers where that is part of it.

        Args:
            checkpoint: JSON of the checkpoint that the run goes on from; None where there is none.

        Raises: RunFailedError when the compiler fails where layers are to be compiled in any case.
        """
        self._compilation.begin(model, checkpoint)
        if checkpoint is not None and not self._has_begun:
            began = bool(checkpoint.get(_KEY, False))
            if began != self._are_graphs:
                was, now = ("CUDA graphs", "single kernels") if began else ("single kernels", "CUDA graphs")
                self._warn(
                    f"steps were {was} up to the checkpoint and are {now} from here on: last bits and dropout are "
                    f"others than in a run without this interruption; {FIELD} {str(began).lower()} goes on as before"
                )
        self._has_begun = True

    def state(self) -> dict[str, bool]:
        """The form, under its names in a checkpoint."""
        return {**self._compilation.state(), _KEY: self._are_graphs}
