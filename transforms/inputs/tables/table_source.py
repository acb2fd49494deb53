"""Tables of images as input: their files, formats and columns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.schema import PICTURES, Feature, FeatureKind
from shardwright.storage import NO_OPTIONS, StorageOptions, files_of, parse_address
from shardwright.storage.clients import client_for
from shardwright.storage.listing import first_page
from transforms.inputs.detection import has_wildcard
from transforms.inputs.file_rules import is_litter
from transforms.inputs.input_files import find_files
from transforms.inputs.source import InputSource, SourceFormat, SourceRequest
from transforms.inputs.tables.table_columns import extra_feature
from transforms.inputs.tables.table_files import TABLE_EXTENSIONS, read_table_schema, table_format
from transforms.inputs.tables.table_pictures import look_at_pictures
from transforms.inputs.tables.table_references import list_table, reference_schema_of
from transforms.inputs.tables.table_roles import check_roles, find_roles, roles_as_text
from transforms.rejects import Reject

_TEXT_KINDS = frozenset(
    {FeatureKind.TEXT, FeatureKind.BYTES, FeatureKind.TOKENS, FeatureKind.BAG_OF_WORDS}
)
_ENDINGS = ", ".join(sorted(TABLE_EXTENSIONS))
_PACKED = 4  # Parquet and gzip shrink tables of paths to about a quarter

# Join keys of a table of labels: the id (a column of ids, else the path), the path, or the file's
# name without an image's extension.
LABEL_KEYS = ("id", "path", "stem")


@dataclass(frozen=True, slots=True)
class TableSource(InputSource):
    """A table to read, in one file or in several.

    Attributes:
        path: Its absolute path, or a store's address; for several files, their common folder.
        format: "csv", "tsv", "jsonl" or "parquet".
        columns: Every column's type.
        image_root: The folder that relative image paths start from; None for that of their table.
        image, label, id, split, group, size: The columns with a role; only `image` is required.
        storage: Options of the stores that hold it and its images.
        names_files: True if its paths are files below its folder; False if they are ids of
            another input.
        files: Names of several files below `path`, in name order; () for a table in one file.
        num_bytes: Approximate bytes of its rows in memory, which decide how a table of labels is
            joined.
        key: The join key of a table of labels, one of `LABEL_KEYS`.
        brought: The columns that a schema uses, whatever their role; None for all without a role.
        pictures: Those of them that hold paths of further images.
    """

    path: str
    format: str
    columns: pa.Schema
    image: str
    label: str | None = None
    id: str | None = None
    split: str | None = None
    group: str | None = None
    size: str | None = None
    storage: StorageOptions = NO_OPTIONS
    names_files: bool = True
    image_root: str | None = None
    files: tuple[str, ...] = ()
    num_bytes: int = 0
    key: str = "id"
    brought: tuple[str, ...] | None = None
    pictures: tuple[str, ...] = ()

    @property
    def root(self) -> str:
        """The folder that ids are relative to."""
        return self.image_root or (self.path if self.files else os.path.dirname(self.path))

    def path_of(self, name: str) -> str:
        """Return the path or address of one of `files`; "" stands for a table in one file."""
        return f"{self.path.rstrip('/')}/{name}" if name else self.path

    def folder_of(self, name: str) -> str:
        """Return the folder that relative image paths in one of `files` start from."""
        return self.image_root or os.path.dirname(self.path_of(name))

    @property
    def extra_columns(self) -> list[str]:
        """The columns that become features: those without a role, or those that a schema uses."""
        if self.brought is not None:
            return list(self.brought)
        roles = {self.image, self.label, self.id, self.split, self.group, self.size}
        return [name for name in self.columns.names if name not in roles]

    @property
    def has_integer_labels(self) -> bool:
        return self.label is not None and pa.types.is_integer(self.columns.field(self.label).type)

    @property
    def schema(self) -> pa.Schema:
        return reference_schema_of(self)

    @property
    def features(self) -> tuple[Feature, ...]:
        return tuple(
            extra_feature(name, self.columns.field(name).type) for name in self.extra_columns
        )

    @property
    def states_splits(self) -> bool:
        return self.split is not None

    def describe(self) -> str:
        names = ("image", "label", "id", "split", "group", "size")
        roles = [f"{role}={getattr(self, role)!r}" for role in names if getattr(self, role)]
        extras = f"; features from {', '.join(self.extra_columns)}" if self.extra_columns else ""
        place = (
            f"table of {len(self.files)} files below {self.path}"
            if self.files
            else f"table at {self.path}"
        )
        return f"a {self.format} {place}, columns {', '.join(roles)}{extras}"

    def parts(self) -> Iterator[str]:
        yield from self.files or ("",)

    def list_part(self, part: str) -> Iterator[pa.RecordBatch | Reject]:
        for found in list_table(self, part):
            if isinstance(found, Reject) or not self.pictures:
                yield found
            else:
                yield from look_at_pictures(
                    found, self.pictures, self.folder_of(part), self.storage
                )

    def for_features(self, features: Sequence[Feature]) -> TableSource:
        """Return the table with only the columns of these features.

        Image paths among them are looked up. Text features of a CSV or TSV keep their text as
        written, where "1.50" could be a number.
        """
        wanted = {
            feature.column_name: feature
            for feature in features
            if feature.column_name in self.columns.names
        }
        pictures = tuple(name for name, feature in wanted.items() if feature.kind in PICTURES)
        texts = {
            name
            for name, feature in wanted.items()
            if feature.kind in _TEXT_KINDS and name != self.label
        }
        columns = self.columns
        if self.format in ("csv", "tsv"):
            columns = pa.schema(
                [
                    (field.name, pa.string() if field.name in texts else field.type)
                    for field in columns
                ]
            )
        return replace(self, brought=tuple(wanted), pictures=pictures, columns=columns)

    def of_labels(self, key: str = "id", root: str | None = None) -> TableSource:
        """Return the table as a `--labels` table: ids are join keys, and files are not looked up.

        Args:
            key: One of `LABEL_KEYS`.
            root: The folder of the other input's paths; None for the table's own.
        """
        return replace(self, names_files=False, key=key, image_root=self.image_root or root)


class TableFormat(SourceFormat):
    """A table: one file, several that a wildcard matches, or a folder of nothing else."""

    name: ClassVar[str] = "table"
    summary: ClassVar[str] = (
        "a .csv, .tsv, .jsonl or .parquet with image paths, a wildcard such as part-*.csv.gz, "
        "or a folder of them"
    )
    rank: ClassVar[int] = 30

    def open(self, request: SourceRequest, *, forced: bool) -> TableSource | None:
        if not forced and not _is_table(request):
            return None
        return _open_table(request, needs_image=True)


def open_label_table(request: SourceRequest, *, key: str, root: str | None) -> TableSource:
    """Open a `--labels` table. Without a column of image paths, it is joined by its ids.

    Args:
        request: The request for the table.
        key: One of `LABEL_KEYS`.
        root: The folder of the other input's paths; None for the table's own.

    Raises:
        UsageError: It is not a table, or lacks a column.
        BuildError: It cannot be read.
    """
    if not _is_table(request) and not has_wildcard(request.uri) and not request.is_file:
        raise UsageError(
            f"{request.argument} {request.uri} is a folder; "
            "give a .csv, .tsv, .jsonl or .parquet table"
        )
    return _open_table(request, needs_image=False).of_labels(key, root)


def _is_table(request: SourceRequest) -> bool:
    """Return whether INPUT is made of tables; a folder must hold nothing else."""
    uri = request.uri
    if has_wildcard(uri):
        return table_format(uri) is not None or bool(find_files(request, _is_table_name))
    if not request.is_remote:
        return os.path.isfile(uri) or _holds_tables(files_of(uri, request.storage).names_in(uri))
    if table_format(uri) and request.is_file:
        return True
    store, prefix = parse_address(uri)
    client = client_for(store, request.storage)
    if client.scheme in ("http", "https"):  # a web server does not list its files
        return False
    return _holds_tables([row.key[len(prefix) :].lstrip("/") for row in first_page(client, prefix)])


def _holds_tables(names: Sequence[str]) -> bool:
    """Return whether a folder's files are one table; names with a leading "_" are markers."""
    kinds = {
        table_format(name) for name in names if not is_litter(name) and not name.startswith("_")
    }
    return len(kinds) == 1 and None not in kinds and not any("/" in name for name in names)


def _is_table_name(name: str) -> bool:
    return table_format(name) is not None and not name.startswith("_")


def _open_table(request: SourceRequest, *, needs_image: bool) -> TableSource:
    if not has_wildcard(request.uri) and (
        request.is_file if request.is_remote else os.path.isfile(request.uri)
    ):
        source = detect_table(
            request.uri,
            request.columns,
            argument=request.argument,
            storage=request.storage,
            needs_image=needs_image,
        )
        return replace(source, image_root=request.image_root)
    found = find_files(request, _is_table_name)
    if not found:
        raise UsageError(
            f"{request.argument} {request.uri} holds no table; a table's name ends in {_ENDINGS}"
        )
    kinds = {table_format(file.uri) for file in found}
    if len(kinds) > 1:
        raise UsageError(
            f"{request.argument} {request.uri} matches tables of several formats "
            f"({', '.join(sorted(map(str, kinds)))}): choose one, such as *.parquet"
        )
    source = _detect(
        [file.uri for file in found],
        request.columns,
        argument=request.argument,
        storage=request.storage,
        needs_image=needs_image,
    )
    folder = found[0].uri.removesuffix(found[0].name).rstrip("/") or "/"
    return replace(
        source, path=folder, files=tuple(file.name for file in found), image_root=request.image_root
    )


def detect_table(
    path: str,
    columns: Mapping[str, str | None],
    *,
    argument: str = "INPUT",
    storage: StorageOptions = NO_OPTIONS,
    needs_image: bool = True,
) -> TableSource:
    """Read a table's columns and types, and assign columns to roles.

    Args:
        columns: Role -> column given by an option, or None to look for a usual name.
        argument: The argument's name in messages.
        storage: Options of its store.
        needs_image: Require a column of image paths; if False, one of ids is enough.

    Raises:
        UsageError: A given column is missing, or no column can be the image's.
        BuildError: The file cannot be read as a table, or a column's type does not suit its role.
    """
    return _detect([path], columns, argument=argument, storage=storage, needs_image=needs_image)


def detect_tables(
    root: str,
    names: Sequence[str],
    columns: Mapping[str, str | None],
    *,
    argument: str = "INPUT",
    storage: StorageOptions = NO_OPTIONS,
) -> TableSource:
    """Do the same as `detect_table` for several files below a folder that form one table."""
    paths = [f"{root.rstrip('/')}/{name}" for name in names]
    return replace(
        _detect(paths, columns, argument=argument, storage=storage, needs_image=True),
        path=root,
        files=tuple(names),
    )


def _detect(
    paths: Sequence[str],
    columns: Mapping[str, str | None],
    *,
    argument: str,
    storage: StorageOptions,
    needs_image: bool,
) -> TableSource:
    """Return a source of the first file, with the columns and types of all."""
    kind = table_format(paths[0])
    if kind is None:
        hint = (
            "; a .json must be COCO's, with a list of `images`"
            if paths[0].lower().endswith(".json")
            else ""
        )
        raise UsageError(
            f"{argument} {paths[0]} is a file without a table's extension ({_ENDINGS}); "
            f"give a folder or a table{hint}"
        )
    schema = read_table_schema(paths, kind, storage)
    roles = find_roles(paths[0], schema, columns, needs_image=needs_image)
    if kind in ("csv", "tsv"):
        schema = roles_as_text(schema, roles)
    check_roles(schema, roles)
    return TableSource(
        path=paths[0],
        format=kind,
        columns=schema,
        image=roles["image"] or "",  # never None here: `find_roles` raises
        label=roles["label"],
        id=roles["id"],
        split=roles["split"],
        group=roles["group"],
        size=roles["size"],
        storage=storage,
        num_bytes=sum(_num_bytes(path, kind, storage) for path in paths),
    )


def _num_bytes(path: str, kind: str, storage: StorageOptions) -> int:
    """Return the approximate bytes of a table's rows in memory, where compressed files grow."""
    packed = kind == "parquet" or path.lower().endswith(".gz")
    return (files_of(path, storage).num_bytes_of(path) or 0) * (_PACKED if packed else 1)
