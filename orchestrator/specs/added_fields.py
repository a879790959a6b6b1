"""Fields that were added to recipes and tasks after these were published, by dotted path, each with its earlier value.

At that value the registry leaves a field out of what tells groups of trials apart. The table does not stand beside the
fields themselves, since pydantic takes longer to load than most of what a reading command does.
"""

from collections.abc import Mapping
from types import MappingProxyType

ADDED_FIELDS: Mapping[str, object] = MappingProxyType(
    {"recipe.micro_batch_size": None, "recipe.attention_dropout": None, "recipe.allow_tf32": True}
)
"""Value of each at which runs are what they were before the field was there."""
