"""Tags that say where a run itself belongs, as to which pipeline: the laboratory alone sets them."""

PIPELINE = "pipeline:"
"""Beginning of the tag of a pipeline's stage; the pipeline's id follows."""
INPUTS = "inputs:"
"""Beginning of the tag of a stage that tells what it works on; a digest follows."""
OF_ONE_RUN = (PIPELINE, INPUTS)
"""Beginnings of the tags that say where a run itself belongs: nobody inherits them, and nobody sets or takes them."""
INTERNAL = (PIPELINE, INPUTS)
"""Beginnings of the tags that tell a person nothing: an id that stands elsewhere, and a digest."""


def is_internal(tag: str) -> bool:
    """Whether a tag serves the laboratory alone; `runs show --all`, JSON and CSV have it, other lists leave it out."""
    return tag.startswith(INTERNAL)


def is_of_one_run(tag: str) -> bool:
    """Whether a tag says where a run itself belongs, so that no other run is to have it."""
    return tag.startswith(OF_ONE_RUN)
