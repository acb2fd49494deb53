"""The layout of a table of images or of labels: its files, and the roles of its columns."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from shardwright.format.schema import PICTURES, Feature, FeatureKind
from shardwright.sizes import counted
from shardwright.storage.options import NO_OPTIONS, StorageOptions
from shardwright.transforms.inputs.source import SourceFacts
from shardwright.transforms.inputs.tables.table_columns import extra_feature, features_or_problem
from shardwright.transforms.inputs.tables.table_roles import column_rule, describe_columns
from shardwright.transforms.references import PICTURE_TYPE, reference_schema

_TEXT_KINDS = frozenset(
    {FeatureKind.TEXT, FeatureKind.BYTES, FeatureKind.TOKENS, FeatureKind.BAG_OF_WORDS}
)


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The files of a table, and the roles of its columns.

    Attributes:
        path: Its absolute path, or a store's address; for several files, their common folder.
        format: "csv", "tsv", "jsonl" or "parquet".
        columns: Every column's type.
        image_root: The folder that relative image paths start from; None for that of their table.
        image, label, id, split, group, size: The columns with a role, or None.
        may_lack_images: True if a row without an image path is a record.
        storage: Options of the stores that hold it and its images.
        names_files: True if its paths are files below its folder; False if they are ids of
            another input.
        files: Names of several files below `path`, in name order; () for a table in one file.
        num_bytes: Approximate bytes of its rows in memory, which decide how a table of labels is
            joined.
        key: The join key of a table of labels, "id", "path" or "stem".
        brought: The columns that a schema uses, whatever their role; None for all without a role.
        pictures: Those of them that hold paths of further images.
        folders: As in `SourceFacts`, for the further images of a table of labels.
    """

    path: str
    format: str
    columns: pa.Schema
    image: str | None
    label: str | None = None
    id: str | None = None
    split: str | None = None
    group: str | None = None
    size: str | None = None
    storage: StorageOptions = NO_OPTIONS
    names_files: bool = True
    image_root: str | None = None
    may_lack_images: bool = False
    files: tuple[str, ...] = ()
    num_bytes: int = 0
    key: str = "id"
    brought: tuple[str, ...] | None = None
    pictures: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

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
    def features(self) -> tuple[Feature, ...]:
        """The features of its extra columns. Raises `BuildError` if tf.Example cannot hold one."""
        return tuple(
            extra_feature(name, self.columns.field(name).type) for name in self.extra_columns
        )

    @property
    def facts(self) -> TableFacts:
        """The facts about this table as INPUT."""
        types = (
            (name, PICTURE_TYPE if name in self.pictures else self.columns.field(name).type)
            for name in self.extra_columns
        )
        features, unstorable = features_or_problem(lambda: self.features)
        return TableFacts(
            description=self._describe(),
            schema=reference_schema(types),
            features=features,
            unstorable=unstorable,
            columns=tuple(self.columns.names),
            states_splits=self.split is not None,
            may_have_labels=self.label is not None,
            labels_from=column_rule(self.label),
            has_integer_labels=self.label is not None
            and pa.types.is_integer(self.columns.field(self.label).type),
            label_paths_root=self.root,
            layout=self,
        )

    def _describe(self) -> str:
        place = (
            f"table of {counted(len(self.files), 'file')} below {self.path}"
            if self.files
            else f"table at {self.path}"
        )
        return f"a {self.format} {place}, columns {describe_columns(self, self.extra_columns)}"

    def for_features(self, features: Sequence[Feature]) -> TableLayout:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts(SourceFacts):
    """The facts about a table.

    Attributes:
        layout: Its files, and the roles of its columns.
    """

    layout: TableLayout

    def parts(self) -> Iterator[str]:
        yield from self.layout.files or ("",)

    def for_features(self, features: Sequence[Feature]) -> TableFacts:
        return self.layout.for_features(features).facts
