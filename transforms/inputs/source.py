"""Define the interface of input formats and sources, for built-in ones and those of other packages.

A **format** examines INPUT and, if it recognizes it, returns a **source**, which lists references
and never moves image bytes. A package adds a format with an entry point of the group
`shardwright.sources`; its name is the value of `--input-format`:

    [project.entry-points."shardwright.sources"]
    lmdb = "my_package.lmdb_source:LmdbFormat"

Formats are tried by `rank`, then by name, until one does not return None.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.format.schema import Feature, FeatureKind
from shardwright.storage.addresses import is_remote
from shardwright.storage.folder import Folder, files_of
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from transforms.references import REFERENCE_SCHEMA, extra_columns, name_of_extra
from transforms.rejects import Reject


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
        spool: A folder for bytes that cannot be read in place (`spool`); None to write nothing.
        kinds: Column -> kind of the feature that `--schema` fills from it. For a column here or in
            `columns`, this decides the kind, whatever the values begin with.
    """

    uri: str
    argument: str = "INPUT"
    columns: Mapping[str, str | None] = field(default_factory=dict)
    storage: StorageOptions = NO_OPTIONS
    image_root: str | None = None
    spool: Folder | None = None
    kinds: Mapping[str, FeatureKind] = field(default_factory=dict)

    @property
    def is_file(self) -> bool:
        """True if INPUT is one file or object; costs a request for one in a store."""
        return files_of(self.uri, self.storage).is_file(self.uri)

    @property
    def is_remote(self) -> bool:
        return is_remote(self.uri)

    def refuse_columns(self, what: str) -> None:
        """Raise an error if an option gives a column, for formats without columns.

        Args:
            what: INPUT in words, such as "a folder".

        Raises:
            UsageError: An option gives a column.
        """
        named = [f"--{role}-column" for role, column in self.columns.items() if column is not None]
        if named:
            raise UsageError(
                f"{named[0]} needs a table, but {self.argument} {self.uri} is {what}: "
                f"give the table itself as {self.argument}, or a table of labels with --labels"
            )


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """The facts about INPUT that a build depends on, known before any worker starts.

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
        has_integer_labels: True if labels are whole numbers, so that class names are ordered by
            value.
        labels_are_indices: True if labels are class indices, kept even if some classes have no
            image.
        class_names: The class names in label order, if the source states them; None to learn them.
        label_paths_root: The folder that relative paths in a `--labels` table start from; None for
            INPUT.
    """

    description: str
    schema: pa.Schema = REFERENCE_SCHEMA
    features: tuple[Feature, ...] = ()
    unstorable: str = ""
    columns: tuple[str, ...] | None = None
    states_splits: bool = False
    splits_can_be_redrawn: bool = False
    feature_names: str | None = None
    may_have_labels: bool = True
    has_integer_labels: bool = False
    labels_are_indices: bool = False
    class_names: tuple[str, ...] | None = None
    label_paths_root: str | None = None

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns that can fill a schema's features."""
        if self.columns is not None:
            return self.columns
        return tuple(map(name_of_extra, extra_columns(self.schema)))


@dataclass(frozen=True, slots=True)
class InputSource(ABC):
    """A detected input; small and picklable, because workers list its parts.

    Attributes:
        facts: The facts about it.
    """

    facts: SourceFacts

    @abstractmethod
    def list_part(self, part: str) -> Iterator[pa.RecordBatch | Reject]:
        """Yield the references of a part, and a reject for each input that cannot be a record.

        Batches have the columns of `facts.schema` and at most `references.BATCH_ROWS` rows. The
        same part always gives the same rows; `row` numbers them where their order has a meaning.

        Raises:
            StorageError, BuildError: The part cannot be listed at all.
        """

    def parts(self) -> Iterator[str]:
        """Yield the parts that workers can list separately, mostly files; "" for one part."""
        yield ""

    def for_features(self, features: Sequence[Feature]) -> InputSource:
        """Return the source that fills these features and need not bring other extra columns.

        By default it is the same source; then only columns of `references.PICTURE_TYPE` can fill
        features that are images.
        """
        del features
        return self


class SourceFormat(ABC):
    """An input format. Made without arguments.

    Attributes:
        name: Its name in `--input-format`; that of its entry point.
        summary: A few words on INPUT for `--help`.
        rank: Formats of lower rank are tried first: 10 to 30 for those that go by a file name,
            about 50 for those that look into a folder, and 100 for a folder of images, which any
            folder may be.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    rank: ClassVar[int] = 40

    @abstractmethod
    def open(self, request: SourceRequest, *, forced: bool) -> InputSource | None:
        """Return the source, or None if INPUT has another format.

        Args:
            request: The request for INPUT.
            forced: The user chose this format: never return None.

        Raises:
            UsageError: INPUT has this format, or is forced to, and is invalid; the message says
                how to fix it.
        """
