"""A server that speaks S3 on this machine: moto's, in a thread of the process of the tests."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest

BUCKET = "laboratory"
MISSING = "no S3: s3fs and moto are not installed; pip install -e '.[dev]' brings them"


@contextmanager
def running_s3() -> Iterator[dict[str, str]]:
    """Start the server with one bucket; gives the environment in which every process finds it."""
    s3fs = pytest.importorskip("s3fs", reason=MISSING)
    server_module = pytest.importorskip("moto.server", reason=MISSING)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = server_module.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    try:
        with pytest.MonkeyPatch.context() as patched:
            for name, value in environment.items():
                patched.setenv(name, value)
            s3fs.S3FileSystem(skip_instance_cache=True).mkdir(BUCKET)
            yield environment
    finally:
        server.stop()


def new_s3_root() -> str:
    """The URI of an empty folder."""
    return f"s3://{BUCKET}/{uuid4().hex}"
