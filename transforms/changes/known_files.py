"""The file of the known records, which all workers map into memory.

    OUTPUT/spool/<hash>.known    an Arrow file, removed at publishing

OUTPUT is that of the build, a generation's folder. The hash is of the known records.
"""

from __future__ import annotations

import functools
import hashlib
import json
import mmap
from dataclasses import dataclass

import pyarrow as pa

from shardwright.errors import StorageError
from shardwright.format import naming
from shardwright.storage.folder import Folder
from shardwright.transforms.changes.known_records import KnownRecords
from shardwright.transforms.inputs.spool import SinkFile

_ARRAYS = ("keys", "more", "states", "rows", "splits", "places")
_FACTS = ("split_names", "num_rows", "longest_run", "with_labels", "by_content", "num_unhashed")
_METADATA = b"shardwright"


@dataclass(frozen=True, slots=True)
class KnownFile:
    """The file of the known records of a build.

    Attributes:
        spool: The spool of the build.
        name: Name of the file, without extension.
        num_rows: As in `KnownRecords`.
    """

    spool: Folder
    name: str
    num_rows: int

    def open(self) -> KnownRecords:
        """Return the records, mapped into memory, once per process.

        Raises:
            StorageError: The file is missing or cannot be read.
        """
        return _open(self)


def write_known(spool: Folder, known: KnownRecords) -> KnownFile:
    """Write the known records for the workers of a build.

    Raises:
        StorageError: The file cannot be written.
    """
    facts = json.dumps({name: getattr(known, name) for name in _FACTS}).encode()
    arrays = {name: getattr(known, name) for name in _ARRAYS if getattr(known, name) is not None}
    digest = hashlib.blake2b(facts, digest_size=16)
    for array in arrays.values():
        # Named by its content: a retried step of the same build writes the same file.
        digest.update(array)
    name = digest.hexdigest()
    batch = pa.RecordBatch.from_pydict({key: pa.array(array) for key, array in arrays.items()})
    schema = batch.schema.with_metadata({_METADATA: facts})
    with (
        spool.open_sink(f"{name}{naming.KNOWN_SUFFIX}", sync=False) as sink,
        pa.PythonFile(SinkFile(sink), mode="w") as file,
        pa.ipc.new_file(file, schema) as writer,
    ):
        writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    return KnownFile(spool, name, known.num_rows)


@functools.lru_cache(maxsize=1)
def _open(file: KnownFile) -> KnownRecords:
    name = f"{file.name}{naming.KNOWN_SUFFIX}"
    try:
        # The mapping keeps the bytes of a downloaded copy.
        with file.spool.local_copy(name) as copy:
            # Mapped, so that all processes of a machine share one copy in the page cache.
            mapped = mmap.mmap(copy.fileno(), 0, access=mmap.ACCESS_READ)
        table = pa.ipc.open_file(pa.py_buffer(mapped)).read_all()
        facts = json.loads(table.schema.metadata[_METADATA])
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise StorageError(
            f"{file.spool.path(name)} cannot be read ({error}): run the build again"
        ) from error
    arrays = {name: table.column(name).combine_chunks().to_numpy() for name in table.column_names}
    facts["split_names"] = tuple(facts["split_names"])
    return KnownRecords(**arrays, **facts)
