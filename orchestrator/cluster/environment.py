"""Environment variables that Ray and its workers read, each with its reason beside it; a variable that is set is left.

A process reads them when it starts. Workers of a local Ray have them from the command that starts it. Workers of a
cluster have those of `MEMORY` from their node, so the files that start nodes set them too (`cluster.yaml`, `deploy/`).
"""

import os

MEMORY = {
    # glibc would give a step's large tensors back to the kernel and get them again, zeroed; keeping them trains faster.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
    # oneDNN keeps a compiled kernel for each shape, a thousand by default, and packed batches have new shapes in every
    # step: a worker grew to gigabytes. What a step uses again, layer by layer, fits into this.
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
    "LRU_CACHE_CAPACITY": "64",
}
"""Variables of a process that trains."""

DRIVER = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Interval at which Train looks at its workers: its default of 2 s delays every report and checkpoint by as much.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    # Leaves CUDA_VISIBLE_DEVICES as it is for workers without GPUs, as later versions of Ray will do by default.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Variables of a driver; Train hands its own on to controller and workers."""

CLUSTER_DRIVER = {
    # What the dashboard answers about Ray Train's runs; a local Ray has no dashboard.
    "RAY_TRAIN_ENABLE_STATE_TRACKING": "1",
}
"""Variables that a driver has besides where it joins a cluster."""


_NICENESS = "RAY_worker_niceness"
LOCAL_DRIVER = {
    # Ray's default of 15 lets every other program go first, and a training beside one takes several times as long.
    _NICENESS: "0",
}
"""Variables that a driver has besides where it starts a Ray of its own."""


def give_way() -> None:
    """Let the workers of a Ray that this process starts take what other programs leave of the CPUs."""
    os.environ[_NICENESS] = "15"


def prepare_driver(*, local: bool) -> None:
    """Set in this process what Ray is to find; to be called before Ray is imported."""
    for name, value in (MEMORY | DRIVER | (LOCAL_DRIVER if local else CLUSTER_DRIVER)).items():
        os.environ.setdefault(name, value)
