"""Resolve the image paths that tables and annotations state, and keep references inside of INPUT.

Paths and links in INPUT may lead anywhere on the machine.
"""

from __future__ import annotations

import functools
import itertools
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from unicodedata import normalize
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import StorageError, UsageError
from shardwright.storage.addresses import HIDDEN, is_remote, parse_address, redact
from shardwright.storage.folder import files_of
from shardwright.storage.object_reads import head_object
from shardwright.storage.options import StorageOptions
from shardwright.storage.reads import map_reads
from shardwright.transforms.inputs.file_rules import (
    IMAGE_EXTENSIONS,
    Problem,
    etag_of,
    file_problem,
    has_image_name,
    size_problem,
)
from shardwright.transforms.inputs.folder_contents import FolderListings
from shardwright.transforms.references import (
    PICTURE_TYPE,
    QUERY,
    ImagePlace,
    keep_rows,
    picture_columns,
    set_column,
)
from shardwright.transforms.rejects import Reject, RejectReason, reason_of


def keep_inside(
    rows: Iterable[pa.RecordBatch | Reject], folders: tuple[str, ...]
) -> Iterator[pa.RecordBatch | Reject]:
    """Yield the rows of a listing, but a reject for each one with a local image elsewhere.

    Args:
        rows: References and rejects.
        folders: The real paths of the folders (and files) that may hold images.
    """

    # A folder that does not exist has no links. Not remembered for longer: it may be made later.
    @lru_cache(maxsize=4096)
    def has_no_links(folder: str) -> bool:
        return _holds(folders, folder) and not os.path.isdir(folder)

    for found in rows:
        if isinstance(found, Reject):
            yield found
        else:
            yield from _keep_rows_inside(found, folders, has_no_links)


def _keep_rows_inside(
    batch: pa.RecordBatch, folders: tuple[str, ...], has_no_links: Callable[[str], bool]
) -> Iterator[pa.RecordBatch | Reject]:
    outside = np.zeros(batch.num_rows, bool)
    pictures = map(batch.column, picture_columns(batch.schema))
    for column in (batch.column("uri"), *(pc.struct_field(one, "uri") for one in pictures)):
        problems = {
            uri: problem
            # Each address once: many rows may be of one archive.
            for uri in column.unique().to_pylist()
            if uri
            and not has_no_links(uri.rpartition("/")[0])
            and not is_remote(uri)
            and (problem := outside_problem(uri, folders))
        }
        if problems:
            found = pc.is_in(column, value_set=pa.array(list(problems), pa.string()))
            for row in np.flatnonzero(found.to_numpy(zero_copy_only=False) & ~outside).tolist():
                outside[row] = True
                uri = column[row].as_py()
                yield Reject(batch.column("id")[row].as_py(), uri, *problems[uri])
    batch = keep_rows(batch, ~outside) if outside.any() else batch
    if batch.num_rows:
        yield batch


def outside_problem(path: str, folders: tuple[str, ...]) -> Problem | None:
    """Return the problem of a path that leads out of the folders, or None."""
    # The folder's answer is remembered, so that an ordinary file costs one call.
    if _holds(folders, path.rpartition("/")[0]) and not os.path.islink(path):
        return None
    real = os.path.realpath(path)
    if _is_inside(real, folders):
        return None
    told = f"it leads to {real}, outside of INPUT: allow its folder with --allow-outside "
    return RejectReason.OUTSIDE_INPUT, f"{told}'{os.path.dirname(real)}'"


@lru_cache(maxsize=4096)
def _holds(folders: tuple[str, ...], folder: str) -> bool:
    return _is_inside(os.path.realpath(folder), folders)


def _is_inside(real: str, folders: tuple[str, ...]) -> bool:
    # With the slash, so that /data does not hold /data2.
    return any(real == one or real.startswith(f"{one.rstrip('/')}/") for one in folders)


PROBES = 5  # images looked up to find the folder of all
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
        # Before anything else keeps the path: ids and uris are written into the dataset.
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
    # Almost always: only odd paths take a Python call each.
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


def look_up_batch(
    batch: pa.RecordBatch, storage: StorageOptions, *, folder: str, listed_in: str = "the table"
) -> tuple[list[Reject], pa.RecordBatch]:
    """Fill in each file's length and etag; reject missing files and those that cannot be images.

    Args:
        batch: References.
        storage: Options of the files' stores.
        folder: As for `look_up`.
        listed_in: The file that lists them, for the details of rejects.
    """
    uris = batch.column("uri").to_pylist()
    queries = batch.column(QUERY).to_pylist() if QUERY in batch.schema.names else None
    found = look_up(uris, storage, folder=folder, listed_in=listed_in, queries=queries)
    rejects: list[Reject] = []
    places: list[ImagePlace | None] = []
    for image_id, uri, one in zip(batch.column("id").to_pylist(), uris, found, strict=True):
        if isinstance(one, ImagePlace):
            places.append(one)
        else:
            rejects.append(Reject(image_id, uri, *one))
            places.append(None)
    states = pa.array(places, PICTURE_TYPE)
    for name in ("num_bytes", "etag"):
        batch = set_column(batch, name, states.field(name))
    return rejects, keep_rows(batch, states.is_valid().to_numpy(zero_copy_only=False))


def look_up(
    uris: Sequence[str],
    storage: StorageOptions,
    *,
    folder: str,
    listed_in: str = "the table",
    queries: Sequence[str | None] | None = None,
) -> Iterator[ImagePlace | Problem]:
    """Yield the place of each file or object, or its problem; objects are looked up concurrently.

    Args:
        uris: The files and objects.
        storage: Options of their stores.
        folder: The folder that relative paths start from, for the details of rejects.
        listed_in: The file that lists them, for the details of rejects.
        queries: The queries of signed URLs; None if there are none.
    """
    if any(map(is_remote, uris)):
        signed = zip(uris, queries or itertools.repeat(None), strict=False)
        place = (listed_in, folder)
        yield from map_reads(lambda one: _look_up_one(*one, storage, *place), signed)
    else:
        yield from (_look_up_one(uri, None, storage, listed_in, folder) for uri in uris)


def holding_folder(
    paths: pa.Array, folders: Sequence[str], storage: StorageOptions
) -> tuple[str | None, list[str]]:
    """Return the first folder with one of these relative paths, and their addresses there."""

    def exists(uri: str) -> bool:
        try:
            return files_of(uri, storage).num_bytes_of(uri) is not None
        except (StorageError, ValueError):  # ValueError: a path with a NUL in it
            return False

    for folder in folders:
        uris = resolve_paths(paths, folder)[1].to_pylist()
        if any(map(exists, uris)):
            return folder, uris
    return None, []


def look_up_pictures(
    paths: Sequence[str | None], storage: StorageOptions, folder: str
) -> list[tuple[str, ImagePlace | Problem] | None]:
    """Return the address of each path with what `look_up` yields, None without one; raise as it.

    Args:
        paths: Paths as written.
        storage: Options of the images' stores.
        folder: The folder that relative paths start from.
    """
    named = [row for row, path in enumerate(paths) if path]
    result: list[tuple[str, ImagePlace | Problem] | None] = [None] * len(paths)
    if named:
        written = pa.array([paths[row] for row in named], pa.string())
        uris = resolve_paths(written, folder)[1].to_pylist()
        for row, *found in zip(named, uris, look_up(uris, storage, folder=folder), strict=True):
            result[row] = found[0], found[1]
    return result


def _look_up_one(
    uri: str, query: str | None, storage: StorageOptions, listed_in: str, folder: str
) -> ImagePlace | Problem:
    is_object = is_remote(uri)
    try:
        if is_object:
            found = head_object(uri, storage, query)
            if found:
                place = ImagePlace(uri, None, found.num_bytes, found.etag)
                return size_problem(found.num_bytes) or place
        else:
            status = os.stat(uri)
            place = ImagePlace(uri, None, status.st_size, etag_of(status))
            return file_problem(status) or place
    except (FileNotFoundError, NotADirectoryError):
        pass
    except UsageError as error:
        return RejectReason.BAD_VALUE, str(error)
    except StorageError as error:
        if (reason := reason_of(error, uri)) is None:
            raise
        return reason, str(error)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL byte
        return RejectReason.UNREADABLE, str(getattr(error, "strerror", None) or error)
    detail = f"listed in {listed_in}, but there is no such {'object' if is_object else 'file'}"
    return _missing(uri, detail, folder, storage)


def _missing(uri: str, detail: str, folder: str, storage: StorageOptions) -> Problem:
    """Return the problem of a missing file, with where it was looked for, or the likely cause."""
    below = f"{redact(folder).rstrip('/')}/"
    above, _, name = uri.rpartition("/")
    near = _names_in(above, storage).get(_as_copied(name), "")
    if "\\" in uri.removeprefix(below):
        detail += ": write / in place of the backslashes of its path"
    elif near:
        accents = " with accents as other code points (NFC, NFD)"
        accents *= normalize("NFC", near) == normalize("NFC", name)
        detail += f": `{near}`{accents} is there, so correct its name"
    elif uri.startswith(below):
        detail += f" below {below}: give --image-root, the folder that relative paths start from"
    return RejectReason.MISSING_FILE, detail


@functools.lru_cache(maxsize=16)
def _names_in(folder: str, storage: StorageOptions) -> Mapping[str, str]:
    """Return the names of the first images in a folder by `_as_copied`."""
    try:
        found = FolderListings(storage).look_in(folder).files
    except (StorageError, UsageError):
        return {}
    return {_as_copied(name): name for name in found if has_image_name(name)}


def _as_copied(name: str) -> str:
    """Return a name without its extension and what programs change when they copy names."""
    plain = "".join(normalize("NFC", unquote(name)).casefold().split())
    return os.path.splitext(plain)[0] if has_image_name(plain) else plain
