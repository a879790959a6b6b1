"""The import walls, as data: which part must never reach what, through however many modules of the project.

A part is a package or module by its dotted prefix; the longest prefix that fits a module is its part. `torch` and the
like stand for the distribution with all its modules. Imports inside functions count, except for the command line,
whose commands load the rest when they run, and except under `if TYPE_CHECKING:`.
"""

EVERYTHING_HEAVY = frozenset({"ray", "torch", "sqlalchemy", "pandas", "transformers"})

TEXT_HALF = (
    "bert_core.config",
    "bert_core.config_checks",
    "bert_core.config_choices",
    "bert_core.errors",
    "bert_core.examples",
    "bert_core.families",
    "bert_core.masking",
    "bert_core.sentence_transformers",
    "bert_core.sizes",
    "bert_core.text",
    "bert_core.whole_files",
)
"""Runs inside Ray Data tasks."""

NEVER: dict[str, frozenset[str]] = {
    "bert_core": frozenset({"ray", "sqlalchemy", "click", "orchestrator", "transformers"}),
    "bert_core.vector_index": frozenset({"torch", "ray", "sqlalchemy", "click", "orchestrator"}),
    **{module: frozenset({"torch", "ray", "sqlalchemy", "click", "orchestrator"}) for module in TEXT_HALF},
    "orchestrator.specs": frozenset({"ray", "torch", "sqlalchemy", "click", "orchestrator.registry"}),
    "orchestrator.corpus": frozenset({"torch", "sqlalchemy", "click", "orchestrator.registry"}),
    "orchestrator.pretraining": frozenset({"sqlalchemy", "click", "orchestrator.registry"}),
    "orchestrator.tasks": frozenset({"ray", "sqlalchemy", "click", "orchestrator.registry"}),
    "orchestrator.finetuning": frozenset({"sqlalchemy", "click", "orchestrator.registry"}),
    "orchestrator.distillation": frozenset({"sqlalchemy", "click", "orchestrator.registry"}),
    "orchestrator.retrieval": frozenset({"ray", "sqlalchemy", "click", "orchestrator.registry"}),
    "orchestrator.checkpoints": frozenset({"ray", "sqlalchemy", "click", "orchestrator.registry"}),
    "orchestrator.inbox": frozenset({"torch", "sqlalchemy", "click", "orchestrator.registry"}),
    "orchestrator.answering": frozenset({"sqlalchemy", "click", "orchestrator.registry"}),
    "orchestrator.answering.blocks": frozenset({"ray", "torch", "sqlalchemy", "click", "orchestrator.registry"}),
    "orchestrator.storage": frozenset({"ray", "torch", "sqlalchemy", "click"}),
    "orchestrator.registry": frozenset({"ray", "torch", "click"}),
    "orchestrator.recorder": frozenset({"ray", "torch", "click"}),
    "orchestrator.pipeline": frozenset({"click"}),
    "orchestrator.demo": frozenset({"click"}),
    "orchestrator.cluster": frozenset({"click"}),
    "orchestrator.jobs": frozenset({"click"}),
    "orchestrator.doctor": frozenset({"click"}),
    "orchestrator.inference": frozenset({"click"}),
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
    "rich": ("orchestrator.cli", "orchestrator.pipeline", "orchestrator.pretraining", "orchestrator.demo"),
}
"""Libraries that only these parts may name."""
