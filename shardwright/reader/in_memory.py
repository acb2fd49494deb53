"""Read a whole split as arrays, if it fits in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardwright.errors import UsageError
from shardwright.format.versions import VersionKey
from shardwright.images.specs import ImageTransform
from shardwright.reader.encodings import Encoding
from shardwright.reader.reader import Reader
from shardwright.sizes import parse_size, show_bytes
from shardwright.storage.folder import Folder

_ALL_ROWS = 1 << 40  # more than any split has: one incomplete batch


def read_split(
    root: Folder,
    split: str,
    *,
    image: ImageTransform | None,
    features: Sequence[str] | Mapping[str, Encoding | None] | None,
    max_bytes: int | str,
    version: VersionKey,
) -> dict[str, Any]:
    """Return a split as arrays: see `Dataset.to_numpy`."""
    with Reader(
        root.uri,
        split,
        global_batch_size=_ALL_ROWS,
        image=image,
        features=features,
        epochs=1,
        storage_options=root.options,
        version=version,
    ) as reader:
        _check_fits(reader, split, image, max_bytes)
        return next(iter(reader))


def _check_fits(
    reader: Reader, split: str, image: ImageTransform | None, max_bytes: int | str
) -> None:
    limit = parse_size(max_bytes, "max_bytes") if isinstance(max_bytes, str) else max_bytes
    feature = reader.schema.image
    if feature is None or feature.name not in reader.element_spec:
        return
    if image is None or None in image.shape:
        num_bytes = sum(
            shard.info.num_bytes * shard.num_rows // shard.info.num_records
            for shard in reader.engine.corpus.shards
        )
    else:
        num_bytes = (
            reader.num_records
            * int(np.prod([side or 0 for side in image.shape]))
            * image.dtype.itemsize
        )
    if num_bytes > limit:
        raise UsageError(
            f"the images of {split!r} take {show_bytes(num_bytes)} in memory, "
            f"more than max_bytes={max_bytes}: read a part, such as 'test[:1000]', "
            "decode to a smaller size, or read batches with sw.Reader"
        )
