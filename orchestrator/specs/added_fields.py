"""Fields that were added to published recipes and tasks, by dotted path: the value that stands for the time before.

The registry groups trials by them. They stand apart from the fields themselves, since pydantic takes longer to load
than most of what a reading command does.
"""

from collections.abc import Mapping
from types import MappingProxyType

ADDED_FIELDS: Mapping[str, object] = MappingProxyType(
    {"recipe.micro_batch_size": None, "recipe.attention_dropout": None, "recipe.allow_tf32": True}
)
"""Value of each at which runs are what they were before the field was there."""
