"""The folder or bucket that every node reaches: whole files or none, and their digests."""

from orchestrator.storage.download_cache import local_copy
from orchestrator.storage.files import (
    delete,
    digest_file,
    exists,
    join,
    names_in,
    open_read,
    read_bytes,
    read_json,
    write_bytes,
    write_folder,
    write_json,
)

__all__ = [
    "delete",
    "digest_file",
    "exists",
    "join",
    "local_copy",
    "names_in",
    "open_read",
    "read_bytes",
    "read_json",
    "write_bytes",
    "write_folder",
    "write_json",
]
