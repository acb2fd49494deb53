"""Resolve the image paths that tables and annotations state, and name images by them."""

from __future__ import annotations

import os
import posixpath
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.storage.addresses import HIDDEN, is_remote, parse_address
from shardwright.transforms.inputs.file_rules import IMAGE_EXTENSIONS

SCHEME = r"^[A-Za-z][A-Za-z0-9+.-]*://"
STORE = r"^(s3a?|gs|gcs|az|https?)://"
# Paths to resolve one by one: with dots, doubled slashes, a home folder, or the scheme file.
_ODD_PATH = r"^~|(^|/)\.{1,2}(/|$)|//|^file:"
# What `addresses.redact` hides in texts, for arrays of addresses.
_LOGIN = r"(?s)^([A-Za-z][A-Za-z0-9+.-]*://)[^/]*@"
_SIGNED = r"(?is)^(?P<url>https?://[^?]*)\?(?P<query>[^=]*=.*)$"
_IMAGE_ENDING = rf"(?is)(.)\.({'|'.join(sorted(IMAGE_EXTENSIONS))})$"


def is_whole_path(path: str) -> bool:
    """Return whether a path is absolute, or an address, so that it belongs to no folder."""
    return re.match(f"/|{SCHEME}", path) is not None


def has_addresses(paths: pa.Array) -> bool:
    """Return whether any path is an address, far cheaper than a regular expression for each."""
    return bool(pc.any(pc.match_substring(paths, "://")).as_py())


def stems_of(paths: pa.Array) -> pa.Array:
    """Return the file names of paths without an image's extension.

    Anything else after a dot may belong to the name.
    """
    return pc.replace_substring_regex(
        pc.replace_substring_regex(paths, r"(?s)^.*/", ""), _IMAGE_ENDING, r"\1"
    )


def split_queries(paths: pa.Array) -> tuple[pa.Array, pa.Array | None]:
    """Return paths without the queries of signed URLs, and these queries, null for other paths.

    Instead of a column of nulls, the queries are None.
    """
    if not (has_addresses(paths) and pc.any(pc.match_substring_regex(paths, _SIGNED)).as_py()):
        return paths, None
    parts = pc.extract_regex(paths, _SIGNED)
    return pc.coalesce(pc.struct_field(parts, "url"), paths), pc.struct_field(parts, "query")


def resolve_paths(paths: pa.Array, root: str) -> tuple[pa.Array, pa.Array]:
    """Return (path relative to `root`, absolute path or address) for each path.

    A path outside `root` and a store's address stay as written in place of a relative path. An
    empty path stays empty in both. Passwords and queries in addresses are hidden, and such
    addresses cannot be read.
    """
    whole, bare = pc.starts_with(paths, "/"), paths
    if has_addresses(paths):
        paths = pc.replace_substring_regex(paths, _LOGIN, rf"\1{HIDDEN}@")
        paths = pc.replace_substring_regex(paths, _SIGNED, rf"\1?{HIDDEN}")
        whole = pc.match_substring_regex(paths, f"^/|{SCHEME}")
        bare = pc.replace_substring_regex(paths, STORE, "")
    folder = root.rstrip("/") + "/"
    as_written = pc.or_(whole, pc.equal(paths, ""))
    uris = pc.if_else(as_written, paths, pc.binary_join_element_wise(folder, paths, ""))
    below = pc.starts_with(paths, folder)
    relative = paths
    if pc.any(below).as_py():
        relative = pc.if_else(below, pc.utf8_slice_codeunits(paths, len(folder)), paths)
    odd = pc.match_substring_regex(bare, _ODD_PATH)
    if not pc.any(odd).as_py():
        return relative, uris
    written, relative_list, uri_list = paths.to_pylist(), relative.to_pylist(), uris.to_pylist()
    for row in np.flatnonzero(odd.to_numpy(zero_copy_only=False)):
        relative_list[row], uri_list[row] = _resolve_path(written[row], folder)
    return pa.array(relative_list, pa.string()), pa.array(uri_list, pa.string())


def _resolve_path(written: str, folder: str) -> tuple[str, str]:
    path = written.removeprefix("file://")
    if re.match(SCHEME, path):
        return path, path
    local = os.path.normpath(os.path.join(folder, os.path.expanduser(path)))
    uri = _join_key(folder, path) if is_remote(folder) and not path.startswith("/") else local
    return (uri.removeprefix(folder) if uri.startswith(folder) else os.path.normpath(path)), uri


def _join_key(folder: str, path: str) -> str:
    """Join a dotted path to a prefix.

    A path that leaves its bucket is only appended: no object has that name.
    """
    store, key = parse_address(folder)
    joined = posixpath.normpath(posixpath.join(key, path))
    return f"{folder}{path}" if joined.startswith("..") else f"{store}/{joined.lstrip('/')}"
