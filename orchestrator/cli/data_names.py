"""Names of files of data, by their endings: what is named so and is not there was mistyped."""


def is_named_as_data(name: str) -> bool:
    """Whether a name ends as that of a file of texts, of a table or of a task does, compressed or not."""
    from orchestrator.corpus.input_files import FORMATS
    from orchestrator.storage.compression import COMPRESSIONS
    from orchestrator.tasks.table_files import TABLE_NAMES
    from orchestrator.tasks.types.conll import CONLL_ENDINGS

    return name.lower().endswith((*FORMATS, *TABLE_NAMES, *COMPRESSIONS, *CONLL_ENDINGS))
