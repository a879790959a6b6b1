"""Tags that say where a run itself belongs, as to which pipeline: the laboratory alone sets them, nobody inherits them.

They tell a person nothing, an id that stands elsewhere and a digest: `runs show --all`, JSON and CSV have them, other
lists leave them out.
"""

PIPELINE = "pipeline:"
"""Beginning of the tag of a pipeline's stage; the pipeline's id follows."""
INPUTS = "inputs:"
"""Beginning of the tag of a stage that tells what it works on; a digest follows."""


def is_internal(tag: str) -> bool:
    """Whether a tag says where a run itself belongs."""
    return tag.startswith((PIPELINE, INPUTS))
