"""Attention by one backend, whatever the calls are: for comparisons of backends."""

from contextlib import AbstractContextManager
from unittest import mock

import bert_core.attention
from bert_core.attention import BACKENDS


def forced_attention(name: str) -> AbstractContextManager[object]:
    """Send every call to one backend during the block, whether or not it would refuse it."""
    backend = next(backend for backend in BACKENDS if backend.name == name)
    return mock.patch.object(bert_core.attention, "choose_backend", return_value=backend)
