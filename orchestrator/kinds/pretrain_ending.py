"""Words on a pretraining that has completed: its held-out losses from the first evaluation to the last, its speed."""

from collections.abc import Iterator

from bert_core.objectives import OBJECTIVES
from orchestrator.progress import duration
from orchestrator.registry.records import RunRecord
from orchestrator.registry.registry import Registry


def pretrain_ending(run: RunRecord, registry: Registry) -> Iterator[str]:
    """Yield steps, seconds and speed in one line, then a line for each loss on held-out text.

    The seconds are all that the run has taken, starts and evaluations included; the speed is that of training alone.
    """
    speeds = registry.metrics.history(run.id, "train.tokens_per_s")
    speed = f"; {speeds['value'].median():,.0f} tokens/s while training" if len(speeds) else ""
    steps = registry.metrics.last_step(run.id) or 0
    latest = registry.metrics.latest(run.id)
    held_out = [objective for objective in OBJECTIVES.values() if objective.loss_name in latest]
    scores = "".join(f", {each.metric_prefix} {latest[each.loss_name]:.3f}" for each in held_out)
    took = f"{duration(run.seconds or 0.0)} from start to end"
    yield f"{steps:,} steps in {took}{speed}{scores and f'; held out{scores[1:]}'}"
    for objective in held_out:
        history = registry.metrics.history(run.id, objective.loss_name)
        history = history[history["split"] == "validation"].sort_values("step")
        if len(history) > 1:
            first, last = history.iloc[0], history.iloc[-1]
            yield (
                f"held-out {objective.metric_prefix} loss: {first['value']:.3f} after step {first['step']:,}, "
                f"{last['value']:.3f} after step {last['step']:,}"
            )
