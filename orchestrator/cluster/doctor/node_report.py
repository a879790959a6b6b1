"""Report of one node: what its probe has found, what was measured from the driver, and what Ray says of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Versions:
    """Versions of what decides a run; empty where it is not installed."""

    python: str
    ray: str
    torch: str
    package: str
    digest: str
    """Digest of this project's source files as they lie there."""


@dataclass(frozen=True)
class NodeReport:
    """Answer of a node's probe."""

    host: str
    versions: Versions
    token_mode: str
    """Mode of Ray's authentication: `token` or `disabled`."""
    sees_storage: bool
    """Whether the driver's marker was read back from the storage."""
    writes_storage: bool
    storage_error: str
    free_memory_bytes: int
    memory_bytes: int
    free_disk_bytes: int
    """Free bytes of the file system to which Ray spills objects."""
    disk_bytes: int
    gloo_interface: str
    gloo_address: str
    gloo_error: str

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> Self:
        """Make a report of a probe's plain values."""
        return cls(**{**values, "versions": Versions(**values["versions"])})


@dataclass(frozen=True)
class Measured:
    """Measurements between the driver and a node."""

    clock_s: float
    """Time by which the node's clock is ahead of the driver's."""
    clock_uncertainty_s: float
    """Half the round trip: the node's clock was read at some moment of it."""
    bytes_per_s: float | None = None
    """Speed of an object from the driver's node; None for that node itself, and where none arrived."""
    marker_arrived: bool = False
    """Whether the driver has read the node's marker on the storage."""
    transfer_problem: str = ""
    link_problem: str = ""
    """Reason why a worker on another node would not reach one on this node."""


@dataclass(frozen=True)
class NodeView:
    """One living node of the cluster, as seen from the driver."""

    node_id: str
    address: str
    is_drivers: bool
    """Whether the driver runs on this node."""
    total: Mapping[str, float]
    """Resources by Ray's names."""
    free: Mapping[str, float]
    report: NodeReport | None = None
    measured: Measured | None = None
    num_at_address: int = 1
    """Living nodes that have its address; one, unless Ray was started there twice."""
    silence: str = ""
    """Facts on a node that has not answered."""
    raylet_answers: bool = True

    @property
    def name(self) -> str:
        """Address, with the host's name where it is known."""
        return f"{self.address} ({self.report.host})" if self.report else self.address
