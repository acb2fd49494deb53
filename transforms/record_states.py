"""Hash what decides whether a record has changed: its address, etag, label and bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.transforms.inputs.file_rules import SPOOL_ETAG
from shardwright.transforms.text_hashes import combined, hash128

_NO_ETAG = np.uint64(1)
_CONTENT_ETAG = f"^{SPOOL_ETAG}[0-9a-f]{{24}}$"  # `shardwright.transforms.hashing.content_hash`


def places_of(uris: pa.Array, etags: pa.Array) -> np.ndarray:
    """Return the hashes of addresses, uint64 [rows]."""
    return hash128(_without_spool(uris, etags))[0]


def states_of(
    places: np.ndarray, etags: pa.Array, labels: pa.Array | None, content: Sequence[pa.Array]
) -> np.ndarray:
    """Return the hashes of (address, etag, label, content), uint64 [rows]."""
    numbers = (column.to_numpy().astype(np.uint64) for column in content)
    of_etags = hash128(etags)[0]
    of_etags[etags.is_null().to_numpy(zero_copy_only=False)] = _NO_ETAG
    hashes = [places, of_etags, *numbers]
    if labels is not None:
        texts = labels if pa.types.is_dictionary(labels.type) else labels.dictionary_encode()
        # Each distinct label is hashed once; a null is the row behind the last one, whose hash is
        # 0.
        rows = pc.fill_null(texts.indices, len(texts.dictionary)).to_numpy(zero_copy_only=False)
        hashes.append(np.append(hash128(texts.dictionary)[0], np.uint64(0))[rows])
    return combined(*hashes)


def with_features(states: np.ndarray, hashes: pa.Array) -> np.ndarray:
    """Return states that include the hashes of features; those without such a hash stay."""
    known = hashes.is_valid().to_numpy(zero_copy_only=False)
    numbers = pc.fill_null(hashes, 0).to_numpy(zero_copy_only=False)
    return np.where(known, combined(states, numbers), states)


def _without_spool(uris: pa.Array, etags: pa.Array) -> pa.Array:
    """Return addresses; of bytes in the spool only the file's name, or "" with a content's hash.

    Each generation has a spool of its own.
    """
    spooled = are_spooled(etags)
    if not pc.any(spooled).as_py():
        return uris
    by_content = pc.fill_null(pc.match_substring_regex(etags, _CONTENT_ETAG), False)
    # The file's name is a hash of the part and its state, which every generation spells alike.
    names = pc.if_else(by_content, "", pc.replace_substring_regex(uris, "^.*/", ""))
    return pc.if_else(spooled, names, uris)


def are_spooled(etags: pa.Array) -> pa.Array:
    """Return which records were read from a spool, by their etags, bool [rows]."""
    return pc.fill_null(pc.starts_with(etags, SPOOL_ETAG), False)
