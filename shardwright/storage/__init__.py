"""Where bytes come from and go to: local files, S3, Google Cloud Storage, Azure, and web servers to read from.

`Folder` is what everything else uses. Local files go through `local`; objects through obstore, one client a process for each bucket
(`clients`), which logs in as `credentials` finds, repeats what may pass, and says what went wrong as a typed error (`faults`).
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
from shardwright.storage.objects import read_object, read_object_part
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
    "parse_address",
    "read_object",
    "read_object_part",
]
