"""Count the rejects in files of reject rows by their reasons."""

from __future__ import annotations

import re
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import MissingError, StorageError
from shardwright.format.parquet import ParquetRows
from shardwright.storage.folder import Folder

_BATCH_ROWS = 65_536
_REASON = re.compile(r"[a-z0-9_]{1,100}")


def count_reasons(root: Folder, name: str) -> Counter[str]:
    """Return the number of rows of a file by reason, {} if it does not exist.

    Raises:
        StorageError: The file cannot be read.
    """
    counts: Counter[str] = Counter()
    try:
        with root.open_input(name) as source, ParquetRows(source, root.path(name)) as file:
            for batch in file.batches(_BATCH_ROWS, ["reason"]):
                for counted in pc.value_counts(batch.column("reason")).to_pylist():
                    reason = str(counted["values"])
                    counts[reason if is_reason(reason) else "unknown"] += counted["counts"]
    except MissingError:  # the build removed it meanwhile
        return Counter()
    except StorageError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise StorageError(f"{root.path(name)} cannot be read: {error}") from error
    return counts


def is_reason(text: str) -> bool:
    """Return whether a text may be a reason, and so may be printed: lower-case words and `_`."""
    return _REASON.fullmatch(text) is not None


def by_number(counts: Counter[str]) -> dict[str, int]:
    """Return counts, largest first."""
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))
