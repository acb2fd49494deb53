"""Storage: local files, S3, Google Cloud Storage, Azure, and web servers (read-only).

Everything else uses `Folder`. Local files go through `local`, objects through obstore with one
client per process and bucket (`clients`). Clients find their credentials (`credentials`), retry
transient errors and raise typed errors (`faults`).
"""

from shardwright.storage.addresses import (
    absolute,
    is_remote,
    join,
    key_problem,
    local_path,
    parse_address,
)
from shardwright.storage.counters import COUNTERS
from shardwright.storage.folder import Folder, files_of
from shardwright.storage.local import open_regular
from shardwright.storage.object_reads import read_object, read_object_part
from shardwright.storage.options import NO_OPTIONS, StorageOptions

__all__ = [
    "COUNTERS",
    "NO_OPTIONS",
    "Folder",
    "StorageOptions",
    "absolute",
    "files_of",
    "is_remote",
    "join",
    "key_problem",
    "local_path",
    "open_regular",
    "parse_address",
    "read_object",
    "read_object_part",
]
