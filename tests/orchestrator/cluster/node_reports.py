"""Reports of nodes for tests: one without a fault, to be changed where a test wants one."""

from orchestrator.cluster.doctor.node_report import Measured, NodeReport, NodeView, Versions

HERE = Versions("3.11.7", "2.60.0", "2.13.0+cpu", "0.9.0", "ab12ab12ab12")
REPORT = NodeReport(
    host="host2",
    versions=HERE,
    token_mode="token",
    sees_storage=True,
    writes_storage=True,
    storage_error="",
    free_memory_bytes=120 << 30,
    memory_bytes=256 << 30,
    free_disk_bytes=812 << 30,
    disk_bytes=1000 << 30,
    gloo_interface="enp0s31f6",
    gloo_address="10.77.0.12",
    gloo_error="",
)
MEASURED = Measured(clock_s=0.012, clock_uncertainty_s=0.001, bytes_per_s=1.118e9, marker_arrived=True)
FIRST = NodeView("a" * 56, "10.77.0.11", True, {"CPU": 64.0, "GPU": 8.0}, {"CPU": 60.0, "GPU": 7.0}, REPORT, MEASURED)
SECOND = NodeView("b" * 56, "10.77.0.12", False, {"CPU": 2.0}, {"CPU": 0.5}, REPORT, MEASURED)
SILENT = NodeView("c" * 56, "10.77.0.13", False, {"CPU": 2.0}, {"CPU": 2.0}, silence="no answer within 30 s")
