"""Define the interface of input formats, for built-in ones and those of other packages.

A **format** is a class: `look` examines INPUT and, if it recognizes it, returns an instance with
all that a build must know about it; `references` lists a part of it and never moves image bytes. A
package adds a format with an entry point of the group `shardwright.sources`; its name is the value
of `--input-format`:

    [project.entry-points."shardwright.sources"]
    lmdb = "my_package.lmdb_source:LmdbSource"

`shardwright.testing` has the tests that every format must pass.

Formats are tried by `rank`, then by name, until one does not return None.
"""

from __future__ import annotations

import bz2
import functools
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple, Self, TypeVar

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source
from shardwright.storage.addresses import is_remote
from shardwright.storage.folder import Folder, files_of
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from shardwright.transforms.inputs.folder_contents import FolderListings
from shardwright.transforms.inputs.image_paths import keep_inside
from shardwright.transforms.references import (
    BATCH_ROWS,
    REFERENCE_SCHEMA,
    extra_columns,
    name_of_extra,
)
from shardwright.transforms.rejects import Reject, RejectReason

T = TypeVar("T")
B = TypeVar("B")


class ImageRow(NamedTuple):
    """A listed file: the columns of a reference batch that a folder or an archive fills."""

    id: str
    uri: str
    num_bytes: int = 0
    etag: str | None = None
    split: str | None = None
    label: str | None = None
    offset: int | None = None
    row: int = 0

    def reject(self, reason: RejectReason, detail: str) -> Reject:
        """Return the reject of the file."""
        return Reject(self.id, self.uri, reason, detail)


def image_references(rows: Sequence[ImageRow]) -> pa.RecordBatch:
    """Return listed images as one reference batch."""
    columns = dict(zip(ImageRow._fields, zip(*rows, strict=True), strict=True))
    return pa.RecordBatch.from_arrays(
        [
            _column(columns.get(field.name, (None,)), field.type, len(rows))
            for field in REFERENCE_SCHEMA
        ],
        schema=REFERENCE_SCHEMA,
    )


def _column(values: Sequence[object], kind: pa.DataType, num_rows: int) -> pa.Array:
    """Return a column; most hold one value only, such as null, 0 or a folder's label."""
    if values[0] is values[-1] and values.count(values[0]) == len(values):
        return pa.repeat(pa.scalar(values[0], kind), num_rows)
    return pa.array(values, kind)


def in_batches(
    rows: Iterable[T | Reject], make: Callable[[Sequence[T]], B]
) -> Iterator[B | Reject]:
    """Yield the batches that `make` returns for up to `BATCH_ROWS` rows, and rejects unchanged."""
    pending: list[T] = []
    for row in rows:
        if isinstance(row, Reject):
            yield row
            continue
        pending.append(row)
        if len(pending) == BATCH_ROWS:
            yield make(pending)
            pending = []
    if pending:
        yield make(pending)


Rows = Iterator[pa.RecordBatch | Reject]
MAIN_IMAGE = Feature("image", FeatureKind.IMAGE, Source.IMAGE)


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """A request to open INPUT, as formats receive it.

    Attributes:
        uri: INPUT as an absolute path or a store's address; may hold a wildcard.
        argument: The argument's name in messages, such as "INPUT".
        columns: Role -> column given by an option, or None.
        storage: Options of the stores that hold INPUT and its images.
        image_root: The folder that relative image paths start from (`--image-root`); None for the
            format's rule.
        allow_outside: Local folders outside of INPUT that its images may be in (`--allow-outside`).
        spool: A folder for bytes that cannot be read in place (`spool`); None to write nothing.
        kinds: Column -> kind of the feature that `--schema` fills from it. For a column here or in
            `columns`, this decides the kind, whatever the values begin with.
        shapes: Column -> shape of the stored values of that feature, with None for any size.
        image: The main image of `--schema`, which records may lack if it is optional; None if the
            schema has none.
        input_format: The format that the user chose (`--input-format`); None to detect it.
        changes: The options that change records, so that those of a dataset cannot be copied.
        top_folders: The meaning that the user chose for the top folders (`--top-folders`), "splits"
            or "classes"; None to go by their names.
        read_elsewhere: Absolute path of a file, perhaps in INPUT -> the option that reads it, such
            as `--labels`.
        listings: The folders that formats look into.
    """

    uri: str
    argument: str = "INPUT"
    columns: Mapping[str, str | None] = field(default_factory=dict)
    storage: StorageOptions = NO_OPTIONS
    image_root: str | None = None
    allow_outside: tuple[str, ...] = ()
    spool: Folder | None = None
    kinds: Mapping[str, FeatureKind] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    image: Feature | None = MAIN_IMAGE
    input_format: str | None = None
    changes: tuple[str, ...] = ()
    top_folders: str | None = None
    read_elsewhere: Mapping[str, str] = field(default_factory=dict)
    listings: FolderListings = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "listings", FolderListings(self.storage))

    @property
    def forced(self) -> bool:
        """True if the user chose the format, so that `look` never returns None."""
        return self.input_format is not None

    @property
    def may_lack_images(self) -> bool:
        """True if a row without an image is a record."""
        return self.image is None or self.image.is_optional

    @property
    def is_file(self) -> bool:
        """True if INPUT is one file or object; costs a request for one in a store."""
        return files_of(self.uri, self.storage).is_file(self.uri)

    @property
    def is_remote(self) -> bool:
        return is_remote(self.uri)

    def refuse_if_forced(self, problem: str) -> None:
        """Raise an error if the user chose this format, which INPUT does not have.

        Args:
            problem: The end of the message after INPUT's address, such as "is not a folder".

        Raises:
            UsageError: The format is forced.
        """
        if self.forced:
            raise UsageError(f"{self.argument} {self.uri} {problem}")

    def refuse_columns(self, what: str, *roles: str) -> None:
        """Raise an error if an option gives a column, for formats without columns.

        Args:
            what: INPUT in words, such as "a folder".
            roles: The columns' roles; all without any.

        Raises:
            UsageError: An option gives a column.
        """
        for role in roles or self.columns:
            if self.columns.get(role) is not None:
                raise UsageError(
                    f"--{role}-column needs a table, but {self.argument} {self.uri} is {what}: "
                    f"give the table itself as {self.argument}, or a table of labels with --labels"
                )


@dataclass(frozen=True, slots=True)
class InputSource:
    """INPUT in its format, and all that a build must know about it before any worker starts.

    A format adds what its listing needs in a subclass; small and picklable, because workers list.

    Class attributes:
        summary: A few words on INPUT for `--help-all`.
        rank: Formats of lower rank are tried first: 10 to 30 for those that go by a file name,
            about 50 for those that look into a folder, and 100 for a folder of images, which any
            folder may be.
        checks_links: True if the listing itself rejects links that lead out of `folders`.
        has_top_folders: True if its top folders may be splits or classes, as
            `SourceRequest.top_folders` says.
        reads_records: True if it reads records without images, as `SourceRequest.image` asks.
            Their references have the file that they are in as `uri`, and no bytes.
        is_listed_fast: True if listing it reads no images and no more than names or a table.
        has_pixel_outlines: True if its outlines are in pixels, so that no image may be resized.

    Attributes:
        description: One line for the log, such as "a folder at /data/photos".
        schema: The columns of its reference batches: `REFERENCE_SCHEMA`, then `x/` columns of
            extras.
        features: The features of its extra columns if the user gives no schema, in writing order.
        unstorable: The problem of a column that tf.Example cannot hold, which leaves `features`
            empty; "" if there is none. An error unless a schema leaves that column out.
        columns: The columns that can fill a schema's features; None for the extras of `schema`.
        states_splits: True if the column `split` is filled, so that no splits are drawn.
        splits_can_be_redrawn: True if `--split` may replace the splits that the source states.
        feature_names: The `--feature-names` that its extra features require; None for any.
        may_have_labels: True if references may have labels; for a folder only its listing shows
            that.
        labels_from: Where labels come from, for the log: "column 'class'", "the folders of INPUT";
            for objects, where their class names come from. "" without labels, or if unknown.
        labels_are_names: True if labels are names of folders, which sort as text even if all are
            numbers, as in torchvision and TFDS.
        labels_are_indices: True if labels are class indices of records.
        class_names: The class names in label order, if the source states them; None to learn them.
        label_paths_root: The folder that relative paths in a `--labels` table start from; None for
            INPUT.
        folders: Local folders that its images may be in, beside INPUT's own; `detect_source` adds
            that and those of options, as real paths. A path that leads out of them is a reject.
        copied_schema: The features of the records of a dataset, which are copied unchanged; None if
            records are made.
        is_made: True if a function (`--transform`) made the records that are copied.
        name: The format's name, which `detect_source` fills in.
    """

    summary: ClassVar[str] = ""
    rank: ClassVar[int] = 40
    checks_links: ClassVar[bool] = False
    has_top_folders: ClassVar[bool] = False
    reads_records: ClassVar[bool] = False
    is_listed_fast: ClassVar[bool] = False
    has_pixel_outlines: ClassVar[bool] = False

    description: str
    schema: pa.Schema = REFERENCE_SCHEMA
    features: tuple[Feature, ...] = ()
    unstorable: str = ""
    columns: tuple[str, ...] | None = None
    states_splits: bool = False
    splits_can_be_redrawn: bool = False
    feature_names: str | None = None
    may_have_labels: bool = True
    labels_from: str = ""
    labels_are_names: bool = False
    labels_are_indices: bool = False
    class_names: tuple[str, ...] | None = None
    label_paths_root: str | None = None
    folders: tuple[str, ...] = ()
    copied_schema: ExampleSchema | None = None
    is_made: bool = False
    name: str = ""

    @classmethod
    def look(cls, request: SourceRequest) -> InputSource | None:
        """Return INPUT as a source; None if it has another format and this one is not `forced`.

        Raises:
            UsageError: INPUT has this format, or is forced to, and is invalid; the message says how
                to fix it.
        """
        raise NotImplementedError

    def parts(self) -> Iterator[str]:
        """Yield the parts that can be listed separately, mostly files; "" for one part."""
        yield ""

    def worker_parts(self) -> Iterator[str]:
        """Yield the parts for several workers: `parts`, or smaller ones that are the same together.

        Raises:
            StorageError: The store cannot be listed.
        """
        return self.parts()

    def references(self, part: str) -> Rows:
        """Yield the references of a part, and a reject for each input that cannot be a record.

        Batches have the columns of `schema` and at most `references.BATCH_ROWS` rows. The same part
        always gives the same rows; `row` numbers them where their order has a meaning.

        Raises:
            StorageError, BuildError: The part cannot be listed.
        """
        raise NotImplementedError

    def bring(self, features: Sequence[Feature]) -> Self:
        """Return the source for these features, without other extra columns.

        By default it is the same; then only columns of `references.PICTURE_TYPE` can fill features
        that are images.
        """
        del features
        return self

    def list_part(self, part: str) -> Rows:
        """Yield the `references` of a part, with a reject for each local image elsewhere."""
        rows = self.references(part)
        return keep_inside(rows, self.folders) if self.folders and not self.checks_links else rows

    def for_features(self, features: Sequence[Feature]) -> Self:
        """Return the source that fills these features and need not bring other extra columns."""
        return replace(self.bring(features), folders=self.folders, name=self.name)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns that can fill a schema's features."""
        if self.columns is not None:
            return self.columns
        return tuple(map(name_of_extra, extra_columns(self.schema)))

    def pack(self) -> bytes:
        """Return the source in few bytes: it may name 100,000 files, and graphs are limited."""
        return bz2.compress(pickle.dumps(self))


@functools.lru_cache(maxsize=1)
def unpack(packed: bytes) -> InputSource:
    """Return the source of `InputSource.pack`; a worker unpacks it once for all parts."""
    source: InputSource = pickle.loads(bz2.decompress(packed))
    return source
