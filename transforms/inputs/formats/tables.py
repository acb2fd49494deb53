"""Tables of images or labels: the place of each image, and the values of its row.

A table is one file, several that a wildcard matches, or a folder of nothing else. Its rows are
images, or boxes of images (`box_rows`).
"""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardwright.errors import UsageError
from shardwright.format.schema import PICTURES, Feature, FeatureKind
from shardwright.sizes import counted
from shardwright.storage.addresses import HIDDEN
from shardwright.storage.folder import files_of
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from shardwright.transforms.features.lists import empty_as_null, is_text, null_where
from shardwright.transforms.inputs.columns import (
    NOT_A_CLASS,
    ROLE_COLUMNS,
    Columns,
    as_text,
    canonical_splits,
    check_names,
    class_texts,
    find_roles,
    folded,
    quoted,
    role_text,
)
from shardwright.transforms.inputs.file_rules import MAX_IMAGE_BYTES, SPLIT_FOLDERS, extension_of
from shardwright.transforms.inputs.folder_contents import has_wildcard
from shardwright.transforms.inputs.formats.table_files import (
    TABLE_EXTENSIONS,
    read_first_rows,
    read_table_file,
    read_table_schema,
    table_format,
)
from shardwright.transforms.inputs.image_paths import (
    SCHEME,
    STORE,
    has_addresses,
    keep_inside,
    look_up_batch,
    look_up_pictures,
    resolve_paths,
    split_queries,
    stems_of,
)
from shardwright.transforms.inputs.input_files import (
    InputFile,
    checked,
    files_state_splits,
    find_files,
)
from shardwright.transforms.inputs.source import InputSource, Rows, SourceRequest
from shardwright.transforms.references import (
    PICTURE_TYPE,
    QUERY,
    ImagePlace,
    extra_name,
    keep_rows,
    reject_rows,
    rows_left,
    set_column,
)
from shardwright.transforms.rejects import Reject, RejectReason

_LOG = logging.getLogger("shardwright.inputs")
S = TypeVar("S", bound="TableSource")
_OBJECT = rf"(?s){STORE}[^/@]+/+([^/])"  # a bucket and a key: only such an address can be read
_HIDDEN_QUERY = f"?{HIDDEN}"  # left by `resolve_paths`
_ENDINGS = ", ".join(sorted(TABLE_EXTENSIONS))
CLASSES_FILE, _LABELS = "_classes.csv", "labels"  # Roboflow's, and its feature
_NO_CLASS = "no_class"  # the column of labels that are none
_PACKED = 4  # Parquet and gzip shrink tables of paths to about a quarter
_TEXT_KINDS = frozenset(
    {FeatureKind.TEXT, FeatureKind.BYTES, FeatureKind.TOKENS, FeatureKind.BAG_OF_WORDS}
)


class NoImagesError(UsageError):
    """A table without a column of image paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout(Columns):
    """The files of a table, and its columns.

    Attributes:
        path: Its absolute path, or a store's address; for several files, their common folder.
        format: "csv", "tsv", "jsonl" or "parquet".
        image_root: The folder that relative image paths start from; None for that of their table.
        may_lack_images: True if a row without an image path is a record.
        storage: Options of the stores that hold it and its images.
        names_files: True if its paths are files below its folder; False if they are ids of
            another input.
        files: Names of several files below `path`, in name order; () for a table in one file.
        num_bytes: Approximate bytes of its rows in memory, which decide how a table of labels is
            joined.
        key: The join key of a table of labels, "id", "path" or "stem".
        folders: As in `InputSource`, for the further images of a table of labels.
        boxes: The columns of boxes (`box_rows.BoxColumns`) if each row is one; None if each row is
            an image.
        suffix: The extension of the images, if their paths lack it.
        names_split: True if the names of its files state their splits.
        flags: The columns of the files, if all but the image's are classes with 0 or 1; None for
            `columns`.
    """

    path: str
    format: str
    storage: StorageOptions = NO_OPTIONS
    names_files: bool = True
    image_root: str | None = None
    may_lack_images: bool = False
    files: tuple[str, ...] = ()
    num_bytes: int = 0
    key: str = "id"
    folders: tuple[str, ...] = ()
    boxes: Any = None
    suffix: str = ""
    names_split: bool = False
    flags: pa.Schema | None = None

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

    def as_source(self, kind: type[S], **more: Any) -> S:
        """Return this table as INPUT, a `TableSource` or one of a subclass with more attributes."""
        number = f" of {counted(len(self.files), 'file')} below" if self.files else " at"
        table = f"a {self.format} table{number} {self.path}"
        found = {"label_paths_root": self.root, "layout": self, "columns": None}
        if self.boxes is None:
            found["columns"] = None if self.structs else tuple(self.columns.names)
            table += f", columns {self.describe()}"
        else:
            found |= self.boxes.attributes() | {"may_have_labels": False}
            others = [one.name for one in self.boxes.objects if one.name != self.label]
            table += f" with a row for each box ({', '.join(self.boxes.edges)}), columns "
            table += self.describe(others)
        if self.names_split:
            found |= {"states_splits": True}
            table += ", splits by the names of the files"
        return self.source_as(kind, table, **(found | more))

    def for_features(self, features: Sequence[Feature]) -> TableLayout:
        """Return the table with only the columns of these features.

        Image paths among them are looked up. Text features of a CSV or TSV keep their text as
        written, where "1.50" could be a number.
        """
        if self.boxes is not None:
            return self
        there = set(self.columns.names)
        wanted = {one.column_name: one for one in features if one.column_name in there}
        pictures = tuple(name for name, one in wanted.items() if one.kind in PICTURES)
        texts = {
            name
            for name, one in wanted.items()
            if one.kind in _TEXT_KINDS and name != self.label and self.format in ("csv", "tsv")
        }
        columns = pa.schema(
            [one.with_type(pa.string()) if one.name in texts else one for one in self.columns]
        )
        return replace(self, brought=tuple(wanted), pictures=pictures, columns=columns)

    def of_labels(
        self, key: str = "id", root: str | None = None, folders: tuple[str, ...] = ()
    ) -> TableLayout:
        """Return the table as a `--labels` table: ids are join keys, and files are not looked up.

        Args:
            key: "id", "path" or "stem".
            root: The folder of the other input's paths; None for the table's own.
            folders: The folders of the other input's images, beside the table's own; () for any.
        """
        own = os.path.realpath(self.path if self.files else os.path.dirname(self.path))
        return replace(
            self,
            names_files=False,
            key=key,
            image_root=self.image_root or root,
            folders=(*folders, own) if folders else (),
        )


class ObjectFinder(Protocol):
    """Finds objects of images in tables, with their boxes (`box_tables.Objects`).

    Attributes:
        roles: Usual names of columns, by role, in a table with a row for each box.
    """

    roles: ClassVar[Mapping[str, Sequence[str]]]

    def in_rows(self, request: SourceRequest, columns: pa.Schema) -> Any:
        """Return `TableLayout.boxes` of a table with these columns."""

    def in_cells(self, columns: pa.Schema, declared: Container[str]) -> Any:
        """Return `Columns.structs` of these columns; `declared` ones are features by themselves."""

    def placed(self, table: TableLayout, boxes: Any) -> TableLayout:
        """Return a table with these `boxes`, and with the folder of its images."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSource(InputSource):
    """A table, with a row for each image. `BoxTableSource` finds objects, too.

    Attributes:
        finder: Finds objects.
        layout: Its files, and the roles of its columns.
    """

    summary = (
        "a .csv, .tsv, .jsonl or .parquet with image paths, a wildcard such as part-*.csv.gz, "
        "or a folder of them"
    )
    rank = 30
    is_listed_fast = True
    reads_records = True

    finder: ClassVar[ObjectFinder | None] = None

    layout: TableLayout

    def parts(self) -> Iterator[str]:
        # The rows of an image may be in several files.
        yield from ("",) if self.layout.boxes else self.layout.files or ("",)

    def bring(self, features: Sequence[Feature]) -> TableSource:
        return self.layout.for_features(features).as_source(type(self))

    @classmethod
    def look(cls, request: SourceRequest) -> TableSource | None:
        """Return a table as a source; None if INPUT is something else. Raises as `open_table`."""
        if not request.forced and not is_table(request):
            return None
        return open_table(request, finder=cls.finder).as_source(cls)

    def references(self, part: str) -> Rows:
        """Yield the rows of one of its files; of a table of boxes, the images of all files."""
        files = self.layout.files if self.layout.boxes else ()
        return list_table(self.layout, *(files or (part,)))


def open_label_table(
    request: SourceRequest,
    *,
    key: str,
    root: str | None,
    folders: tuple[str, ...] = (),
    finder: ObjectFinder | None = None,
) -> TableSource:
    """Return a `--labels` table as a source; without image paths, it is joined by its ids.

    Args:
        request: The request for the table.
        key: "id", "path" or "stem".
        root: The folder of the other input's paths; None for the table's own.
        folders: As for `TableLayout.of_labels`.
        finder: Tells a table with a row for each box, which is refused.

    Raises:
        UsageError: It does not exist, is not a table, or lacks a column.
        BuildError: It cannot be read.
    """
    request = checked(request)
    if not is_table(request) and not has_wildcard(request.uri) and not request.is_file:
        raise UsageError(
            f"{request.argument} {request.uri} is a folder; "
            "give a .csv, .tsv, .jsonl or .parquet table"
        )
    table = open_table(request, is_labels=True)
    boxes = finder and finder.in_rows(request, table.columns)
    if boxes and len(boxes.edges) > 1:
        raise UsageError(
            f"{request.argument} {request.uri} has a row for each box ({', '.join(boxes.edges)}): "
            "give it as INPUT, with --image-root and the folder of the images"
        )
    return table.of_labels(key, root, folders).as_source(TableSource)


def is_table(request: SourceRequest) -> bool:
    """Return whether INPUT is made of tables; a folder must hold nothing else."""
    uri = request.uri
    if has_wildcard(uri):
        return table_format(uri) is not None or bool(find_files(request, _is_table_name))
    if (not request.is_remote or table_format(uri)) and request.is_file:
        return True
    found = request.listings.look_in(uri)
    names = (*found.folders, *found.files, *found.others)
    # Names with a leading "_" are markers.
    kinds = {table_format(name) for name in names if not name.startswith("_")}
    return len(kinds) == 1 and None not in kinds


def _is_table_name(name: str) -> bool:
    return table_format(name) is not None and not name.startswith("_")


def open_table(
    request: SourceRequest, *, is_labels: bool = False, finder: ObjectFinder | None = None
) -> TableLayout:
    """Return the layout of INPUT's table.

    Args:
        request: The request for INPUT.
        is_labels, finder: As for `table_of`.

    Raises:
        UsageError: There is no table, there are several formats, or as for `table_of` and
            `files_state_splits`.
        BuildError: As for `table_of`.
    """
    uri = request.uri
    if not has_wildcard(uri) and request.is_file:
        return table_of(request, uri, is_labels=is_labels, finder=finder)
    found = find_files(request, _is_table_name)
    if not found:
        raise UsageError(
            f"{request.argument} {uri} holds no table; a table's name ends in {_ENDINGS}"
        )
    kinds = {table_format(file.uri) for file in found}
    if len(kinds) > 1:
        raise UsageError(
            f"{request.argument} {uri} matches tables of several formats "
            f"({', '.join(sorted(map(str, kinds)))}): choose one, such as *.parquet"
        )
    folder = found[0].uri.removesuffix(found[0].name).rstrip("/") or "/"
    names = [file.name for file in found]
    table = table_of(request, folder, names, is_labels=is_labels, finder=finder)
    return replace(table, names_split=not table.split and files_state_splits(request, found))


def table_of(
    request: SourceRequest,
    path: str,
    files: Sequence[str] = (),
    *,
    is_labels: bool = False,
    finder: ObjectFinder | None = None,
    images: Sequence[str] = ROLE_COLUMNS["image"],
) -> TableLayout:
    """Read a table's columns and types, and assign columns to roles.

    Args:
        request: The request for INPUT.
        path: The table's file, or the common folder of several.
        files: The names of several files below `path`; () for a table in one file.
        is_labels: It has the labels of another input's images, whose ids or stems are enough.
        finder: As in `TableSource`.
        images: The usual names of the image's column.

    Raises:
        NoImagesError: No column can be the image's.
        UsageError: A given column is missing.
        BuildError: A file cannot be read as a table, or a column's type does not suit its role.
    """
    paths = [f"{path.rstrip('/')}/{name}" for name in files] or [path]
    kind = _format_of(request, paths[0])
    schema = read_table_schema(paths, kind, request.storage)
    is_csv, has_images = kind in ("csv", "tsv"), request.image is not None and not is_labels
    if "" in schema.names:
        raise UsageError(
            f"column {schema.names.index('') + 1} of {path} has no name: "
            "name it, or leave it out (pandas: to_csv(index=False))"
        )
    sample = read_first_rows(paths[0], kind, schema, request.storage)
    flags: pa.Schema | None = None
    known: dict[str, Feature] = {}
    if has_images and os.path.basename(paths[0]) == CLASSES_FILE:
        flags, known[_LABELS] = _flags_of(request, path, schema, images)
        schema = pa.schema([(flags.names[0], pa.string()), (_LABELS, pa.list_(pa.string()))])
        images, sample = [folded(flags.names[0])], None
    sample = sample or pa.RecordBatch.from_pylist([], schema=schema)
    boxes = finder.in_rows(request, schema) if finder and has_images else None
    usual = finder.roles if finder and boxes else ROLE_COLUMNS
    roles = find_roles(sample, request, path, {**usual, "image": images}, texts=is_csv)
    if boxes:  # a column called id may number the boxes
        roles |= {"image": roles["image"] or roles["id"], "id": request.columns.get("id")}
    if is_labels:  # "stem" is in place of paths, for `--labels-key stem`
        stem = "stem" if "stem" in schema.names else None
        roles["image"] = roles["image"] or roles["id"] or stem
    elif not has_images:
        roles |= {"image": None, "size": None}
    if roles["image"] is None and (has_images or is_labels):
        raise NoImagesError(
            f"{path} has the columns {quoted(schema.names)}: "
            "set --image-column to the one with the image paths; for records without images, "
            "give --schema records, or a schema of your own without an image"
        )
    if is_csv:  # an id "1.5" or "true" is text
        texts = {roles[role] for role in ("image", "id", "split", "group")}
        schema = pa.schema(
            [one.with_type(pa.string()) if one.name in texts else one for one in schema]
        )
    table = TableLayout(
        path=path,
        format=kind,
        columns=schema,
        **roles,
        storage=request.storage,
        image_root=request.image_root,
        may_lack_images=request.may_lack_images,
        files=tuple(files),
        num_bytes=sum(files_of(one, request.storage).num_bytes_of(one) or 0 for one in paths)
        * (_PACKED if kind == "parquet" or paths[0].lower().endswith(".gz") else 1),
        structs=finder.in_cells(schema, request.kinds) if finder and has_images else None,
        known=known,
        flags=flags,
    )
    if table.split is None:
        _warn_of_splits(sample, path, {*request.kinds, *roles.values()})
    return finder.placed(table, boxes) if finder and boxes else table


def _flags_of(
    request: SourceRequest, path: str, columns: pa.Schema, images: Sequence[str]
) -> tuple[pa.Schema, Feature]:
    """Return the columns of Roboflow's table, the image's first, and the classes of the others."""
    sample = pa.RecordBatch.from_pylist([], schema=columns)
    found = find_roles(sample, request, path, {"image": images}, texts=True)
    image = found["image"] or columns.names[0]
    flags = pa.schema(dict.fromkeys([image, *columns.names], pa.string()))
    classes = tuple(map(str.strip, flags.names[1:]))
    check_names(path, classes)
    return flags, Feature(_LABELS, FeatureKind.MULTI_LABEL, names=classes)


def _warn_of_splits(rows: pa.RecordBatch, path: str, used: Collection[str | None]) -> None:
    """Log a column that is not used, and whose first values are names of several splits."""
    for name in (name for name in rows.schema.names if name not in used):
        if is_text(rows.schema.field(name).type):
            values = {str(one).strip().lower() for one in pc.unique(rows.column(name)).to_pylist()}
            if len(values) > 1 and values <= SPLIT_FOLDERS.keys():
                _LOG.warning(
                    "column %r of %s has names of splits, and is read as a feature: if it states "
                    "the splits, give --split-column %s",
                    *(name, path, shlex.quote(name)),
                )


def _with_labels(table: TableLayout, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of 0 and 1 with the names of their classes; null for other values."""
    assert table.flags is not None
    image, *classes = map(rows.column, table.flags.names)  # a file may have another order
    texts = [pc.utf8_trim_whitespace(column).to_pylist() for column in classes]
    names = table.known[_LABELS].names
    labels = [
        [name for name, flag in zip(names, flags, strict=True) if flag == "1"]
        if {*flags} <= {"0", "1"}
        else None
        for flags in zip(*texts, strict=True)
    ]
    columns = [pc.utf8_trim_whitespace(image), pa.array(labels, pa.list_(pa.string()))]
    return pa.RecordBatch.from_arrays(columns, schema=table.columns)


def _format_of(request: SourceRequest, path: str) -> str:
    kind = table_format(path)
    if kind is not None:
        return kind
    hints = {
        "json": "; a .json must be COCO's, with a list of `images`",
        **dict.fromkeys(("arrow", "feather", "ipc"), "; save an Arrow file as Parquet"),
    }
    hint = hints.get(extension_of(path), "")
    raise UsageError(
        f"{request.argument} {path} is a file without a table's extension ({_ENDINGS}); "
        f"give a folder or a table{hint}"
    )


def list_table(table: TableLayout, *names: str) -> Rows:
    """Yield the rows of some of the table's files as reference batches, and rejects of bad rows.

    Args:
        names: Some of `table.files`; none for a table in one file. Rows are numbered per file.
    """
    names = names or ("",)
    if table.boxes is not None:
        rows = (
            row if isinstance(row, Reject) else table.boxes.read(row, f"{name}: " if name else "")
            for name in names
            for row in _checked_rows(table, name)
        )

        def locate(batch: pa.RecordBatch) -> Rows:
            return _located(table, batch, names[0])

        yield from table.boxes.list_images(rows, table.num_bytes, locate, table.storage)
        return
    for name in names:
        for batch in _checked_rows(table, name):
            if isinstance(batch, Reject):
                yield batch
                continue
            located = _located(table, batch, name)
            if table.structs is not None:
                located = table.structs.in_rows(located, table.storage)
            for found in located:
                if isinstance(found, Reject) or (found.num_rows and not table.pictures):
                    yield found
                elif found.num_rows:
                    folder = table.folder_of(name)
                    pictures = with_pictures(found, table.pictures, folder, table.storage)
                    yield from keep_inside(pictures, table.folders) if table.folders else pictures


def _checked_rows(table: TableLayout, name: str) -> Rows:
    """Yield references that are not looked up, whose extra columns still have the table's types."""
    first_row = 0
    columns = table.columns if table.flags is None else table.flags
    for part in read_table_file(table.path_of(name), table.format, columns, table.storage):
        if isinstance(part, Reject):
            yield part
            continue
        part = part if table.flags is None else _with_labels(table, part)
        batch, no_class = _raw_references(table, part, first_row, name)
        first_row += part.num_rows
        if table.boxes is not None:  # rejects its image, not only its row
            label = null_where(batch.column("label"), no_class)
            batch = set_column(batch, "label", label)
            no_class = pa.repeat(False, batch.num_rows)
        batch = batch.append_column(_NO_CLASS, no_class)
        # One rule after another, each on what the earlier ones have left: a row has one reject.
        for column, is_bad, reason, told in _rules(table):
            mask = is_bad(batch.column(column)).to_numpy(zero_copy_only=False)
            yield from reject_rows(batch, mask, reason, f"{_place(name)}row {{row}}: {told}")
            batch = keep_rows(batch, ~mask)
        yield batch.drop_columns([_NO_CLASS])


def _place(name: str) -> str:
    """Return the start of the detail of `reject_rows`, a format string: the file of several."""
    return escaped(f"{name}: ") if name else ""


def _located(table: TableLayout, batch: pa.RecordBatch, name: str) -> Rows:
    """Yield references with the length of their image, and rejects of those without."""
    if table.may_lack_images and table.names_files:
        absent = pc.equal(batch.column("uri"), "").to_numpy(zero_copy_only=False)
        # They refer to no bytes of their table.
        bare = keep_rows(batch, absent)
        nothing = pa.array(np.zeros(bare.num_rows, np.int64))
        bare = set_column(bare, "uri", pa.repeat(table.path_of(name), bare.num_rows))
        yield set_column(set_column(bare, "offset", nothing), "num_bytes", nothing)
        batch = keep_rows(batch, ~absent)
    if table.size is not None:
        yield from settle_sizes(batch, _place(name))
    elif table.names_files:
        problems, batch = look_up_batch(batch, table.storage, folder=table.folder_of(name))
        yield from problems
        yield batch
    else:  # a row of labels is found by its table, not by an image's path
        yield set_column(batch, "uri", pa.repeat(table.path_of(name), batch.num_rows))


def _is_unreadable(uris: pa.Array) -> pa.Array:
    """Return which addresses are not of objects."""
    hidden = pc.ends_with(uris, _HIDDEN_QUERY)
    if not has_addresses(uris):
        return hidden
    keys = pc.replace_substring_regex(uris, _OBJECT, r"/\2")
    return pc.or_(hidden, pc.match_substring_regex(keys, SCHEME))


def _rules(
    table: TableLayout,
) -> Iterator[tuple[str, Callable[[pa.Array], pa.Array], RejectReason, str]]:
    """Yield (column, test for bad values, reason, detail as a format string)."""
    is_empty = partial(pc.equal, "")
    bad = RejectReason.BAD_VALUE
    yield _NO_CLASS, lambda column: column, bad, f"the label {{label}} {escaped(NOT_A_CLASS)}"
    if not table.may_lack_images and (table.names_files or table.id is None or table.key != "id"):
        yield "uri", is_empty, bad, f"the image column {escaped(repr(table.image))} is empty"
    yield "id", is_empty, RejectReason.BAD_ID, "the id is empty"
    if table.flags is not None:
        yield extra_name(_LABELS), pc.is_null, bad, "each class must be 0 or 1"
    if table.names_files:
        told = (
            "{uri} is not an object's address (s3://BUCKET/KEY, gs://BUCKET/KEY, "
            "az://CONTAINER/KEY, https://HOST/PATH, without a password)"
        )
        yield "uri", _is_unreadable, bad, told


def _raw_references(
    table: TableLayout, raw: pa.RecordBatch, first_row: int, name: str
) -> tuple[pa.RecordBatch, pa.Array]:
    """Return rows as references, and whether their label is no class, bool [rows]."""
    labels, no_class = pa.nulls(raw.num_rows, pa.string()), np.zeros(raw.num_rows, bool)
    if table.label is not None:
        labels, no_class = class_texts(raw.column(table.label), table.label)
    rows = pa.array(np.arange(first_row, first_row + raw.num_rows))
    folder = table.folder_of(name)
    paths = pc.fill_null(role_text(raw, table.image), "")
    if table.suffix:
        paths = pc.if_else(
            pc.equal(paths, ""), "", pc.binary_join_element_wise(paths, table.suffix, "")
        )
    written, queries = split_queries(paths)
    relative, uris = resolve_paths(written, folder)
    if folder != table.root:  # two folders may each have their a.png
        relative, _ = resolve_paths(uris, table.root)
    columns = {
        "id": _ids(table, relative, role_text(raw, table.id), rows, name),
        "uri": uris,
        "offset": pa.nulls(raw.num_rows, pa.int64()),
        "num_bytes": pa.nulls(raw.num_rows, pa.int64())
        if table.size is None
        else raw.column(table.size),
        "etag": pa.nulls(raw.num_rows, pa.string()),
        "row": rows,
        "split": canonical_splits(role_text(raw, table.split))
        if not table.names_split
        else pa.repeat(InputFile("", name).split, raw.num_rows),
        "group": empty_as_null(role_text(raw, table.group)),
        "label": labels,
        **{extra_name(name): raw.column(name) for name in table.extras},
    }
    if table.structs is not None:
        columns[extra_name(table.structs.column)] = raw.column(table.structs.column)
    if queries is not None and table.names_files:
        columns[QUERY] = queries
    return pa.RecordBatch.from_pydict(columns), pa.array(no_class)


def _ids(
    table: TableLayout, paths: pa.Array, stated: pa.Array, rows: pa.Array, name: str
) -> pa.Array:
    """Return the id of each row; for a table of labels, its join key."""
    if table.key == "stem":
        return stems_of(paths)
    if table.may_lack_images:
        file = name or os.path.basename(table.path)
        numbered = pc.binary_join_element_wise(f"{file}#", rows.cast(pa.string()), "")
        paths = pc.if_else(pc.equal(paths, ""), numbered, paths)
    return paths if table.id is None or table.key == "path" else pc.fill_null(stated, "")


def with_pictures(
    batch: pa.RecordBatch, names: Sequence[str], folder: str, storage: StorageOptions
) -> Iterator[pa.RecordBatch | Reject]:
    """Yield references with their path columns `x/NAME` converted to `PICTURE_TYPE`.

    A row with a missing file, or with one that cannot be an image, is a reject.

    Args:
        batch: References.
        names: The columns.
        folder: The folder that relative paths start from.
        storage: Options of the images' stores.
    """
    keep = np.ones(batch.num_rows, bool)
    for name in names:
        paths = empty_as_null(as_text(batch.column(extra_name(name)), name)).to_pylist()
        found = look_up_pictures(paths, storage, folder)
        places: list[ImagePlace | None] = [None] * len(paths)
        for row, (uri, one) in ((row, each) for row, each in enumerate(found) if each):
            if isinstance(one, ImagePlace):
                places[row] = one
            elif keep[row]:
                reason, detail = one
                keep[row] = False
                yield Reject(batch.column("id")[row].as_py(), uri, reason, f"{name}: {detail}")
        batch = set_column(batch, extra_name(name), pa.array(places, PICTURE_TYPE))
    yield from rows_left(batch, keep)


def escaped(text: str) -> str:
    """Return a text as part of the detail of `reject_rows`, a format string."""
    return text.replace("{", "{{").replace("}", "}}")


def settle_sizes(batch: pa.RecordBatch, where: str = "") -> Iterator[pa.RecordBatch | Reject]:
    """Yield a reject for each invalid size, then the references with `num_bytes` as int64.

    Args:
        batch: References, with `num_bytes` as in the table.
        where: The start of details, a format string: the table's file if it has several.
    """
    sizes = (
        batch.column("num_bytes")
        .cast(pa.float64(), safe=False)
        .fill_null(-1)
        .to_numpy(zero_copy_only=False)
    )
    rules = (
        (
            sizes < 0,
            RejectReason.BAD_VALUE,
            f"{where}row {{row}}: the size must be a number of bytes, got {{num_bytes}}",
        ),
        (sizes == 0, RejectReason.EMPTY_FILE, f"{where}row {{row}}: the size is 0"),
        (
            sizes > MAX_IMAGE_BYTES,
            RejectReason.TOO_LARGE,
            f"{{num_bytes}} bytes; an image may have at most {MAX_IMAGE_BYTES}",
        ),
    )
    for mask, reason, detail in rules:
        yield from reject_rows(batch, mask, reason, detail)
    batch = keep_rows(batch, (sizes > 0) & (sizes <= MAX_IMAGE_BYTES))
    yield set_column(batch, "num_bytes", batch.column("num_bytes").cast(pa.int64()))
