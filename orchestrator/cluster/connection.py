"""Connection to Ray for one command: a running cluster, or a local Ray that is started and ended with the command.

Environment variables that Ray and its workers read are set before Ray is imported, each with its reason beside it; a
variable that is set is left. A process reads them when it starts: workers of a local Ray have them from the command
that starts it, those of a cluster have `MEMORY` from their node, so the files that start nodes set them too
(`cluster.yaml`, `deploy/`). A local Ray takes only connections with a token that this user alone can read.
"""

import logging
import math
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from orchestrator.base.console import UNDER_WAY
from orchestrator.base.errors import ClusterError
from orchestrator.base.settings import API_ADDRESS_VARIABLE, Settings, lies_here
from orchestrator.cluster.capacity import CORES, logical_cpus

logger = logging.getLogger(__name__)
_CONNECT_TIMEOUT_S = 5.0
MEMORY = {
    # glibc would give a step's large tensors back to the kernel and get them again, zeroed; keeping them trains faster.
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
    # oneDNN keeps a compiled kernel for each shape, a thousand by default, and packed batches have new shapes in every
    # step: a worker grew to gigabytes. What a step uses again, layer by layer, fits into this.
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64",
    "LRU_CACHE_CAPACITY": "64",
    # Packed batches have new sizes in every step, which would leave a GPU's memory in pieces too small for the next.
    "PYTORCH_ALLOC_CONF": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
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
# What the dashboard answers about Ray Train's runs; a local Ray has no dashboard.
CLUSTER_DRIVER = {"RAY_TRAIN_ENABLE_STATE_TRACKING": "1"}
"""Variables that a driver has besides where it joins a cluster."""
# Ray's default of 15 lets every other program go first, and a training beside one takes several times as long.
LOCAL_DRIVER = {"RAY_worker_niceness": "0"}
"""Variables that a driver has besides where it starts a Ray of its own."""
_TOKEN_REMEDY = (
    "set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN_PATH to a file with the cluster's token "
    "(`ray get-auth-token` on its head)"
)
LOCAL_TRIES = 3
"""Number of times that a local Ray is started before that counts as trouble."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def names_no_cluster(settings: Settings) -> bool:
    """Whether Ray runs on this machine alone, because the settings name no cluster."""
    return settings.address in (None, "local")


def most_cpus(settings: Settings) -> float:
    """CPUs that compute at once at most: the cores of this machine, of which a local Ray counts more; of a cluster
    infinitely many."""
    return float(os.cpu_count() or 1) if names_no_cluster(settings) else math.inf


def is_dashboard(address: str) -> bool:
    """Whether an address is a dashboard's, by which jobs are submitted, and no driver can connect."""
    return address.startswith(("http://", "https://"))


def head_dashboard(settings: Settings, environ: Mapping[str, str] = os.environ) -> str | None:
    """Address of the dashboard on whose head the registry is read; None where the settings name another place.

    A registry that was typed, or a server's, is read from here, unless it is `file:PATH` and that file is the
    cluster's. One of this machine's environment gives way to the dashboard. A driver's address, as jobs on a cluster
    have one, is no dashboard's.
    """
    address = settings.address or environ.get(API_ADDRESS_VARIABLE, "")
    is_elsewhere = settings.registry.startswith("file:") and not lies_here(settings.registry)
    if not is_dashboard(address) or ("registry" in settings.sent and not is_elsewhere):
        return None
    return address.rstrip("/")


def dashboard_address(settings: Settings, environ: Mapping[str, str] = os.environ) -> str:
    """The http(s) address to submit to. Raises: ClusterError."""
    given = settings.address or ""
    address = given if is_dashboard(given) else environ.get(API_ADDRESS_VARIABLE, "")
    if not is_dashboard(address) or not urlsplit(address).hostname:
        raise ClusterError(
            "this needs the address of a cluster's dashboard: --address http://127.0.0.1:8265 "
            f"or {API_ADDRESS_VARIABLE}; `ray dashboard cluster.yaml` opens a way to it"
        )
    return address.rstrip("/")


def check_reachable(address: str) -> None:
    """Check that a driver can connect to an address.

    Raises: ClusterError for a dashboard's address, and where nobody listens.
    """
    if address == "auto":
        return
    if is_dashboard(address):
        raise ClusterError(
            f"{address} is a dashboard's address: use it with `orchestrator submit`, or give HOST:6379 to run from here"
        )
    check_listening(address if "://" in address else f"ray://{address}")


def check_listening(address: str) -> None:
    """Check within seconds that something listens at an address; Ray itself takes a minute. Raises: ClusterError."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        host, port = None, None
    shown = address.removeprefix("ray://")
    if host is None or port is None:
        raise ClusterError(f"{shown!r} is no address of a Ray cluster; give HOST:PORT, usually HOST:6379, or auto")
    try:
        socket.create_connection((host, port), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError as error:
        reason = error.strerror or str(error)
        if is_dashboard(address):
            raise ClusterError(
                f"no dashboard answers at {address}: {reason}; where the cluster runs, the way to it may be missing: "
                "`ray dashboard cluster.yaml` opens one, and is left running in a terminal of its own"
            ) from error
        raise ClusterError(
            f"no Ray answers at {shown}: {reason}; check that it runs (`ray status`) and that this machine may reach it"
        ) from error


def prepare_driver(*, local: bool) -> None:
    """Set in this process what Ray is to find; to be called before Ray is imported."""
    for name, value in (MEMORY | DRIVER | (LOCAL_DRIVER if local else CLUSTER_DRIVER)).items():
        os.environ.setdefault(name, value)


@contextmanager
def connect(settings: Settings, *, num_cpus: float = 0.0) -> Iterator[None]:
    """Connect to the cluster at `settings.address`, or else to a local Ray that ends with the block.

    A local Ray counts `num_cpus` CPUs even where the machine has fewer cores (`logical_cpus`), so that workers and
    their data tasks do not wait for one another on a small machine. A Ray that is connected already is used and stays.

    Raises: ClusterError when the cluster cannot be reached or refuses.
    """
    local = names_no_cluster(settings)
    prepare_driver(local=local)
    if local and "ray" not in sys.modules:
        _use_private_token(settings.home)
    import ray

    if ray.is_initialized():
        yield
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "namespace": "orchestrator"}
    if local:
        options |= {
            "address": "local",
            "num_cpus": logical_cpus(num_cpus),
            "resources": {CORES: float(os.cpu_count() or 1)},
            "include_dashboard": False,
        }
    else:
        assert settings.address is not None
        check_reachable(settings.address)
        _check_token(settings.address)
        options["address"] = settings.address
    try:
        with _own_signal_handlers():
            _init(options, tries=LOCAL_TRIES if local else 1)
    except Exception as error:  # a node that starts too slowly raises no narrower class
        where = "a local Ray could not be started" if local else f"Ray at {settings.address} cannot be used"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise ClusterError(f"{where}: {reason}; {_remedy(local, error)}") from error
    try:
        yield
    finally:
        if local:
            logger.info("ending this machine's Ray", extra=UNDER_WAY)
        ray.shutdown()


def _init(options: dict[str, Any], tries: int) -> None:
    """Start or join a Ray. A local one that did not start in Ray's 30 s, as on a busy machine, is tried again."""
    import ray

    others = set(psutil.Process().children(recursive=True))
    for tries_left in reversed(range(tries)):
        try:
            ray.init(**options)
            return
        except Exception as error:  # a node that starts too slowly raises no narrower class
            if not tries_left or "timed out during startup" not in str(error):
                raise
            logger.info(f"the local Ray did not start in time; trying again ({tries_left} more)")
            for started in set(psutil.Process().children(recursive=True)) - others:
                with suppress(psutil.NoSuchProcess):
                    started.kill()


def _check_token(address: str) -> None:
    """Check that a head answers and takes this process's token: Ray itself asks for 20 s, and prints each failure.

    Raises: ClusterError.
    """
    if address == "auto" or "://" in address:
        return
    import grpc
    from ray._private.grpc_utils import init_grpc_channel  # adds the token and TLS; nothing public opens a channel
    from ray.core.generated import gcs_service_pb2, gcs_service_pb2_grpc  # the head's own question, at once

    stub = gcs_service_pb2_grpc.NodeInfoGcsServiceStub(init_grpc_channel(address))
    try:
        stub.GetClusterId(gcs_service_pb2.GetClusterIdRequest(), timeout=_CONNECT_TIMEOUT_S)
    except grpc.RpcError as error:
        if error.code() == grpc.StatusCode.UNAUTHENTICATED:
            raise ClusterError(f"Ray at {address} refuses the token, or there is none; {_TOKEN_REMEDY}") from error
        if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNIMPLEMENTED):  # no timeout: it may be slow
            raise ClusterError(
                f"what listens at {address} is no head of a Ray cluster; give HOST:PORT of one, usually HOST:6379"
            ) from error


def _use_private_token(home: Path) -> None:
    """Turn token authentication on, with a token that only this user can read; everybody could read Ray's own."""
    if os.environ.setdefault("RAY_AUTH_MODE", "token") != "token":
        return
    if "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ:
        return
    path = home / "ray_token"
    try:
        home.mkdir(parents=True, exist_ok=True)
        _create_private(path, secrets.token_hex(32))
    except OSError as error:
        raise ClusterError(f"{path} cannot be written: {error.strerror}; give another --home") from error
    os.environ["RAY_AUTH_TOKEN_PATH"] = str(path)


def _create_private(path: Path, text: str) -> None:
    """Write a file that only this user can read, whole or not at all; the text of one that is there stays."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    try:
        os.link(temporary, path)
    except FileExistsError:
        path.chmod(0o600)
    finally:
        temporary.unlink()


@contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Put this process's signal handlers back at the end of the block.

    `ray.init` replaces the one of SIGTERM by its own, which would end the process before a run's end is recorded. A
    SIGTERM that this one took meanwhile goes to the handler that was there before.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    except SystemExit:  # raised by Ray's handler
        signal.raise_signal(signal.SIGTERM)
        raise


def _remedy(local: bool, error: Exception) -> str:
    text = str(error).lower()
    if "version mismatch" in text:
        return "use the versions of constraints.txt on both sides"
    if "af_unix" in text:
        return "set TMPDIR to a short path, such as /tmp"
    if "auth" in text or "token" in text:
        return _TOKEN_REMEDY
    return "see `orchestrator doctor`" if local else "check the address, and that the cluster runs (`ray status`)"
