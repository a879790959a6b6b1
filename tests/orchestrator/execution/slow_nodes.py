"""Nodes of this machine that Ray's autoscaler starts as a cloud does: they are asked for, and come later."""

import time
from typing import Any

from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider

START_S = 15.0


class SlowNodes(FakeMultiNodeProvider):  # type: ignore[misc]
    """Provider of nodes that take their time."""

    def create_node_with_resources_and_labels(self, *arguments: Any) -> None:
        """Start nodes, some time from now."""
        time.sleep(START_S)
        super().create_node_with_resources_and_labels(*arguments)
