"""The import walls, as data: which part must never reach what, through however many modules of the project.

A part is a package or module by its dotted prefix; the longest prefix that fits a module is its part. `torch` and the
like stand for the distribution with all its modules. Imports inside functions count, except for the command line,
whose commands load the rest when they run, and except under `if TYPE_CHECKING:`.
"""

EVERYTHING_HEAVY = frozenset({"ray", "torch", "sqlalchemy", "pandas", "transformers"})

DRIVER_ONLY = frozenset({"sqlalchemy", "click", "orchestrator.registry"})
"""Libraries that the driver alone uses: workers and trials hand their results over as values and events."""

TEXT_HALF = (
    "bert_core.checkpoints.manifest",
    "bert_core.checkpoints.sentence_transformers",
    "bert_core.checkpoints.weight_files",
    "bert_core.config",
    "bert_core.config_fields",
    "bert_core.constants",
    "bert_core.counter_random",
    "bert_core.errors",
    "bert_core.examples",
    "bert_core.families",
    "bert_core.masking",
    "bert_core.objectives",
    "bert_core.ragged_rows",
    "bert_core.text",
)
"""Runs inside Ray Data tasks."""

NUMPY_ALONE = (
    "bert_core.answer_spans",
    "bert_core.calibration",
    "bert_core.learning_rates",
    "bert_core.metrics",
    "bert_core.vector_index",
)
"""Numbers without a model."""

TORCH_HALF = (
    "bert_core.attention",
    "bert_core.checkpoints",
    "bert_core.compiled_layers",
    "bert_core.cuda_graphs",
    "bert_core.device_copies",
    "bert_core.distillation",
    "bert_core.encoder_layer",
    "bert_core.heads",
    "bert_core.kernels",
    "bert_core.losses",
    "bert_core.micro_batches",
    "bert_core.model",
    "bert_core.optimization",
    "bert_core.packed_sequences",
    "bert_core.text_embedding",
)

NOT_IN_BERT_CORE = frozenset({"ray", "sqlalchemy", "click", "orchestrator", "transformers"})

NEVER: dict[str, frozenset[str]] = {
    "bert_core": NOT_IN_BERT_CORE,
    **dict.fromkeys(TORCH_HALF, NOT_IN_BERT_CORE),
    **dict.fromkeys((*TEXT_HALF, *NUMPY_ALONE), NOT_IN_BERT_CORE | {"torch"}),
    "orchestrator.base": EVERYTHING_HEAVY | {"pydantic", *DRIVER_ONLY},
    "orchestrator.specs": frozenset({"ray", "torch", *DRIVER_ONLY}),
    "orchestrator.storage": frozenset({"ray", "torch", *DRIVER_ONLY}),
    "orchestrator.provenance": EVERYTHING_HEAVY | {"numpy", "pydantic", "click", "yaml"},
    "orchestrator.significance": EVERYTHING_HEAVY | {"scipy", "pydantic", "click"},
    "orchestrator.cluster": DRIVER_ONLY,
    "orchestrator.corpus": frozenset({"torch", *DRIVER_ONLY}),
    "orchestrator.corpus.inspection": frozenset({"ray", "torch", *DRIVER_ONLY}),
    "orchestrator.corpus.preview": frozenset({"ray", "torch", *DRIVER_ONLY}),
    "orchestrator.corpus.token_store": frozenset({"ray", "torch", *DRIVER_ONLY}),
    "orchestrator.tasks": frozenset({"ray", "torch", *DRIVER_ONLY}),
    "orchestrator.training": DRIVER_ONLY,
    "orchestrator.training.checkpoints": frozenset({"ray", *DRIVER_ONLY}),
    "orchestrator.training.snapshots": frozenset({"ray", "torch", *DRIVER_ONLY}),
    "orchestrator.training.event_queue": frozenset({"torch", *DRIVER_ONLY}),
    "orchestrator.registry": frozenset({"ray", "torch", "click"}),
    "orchestrator.pretraining": DRIVER_ONLY,
    "orchestrator.pretraining.streams": frozenset({"ray", "torch", *DRIVER_ONLY}),
    "orchestrator.finetuning": DRIVER_ONLY,
    "orchestrator.finetuning.model_record": frozenset({"ray", "torch", *DRIVER_ONLY}),
    "orchestrator.reports": frozenset({"ray", "torch", "click"}),
    "orchestrator.inference": DRIVER_ONLY,
    "orchestrator.inference.line_blocks": frozenset({"ray", "torch", *DRIVER_ONLY}),
    "orchestrator.inference.requests": frozenset({"ray", "torch", *DRIVER_ONLY}),
    "orchestrator.inference.serving": frozenset({"ray", *DRIVER_ONLY}),
    "orchestrator.kinds": frozenset({"click", "orchestrator.execution"}),
    "orchestrator.demo": frozenset({"click"}),
    "orchestrator.drafting": frozenset({"ray", "torch", "click"}),
    "orchestrator.execution": frozenset({"click"}),
    "orchestrator.__main__": frozenset({"transformers"}),
    "orchestrator.cli": frozenset({"transformers"}),
}

NEVER_AT_IMPORT: dict[str, frozenset[str]] = {
    "bert_core": frozenset({"faiss"}),
    "orchestrator.cli": EVERYTHING_HEAVY,
    "orchestrator.execution": frozenset({"ray", "optuna"}),
    "orchestrator.kinds": frozenset({"ray", "optuna"}),
    "orchestrator.registry.registry": frozenset(
        {"numpy", "orchestrator.registry.group_records", "orchestrator.significance"}
    ),
    "orchestrator.base.settings": EVERYTHING_HEAVY,
    "orchestrator.specs": EVERYTHING_HEAVY | {"optuna"},
}
"""What must not be loaded by importing a part; inside function bodies it may be."""

ONLY_STANDARD_LIBRARY = (
    "orchestrator.base.formatting",
    "orchestrator.base.metric_names",
    "orchestrator.base.results",
    "orchestrator.base.run_states",
    "orchestrator.base.nearest",
    "orchestrator.base.periodic",
    "orchestrator.base.errors",
    "bert_core.errors",
)
"""Modules that import the standard library and one another, nothing else."""

ONLY_INSIDE: dict[str, tuple[str, ...]] = {
    "scipy": ("bert_core.metrics",),
    "sklearn": ("bert_core.metrics",),
    "faiss": ("bert_core.vector_index",),
    "optuna": ("orchestrator.specs.search_algorithms", "orchestrator.reports.charts"),
    "alembic": ("orchestrator.registry",),
    "tensorboardX": ("orchestrator.reports.tracker_exports",),
    "mlflow": ("orchestrator.reports.tracker_exports",),
    "wandb": ("orchestrator.reports.tracker_exports",),
    "click": ("orchestrator.cli",),
    "starlette": ("orchestrator.inference.serving", "orchestrator.reports.board"),
    "uvicorn": ("orchestrator.base.web",),
    "rich": ("orchestrator.cli", "orchestrator.demo", "orchestrator.base.console"),
}
"""Libraries that only these parts may name."""
