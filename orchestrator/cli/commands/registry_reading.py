"""Reading the registry in commands: opening it, and its tables as plain values."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.cli.frame import current_settings

if TYPE_CHECKING:
    import pandas

    from orchestrator.registry import Registry

NO_RUNS = "no runs yet: `orchestrator demo`, or `orchestrator run experiments/sweep_sst2.yaml`"
"""Said in place of a table without rows."""


def open_registry() -> "Registry":
    """Open the registry of the command's options for reading; before the first run it is empty.

    Raises: RegistryError where a person named one that is not there: a slip of the pen should not read as empty.
    """
    from orchestrator.errors import RegistryError
    from orchestrator.registry import Registry

    settings = current_settings()
    registry = Registry(settings.registry, read_only=True)
    if "registry" in settings.given and registry.current_revision() is None:
        registry.close()
        raise RegistryError(
            f"There is no registry at {registry.place}; check the path, or let a first run make it: `orchestrator demo`"
        )
    return registry


def records_of(frame: "pandas.DataFrame") -> list[dict[str, Any]]:
    """Rows of a frame as plain values; missing values (NaN, NaT, NA) become None."""
    import pandas

    return [
        {str(key): None if _is_missing(pandas, value) else value for key, value in row.items()}
        for row in frame.to_dict("records")
    ]


def _is_missing(pandas: Any, value: Any) -> bool:
    return not isinstance(value, Sequence | dict) and bool(pandas.isna(value))
