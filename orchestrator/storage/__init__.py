"""The storage that every node reaches: a folder or bucket, with files that are there whole or not at all."""

from orchestrator.storage.download_cache import local_copy
from orchestrator.storage.file_access import (
    VersionedFile,
    digest_file,
    open_read,
    read_bytes,
    read_json,
    read_versioned,
    replace_if_unchanged,
    write_bytes,
    write_chunks,
    write_json,
)
from orchestrator.storage.folders import delete, exists, moved_path, names_in, write_folder
from orchestrator.storage.logs import AppendLog
from orchestrator.storage.uris import join

__all__ = [
    "AppendLog",
    "VersionedFile",
    "delete",
    "digest_file",
    "exists",
    "join",
    "local_copy",
    "moved_path",
    "names_in",
    "open_read",
    "read_bytes",
    "read_json",
    "read_versioned",
    "replace_if_unchanged",
    "write_bytes",
    "write_chunks",
    "write_folder",
    "write_json",
]
