"""Where things are: home, storage, registry, Ray's address; from options, else the environment, else defaults."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

HOME_VARIABLE = "ORCHESTRATOR_HOME"
STORAGE_VARIABLE = "ORCHESTRATOR_STORAGE"
REGISTRY_VARIABLE = "ORCHESTRATOR_REGISTRY"
ADDRESS_VARIABLE = "RAY_ADDRESS"


@dataclass(frozen=True)
class Settings:
    """The places of one laboratory."""

    home: Path
    """Of this machine alone: the default registry, and the default storage."""
    storage: str
    """A folder or URI that every node reaches."""
    registry: str
    """A path, a database URL, or `file:PATH` of a file with mode 0600 that holds one."""
    address: str | None = None
    """Of the Ray to run on; a local one is started when None."""

    @classmethod
    def from_options(
        cls,
        home: str | Path | None = None,
        storage: str | None = None,
        registry: str | None = None,
        address: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Self:
        """Each setting from its option, else its environment variable, else its default."""
        environ = os.environ if environ is None else environ
        home_path = Path(home or environ.get(HOME_VARIABLE) or ".orchestrator").expanduser().absolute()
        storage = storage or environ.get(STORAGE_VARIABLE) or str(home_path / "storage")
        if "://" not in storage:
            storage = str(Path(storage).expanduser().absolute())
        return cls(
            home=home_path,
            storage=storage,
            registry=registry or environ.get(REGISTRY_VARIABLE) or f"sqlite:///{home_path / 'registry.sqlite'}",
            address=address or environ.get(ADDRESS_VARIABLE) or None,
        )
