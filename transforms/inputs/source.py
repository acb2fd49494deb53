"""What INPUT can be: the protocol of sources, for the built-in ones and for those that other packages bring.

A **format** looks at INPUT and, where it knows it, gives a **source**, which lists references and never moves a picture. A
package adds a format by an entry point of the group `shardwright.sources`, whose name is what `--input-format` takes:

    [project.entry-points."shardwright.sources"]
    lmdb = "my_package.lmdb_source:LmdbFormat"

Formats are asked in the order of their `rank`, then by name, and the first that does not give None has found the source.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from shardwright.errors import UsageError
from shardwright.schema import Feature, FeatureKind
from shardwright.storage import NO_OPTIONS, Folder, StorageOptions, files_of, is_remote
from transforms.references import REFERENCE_SCHEMA
from transforms.rejects import Reject


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """What a format is asked about.

    Attributes:
        uri: INPUT as an absolute path or a store's address; it may hold a wildcard.
        argument: What messages call it, such as "INPUT".
        columns: role -> column named by an option, or None.
        storage: Options of the stores that INPUT and its pictures are in.
        image_root: Where relative picture names start, from `--image-root`; None for the format's own rule.
        spool: Where bytes may be put that cannot be read in place (`spool`); None where nothing may be written.
        kinds: Column -> kind of the feature that `--schema` fills from it. Where a column is named here or in `columns`, its values
            are what that says, however they begin.
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
        """Whether INPUT is one file or object; costs a request for one in a store."""
        return files_of(self.uri, self.storage).is_file(self.uri)

    @property
    def is_remote(self) -> bool:
        return is_remote(self.uri)

    def refuse_columns(self, what: str) -> None:
        """For formats without columns.

        Raises:
            UsageError: An option names a column.
        """
        named = [f"--{role}-column" for role, column in self.columns.items() if column is not None]
        if named:
            raise UsageError(
                f"{named[0]} is for a table, and {self.argument} {self.uri} is {what}; name the table itself as {self.argument}, "
                "or give a table of labels by --labels"
            )


class InputSource(ABC):
    """What INPUT was found to be. Small and picklable, because it travels to workers, which list its parts."""

    @abstractmethod
    def describe(self) -> str:
        """One line for the log, such as "a folder at /data/photos"."""

    @abstractmethod
    def list_part(self, part: str) -> Iterator[pa.RecordBatch | Reject]:
        """References with the columns of `schema`, in batches of up to `references.BATCH_ROWS`, and a reject for each thing that
        can be no record. The same part always gives the same rows; `row` counts them where their order means something.

        Raises:
            StorageError, BuildError: The part cannot be listed at all.
        """

    def parts(self) -> Iterator[str]:
        """Names of what can be listed apart, by different workers: files, mostly. One, "", where nothing can."""
        yield ""

    @property
    def schema(self) -> pa.Schema:
        """The columns of its reference batches: `REFERENCE_SCHEMA`, then one `x/` column for each extra."""
        return REFERENCE_SCHEMA

    @property
    def features(self) -> tuple[Feature, ...]:
        """What its extra columns are in examples where the user gives no schema, in writing order."""
        return ()

    def for_features(self, features: Sequence[Feature]) -> InputSource:
        """The source that fills these features and needs to bring no other extra column. Here it is the same source: a feature that
        is a picture is then filled by a column of `references.PICTURE_TYPE` only."""
        del features
        return self

    @property
    def states_splits(self) -> bool:
        """Whether the column `split` is filled in, so that none are drawn."""
        return False

    @property
    def splits_can_be_redrawn(self) -> bool:
        """Whether `--split` may draw splits in place of those that the source states."""
        return False

    @property
    def feature_names(self) -> str | None:
        """The `--feature-names` that its extra features need beside them; None where any will do."""
        return None

    @property
    def has_integer_labels(self) -> bool:
        """Labels are whole numbers, so that class names are ordered by value."""
        return False

    @property
    def labels_are_indices(self) -> bool:
        """Whole-number labels are the indices of classes already, which every record keeps, whatever classes have no image."""
        return False

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Class names of the label in label order, where the source states them; None to learn them."""
        return None


class SourceFormat(ABC):
    """One form that INPUT may have. Made without arguments.

    Attributes:
        name: What `--input-format` calls it; that of its entry point.
        summary: For `--help`: what INPUT looks like, in a few words.
        rank: Formats of lower rank are asked first. Those that know a name's ending have 10 to 30, those that look into a folder
            50; a folder of images is what anything may be, so it comes last, with 100.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    rank: ClassVar[int] = 40

    @abstractmethod
    def open(self, request: SourceRequest, *, forced: bool) -> InputSource | None:
        """The source, or None where INPUT has another form.

        Args:
            request: What is asked.
            forced: The user says that it is of this format: then None is never given.

        Raises:
            UsageError: It has this form, or is forced to, and something is wrong with it; the message says what and how to mend it.
        """
