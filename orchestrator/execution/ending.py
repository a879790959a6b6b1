"""Words on the result of a run that has completed, as the registry knows it: over all its attempts."""

from orchestrator.kinds import kind_of
from orchestrator.registry.registry import Registry
from orchestrator.specs import PipelineSpec
from orchestrator.specs.loading import parse_spec


def ending_lines(run_id: str, registry: Registry) -> list[str]:
    """Lines for a person on the result of a completed run; of a pipeline one for each stage.

    The run is complete without them: what goes wrong here costs the lines alone.
    """
    try:
        record = registry.run(run_id)
        spec = parse_spec(record.spec)
        if not isinstance(spec, PipelineSpec):
            return list(kind_of(spec).ending(record, registry))
        stages = registry.stages(run_id)
    except Exception as error:  # whatever is wrong with its words, the run has completed
        return [f"the result cannot be shown: {error}"]
    return [
        f"{stage.name.rpartition('/')[2]}: {line}"
        for stage in reversed(stages)
        for line in ending_lines(stage.id, registry)[:1]
    ]
