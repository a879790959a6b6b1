"""The import walls, as data: which part must never reach what, through however many modules of the project.

A part is a package or module by its dotted prefix; the longest prefix that fits a module is its part. `torch` and the
like stand for the distribution with all its modules. Imports inside functions count, except for the command line,
whose commands load the rest when they run, and except under `if TYPE_CHECKING:`.
"""

EVERYTHING_HEAVY = frozenset({"ray", "torch", "sqlalchemy", "pandas", "transformers"})

DRIVER_ONLY = frozenset({"sqlalchemy", "click", "orchestrator.registry"})
"""What the driver alone uses: workers and trials hand their results over as values and events."""

TEXT_HALF = (
    "bert_core.checkpoints.atomic_files",
    "bert_core.checkpoints.sentence_transformers",
    "bert_core.config",
    "bert_core.config_checks",
    "bert_core.config_choices",
    "bert_core.constants",
    "bert_core.counter_random",
    "bert_core.errors",
    "bert_core.examples",
    "bert_core.families",
    "bert_core.masking",
    "bert_core.ragged_rows",
    "bert_core.sizes",
    "bert_core.text",
)
"""Runs inside Ray Data tasks."""

NEVER: dict[str, frozenset[str]] = {
    "bert_core": frozenset({"ray", "sqlalchemy", "click", "orchestrator", "transformers"}),
    "bert_core.vector_index": frozenset({"torch", "ray", "sqlalchemy", "click", "orchestrator"}),
    **{module: frozenset({"torch", "ray", "sqlalchemy", "click", "orchestrator"}) for module in TEXT_HALF},
    "orchestrator.specs": frozenset({"ray", "torch", "sqlalchemy", "click", "orchestrator.registry"}),
    "orchestrator.corpus": frozenset({"torch", *DRIVER_ONLY}),
    "orchestrator.pretraining": DRIVER_ONLY,
    "orchestrator.tasks": frozenset({"ray", "torch", "orchestrator.finetuning", *DRIVER_ONLY}),
    "orchestrator.finetuning": DRIVER_ONLY,
    "orchestrator.distillation": DRIVER_ONLY,
    "orchestrator.retrieval": frozenset({"ray", *DRIVER_ONLY}),
    "orchestrator.training": DRIVER_ONLY,
    "orchestrator.training.checkpoints": frozenset({"ray", *DRIVER_ONLY}),
    "orchestrator.training.event_queue": frozenset({"torch", *DRIVER_ONLY}),
    "orchestrator.inference": DRIVER_ONLY,
    "orchestrator.inference.blocks": frozenset({"ray", "torch", *DRIVER_ONLY}),
    "orchestrator.models": frozenset({"ray", "click"}),
    "orchestrator.models.config": frozenset({"ray", "torch", *DRIVER_ONLY}),
    "orchestrator.storage": frozenset({"ray", "torch", "sqlalchemy", "click"}),
    "orchestrator.registry": frozenset({"ray", "torch", "click"}),
    "orchestrator.cluster": frozenset({"click"}),
    "orchestrator.planning": frozenset({"click"}),
    "orchestrator.execution": frozenset({"click"}),
    "orchestrator.execution.recorder": frozenset({"ray", "torch", "click"}),
    "orchestrator.demo": frozenset({"click"}),
}

NEVER_AT_IMPORT: dict[str, frozenset[str]] = {
    "bert_core": frozenset({"faiss"}),
    "orchestrator.cli": EVERYTHING_HEAVY,
    "orchestrator.settings": EVERYTHING_HEAVY,
    "orchestrator.specs": EVERYTHING_HEAVY,
}
"""What must not be loaded by importing a part; inside function bodies it may be."""

ONLY_STANDARD_LIBRARY = ("orchestrator.results", "orchestrator.errors", "bert_core.errors")

ONLY_INSIDE: dict[str, tuple[str, ...]] = {
    "scipy": ("bert_core.metrics",),
    "sklearn": ("bert_core.metrics",),
    "faiss": ("bert_core.vector_index.hnsw",),
    "alembic": ("orchestrator.registry",),
    "click": ("orchestrator.cli",),
    "rich": ("orchestrator.cli", "orchestrator.demo", "orchestrator.progress"),
}
"""Libraries that only these parts may name."""
