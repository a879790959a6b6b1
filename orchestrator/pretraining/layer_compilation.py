"""Compilation of a run's layers: whether, once for the whole run, and what is told of it.

What is compiled draws other dropout and rounds otherwise, so a run that is resumed goes on as it began: checkpoints
carry the choice. A spec that says `always` or `never` against it is followed, with a warning.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

import torch

from bert_core.compiled_layers import compile_layers
from bert_core.heads import BertForPreTraining
from orchestrator.errors import RunFailedError
from orchestrator.pretraining.collectives import Worker
from orchestrator.settings import cache_folder
from orchestrator.specs import PretrainSpec

FEWEST_STEPS = 10_000
"""Steps of a run that `auto` compiles: compiling takes up to 20 s, so each of them has to become 2 ms shorter."""
_FIELD = "execution.compile_layers"
_KEY = "layers_are_compiled"
Tell = Callable[[str], None]


class LayerCompilation:
    """Choice of one worker's run, and its carrying out.

    Args:
        tell: told in a line what was chosen and how long it took.
        warn: told of a compiler that fails, and of a choice that changes within the run.
    """

    def __init__(self, spec: PretrainSpec, worker: Worker, tell: Tell, warn: Tell) -> None:
        self._spec, self._worker, self._tell, self._warn = spec, worker, tell, warn
        self._is_compiled = False

    def begin(self, model: BertForPreTraining, checkpoint: Mapping[str, Any] | None, has_graphs: bool = False) -> None:
        """Compile a model's layers where the run's choice is to do so.

        Args:
            checkpoint: JSON of the checkpoint that the run goes on from; None where there is none.
            has_graphs: whether steps are CUDA graphs. Without, the host takes longer to launch compiled layers than
                the device wins by them (docs/performance.md).

        Raises: RunFailedError when the compiler fails where layers are to be compiled in any case.
        """
        began = None if checkpoint is None else bool(checkpoint.get(_KEY, False))
        self._is_compiled = self._choose(began, has_graphs) and self._compile(model)
        if began is not None and began != self._is_compiled:
            was, now = ("compiled", "not compiled") if began else ("not compiled", "compiled")
            self._warn(
                f"the layers were {was} up to the checkpoint and are {now} from here on: last bits and dropout are "
                f"others than in a run without this interruption; {_FIELD} auto goes on as a run began, where it can"
            )

    def state(self) -> dict[str, bool]:
        """The choice, under its name in a checkpoint."""
        return {_KEY: self._is_compiled}

    def _choose(self, began: bool | None, has_graphs: bool) -> bool:
        asked = self._spec.execution.compile_layers
        if asked != "auto":
            return asked == "always"
        if began is not None:
            return began
        return has_graphs and self._spec.steps >= FEWEST_STEPS

    def _compile(self, model: BertForPreTraining) -> bool:
        """Compile; returns whether that succeeded. Raises: RunFailedError where it has to."""
        kept = os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "compiled"))
        dtype = torch.bfloat16 if self._spec.precision == "bf16" else None
        try:
            seconds = compile_layers(model.bert, dtype)
        except Exception as error:  # of whatever kind: torch, the C++ compiler, Triton and the driver have their own
            reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
            if self._spec.execution.compile_layers == "always":
                raise RunFailedError(
                    f"the layers could not be compiled on {self._worker.device} ({reason}); set {_FIELD} to never, or "
                    "give the machine a C++ compiler, and on a GPU a Triton that runs on it"
                ) from error
            self._warn(f"the layers could not be compiled ({reason}); they run as they are, which takes longer")
            return False
        self._tell(f"the layers are compiled, which took {seconds:.0f} s; kept for later attempts in {kept}")
        return True
