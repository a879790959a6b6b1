"""Notice that this host will be taken away, passed on to the cluster: its node is drained, and runs leave it.

    python -m orchestrator.cluster.drain_notice aws HEAD:6379     waits for the cloud's notice, tells the cluster
    python -m orchestrator.cluster.drain_notice 120 HEAD:6379     tells the cluster that the host goes in 120 seconds

The cluster files of clouds start it beside Ray on spot machines. Ray's own `ray drain-node` does the same but for one
thing: when the node has been left, the host's monitor would start another one there.
"""

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from orchestrator.cluster.node_monitor import AWAY

ASK_EVERY_S = 5.0
_TIMEOUT_S = 2.0
_MARGIN_S = 60.0
"""Time that a host may be longer there than its notice says."""
_GCP_SECONDS = 30.0
"""Time between Google Cloud's notice, which has no time in it, and the end of the machine."""


@dataclass(frozen=True)
class Notice:
    """Notice that this host will be taken away."""

    reason: str
    left_s: float


def find_aws_notice(base: str = "http://169.254.169.254") -> Notice | None:
    """Ask AWS's metadata service, version 2, for the notice of an interruption; None where there is none."""
    token = _ask(f"{base}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, method="PUT")
    told = _ask(f"{base}/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token or ""})
    if told is None:
        return None
    values = json.loads(told)
    left = datetime.fromisoformat(values["time"]) - datetime.now(UTC)
    return Notice(f"AWS will {values['action']} this spot machine", max(0.0, left.total_seconds()))


def find_gcp_notice(base: str = "http://metadata.google.internal") -> Notice | None:
    """Ask Google Cloud's metadata service whether this machine is being preempted; None where it is not."""
    told = _ask(f"{base}/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
    return Notice("Google Cloud takes this spot machine back", _GCP_SECONDS) if told == "TRUE" else None


CLOUDS: Mapping[str, Callable[[], Notice | None]] = {"aws": find_aws_notice, "gcp": find_gcp_notice}


def drain_node(node_id: str, notice: Notice) -> str:
    """Tell the connected cluster that a node goes; returns why it does not take that, or nothing."""
    from ray._private.worker import global_worker  # what `ray drain-node` calls has no public name
    from ray.core.generated.autoscaler_pb2 import DrainNodeReason

    reason = DrainNodeReason.Value("DRAIN_NODE_REASON_PREEMPTION")
    deadline_ms = int(1000 * (time.time() + notice.left_s))
    is_accepted, problem = global_worker.gcs_client.drain_node(node_id, reason, notice.reason, deadline_ms)
    return "" if is_accepted else str(problem)


def _ask(url: str, headers: Mapping[str, str], method: str = "GET") -> str | None:
    """Text that a metadata service answers; None where it has none, or does not answer."""
    request = urllib.request.Request(url, headers=dict(headers), method=method)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, TimeoutError):
        return None


def stay_away(left_s: float) -> None:
    """Let the host's monitor not bring its node back before the host is gone; an undrained one would get work again."""
    AWAY.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    AWAY.write_text(str(time.time() + left_s + _MARGIN_S))


def main(source: str, address: str) -> int:
    """Wait for the notice, and drain this host's node of the cluster at an address; returns the exit status."""
    if source.isdecimal():
        notice = Notice("somebody takes this host away", float(source))
    elif source not in CLOUDS:
        print(f"{source} is neither {' nor '.join(CLOUDS)} nor a whole number of seconds", file=sys.stderr)
        return 2
    else:
        while (found := CLOUDS[source]()) is None:
            time.sleep(ASK_EVERY_S)
        notice = found
    import ray

    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    stay_away(notice.left_s)
    problem = drain_node(ray.get_runtime_context().get_node_id(), notice)
    print(problem or f"{notice.reason} in {notice.left_s:.0f} s: its node is being drained")
    return bool(problem)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
