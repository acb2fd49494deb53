"""The wanted features of records as the columns of a batch.

A batch's columns are allocated once, filled row by row from several threads, and finished into a dict of arrays:

    columns = ColumnReader(schema, {"image": None, "label": OneHot(), "tags": Sparse()}, indexed={Source.LABEL})
    store = columns.allocate(256)
    faults = columns.fill_indexed(store, {Source.LABEL: labels})       # once a batch, whole columns; row -> ExampleFault
    image = columns.fill(store, row, block, start, stop)               # any thread, distinct rows; raises ExampleFault
    batch = columns.finish(store, kept=mask, pad=False)                # {"label": float32 [b, classes], "tags": SparseColumn}

- `columns.needs_record` is False where the index gives all that is wanted but the image: then `fill` need not be called, and
  only image bytes need be read. `columns.index_sources` are the sources that `fill_indexed` then wants, each an array [b]. Where
  a record is needed, all comes from it, `index_sources` is empty, and `fill_indexed` does nothing.
- `columns.image` is the image feature where it is wanted, else None. Images are no column of these: `fill` gives the image's
  bytes as a memoryview of `block`, nothing copied, and the engine decodes them into an array of its own.
- `fill` writes a row only once the whole record is parsed, or leaves it as allocated and raises; its text names the feature,
  what was found and what the schema says. Which shard and row it was, the caller adds.
- `finish` with `kept` (bool [b]) leaves the other rows out; with `pad=True` they stay, as zeros, empty texts and empty lists.
- `columns.features` are the wanted features but the image, `columns.encodings` their encodings by name (None: as stored),
  `columns.spec(b)` the shape and dtype of each column of a finished batch.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardwright.errors import UsageError
from shardwright.example import ExampleFault
from shardwright.reader.encodings import Encoding, Spec
from shardwright.reader.entries import Block, Span, bytes_span, find_features, read_values
from shardwright.reader.own_encodings import natural_encoding
from shardwright.reader.values import SparseColumn, Values, as_bytes
from shardwright.schema import ExampleSchema, Feature, Source, StoredFeature

Features = Sequence[str] | Mapping[str, Encoding | None] | None
Store = dict[str, npt.NDArray[Any]]
Batch = dict[str, npt.NDArray[Any] | SparseColumn]

_KINDS = {"bytes_list": "bytes", "float_list": "float", "int64_list": "int64"}


class ColumnReader:
    """Makes columns of some features of one dataset. It keeps nothing between calls, can be pickled, and serves many threads.

    Attributes:
        image: The image feature where it is wanted, else None.
        features: The other wanted features, in the order asked for.
        encodings: Of each of these by its name.
        index_sources: What `fill_indexed` wants.
        needs_record: Whether `fill` must be called: the index does not give all.
    """

    def __init__(
        self, schema: ExampleSchema, features: Features = None, *, indexed: Collection[Source] = ()
    ) -> None:
        """
        Args:
            schema: What the records hold, and the names of the classes.
            features: Names of the wanted features, or a mapping of names to encodings (None: as stored); None for all.
            indexed: What the index gives, of LABEL, ID, FORMAT, HEIGHT and WIDTH; with LABEL, LABEL_TEXT too.

        Raises:
            UsageError: No such feature, or an encoding that does not go with it.
        """
        wanted = _find_wanted(schema, features)
        self._class_texts = [name.encode("utf-8", "surrogatepass") for name in schema.class_names]
        self.image = next(
            (feature for feature, _ in wanted if feature.source == Source.IMAGE), None
        )
        others = [
            (feature, encoding) for feature, encoding in wanted if feature.source != Source.IMAGE
        ]
        self.features = tuple(feature for feature, _ in others)
        self.encodings = {
            feature.name: encoding.complete(feature, schema.names_of(feature))
            for feature, encoding in others
        }
        sources = {feature.name: _index_source(feature) for feature in self.features}
        self.needs_record = any(source not in indexed for source in sources.values())
        # A record that is read anyway gives all: then a batch's columns have one origin.
        self._from_index = {} if self.needs_record else sources
        self.index_sources = frozenset(self._from_index.values())
        self._parsed = [
            (
                feature,
                self.encodings[feature.name],
                [(stored.key.encode(), stored) for stored in feature.stored],
            )
            for feature in self.features
            if feature.name not in self._from_index
        ]
        keys = [key for _, _, stored in self._parsed for key, _ in stored]
        self._keys = frozenset(
            keys + [self.image.name.encode() for _ in [self.image] if self.image]
        )

    def spec(self, batch: int | None) -> dict[str, Spec]:
        """Shape and dtype of each column of a finished batch, `batch` rows or any number; that of the image is not among them.

        A `SparseColumn` has that of its dense form, its second size None.
        """
        return {
            feature.name: self.encodings[feature.name].spec(feature, batch)
            for feature in self.features
        }

    def allocate(self, batch: int) -> Store:
        """Blank columns of `batch` rows, for `fill` and `finish`."""
        return {
            feature.name: self.encodings[feature.name].allocate(feature, batch)
            for feature in self.features
        }

    def fill_indexed(
        self, store: Store, values: Mapping[Source, npt.NDArray[Any]]
    ) -> dict[int, ExampleFault]:
        """Set whole columns from the index.

        Args:
            values: For each of `index_sources` an array [b]: integers, or objects for texts.

        Returns:
            The first fault of each row that has one. `finish` is to leave these rows out.
        """
        faults: dict[int, ExampleFault] = {}
        for feature in self.features:
            source = self._from_index.get(feature.name)
            if source is None:
                continue
            encoding, column = self.encodings[feature.name], store[feature.name]
            if type(encoding) is Encoding and column.dtype == values[source].dtype == np.int64:
                column[:] = values[source]
                continue
            for row, value in enumerate(values[source].tolist()):
                try:
                    column[row] = encoding.encode(feature, [self._indexed_value(feature, value)])
                except ExampleFault as fault:
                    faults.setdefault(row, fault)
        return faults

    def _indexed_value(self, feature: Feature, value: Any) -> Any:
        if value is None:
            raise ExampleFault(f"feature {feature.name!r} is missing in the index")
        if feature.source == Source.LABEL_TEXT:
            if not 0 <= value < len(self._class_texts):
                raise ExampleFault(
                    f"feature {feature.name!r} is that of label {value}, and there are {len(self._class_texts)} classes"
                )
            return self._class_texts[value]
        return as_bytes(value) if isinstance(value, str) else value

    def fill(
        self, store: Store, row: int, block: Block, start: int = 0, stop: int | None = None
    ) -> memoryview | None:
        """Set what the index does not give in one row, from a serialized tf.Example at [start, stop) of `block`.

        Returns:
            The bytes of the image where it is wanted, else None. They are those of `block`, not copied, unless the record is in
            a form that only protobuf reads.

        Raises:
            ExampleFault: It is not a tf.Example, or a wanted feature is missing, of another kind or number than the schema says,
                or has a value that its encoding has no place for. The row is left as it was.
        """
        found, spans = find_features(block, start, len(block) if stop is None else stop, self._keys)
        image = None
        if self.image is not None:
            image = _image_bytes(self.image, found, spans.get(self.image.name.encode()))
        encoded = []
        for feature, encoding, stored in self._parsed:
            values = [_checked_values(told, found, spans.get(key)) for key, told in stored]
            encoded.append(
                (feature.name, encoding.encode(feature, values[0] if len(values) == 1 else values))
            )
        for name, value in encoded:
            store[name][row] = value
        return image

    def finish(
        self, store: Store, kept: npt.NDArray[np.bool_] | None = None, *, pad: bool = False
    ) -> Batch:
        """The batch's columns as users see them.

        Args:
            kept: bool [b], which rows are in the batch; None for all.
            pad: Keep the other rows too, but blank: 0, "", b"" or an empty list.
        """
        batch: Batch = {}
        for feature in self.features:
            encoding, column = self.encodings[feature.name], store[feature.name]
            if kept is not None and not pad:
                column = column[kept]
            elif kept is not None and not kept.all():
                blank = encoding.allocate(feature, 1)[0]
                for row in np.flatnonzero(~kept):
                    column[row] = blank
            batch[feature.name] = encoding.finish(feature, column)
        return batch


def _find_wanted(schema: ExampleSchema, features: Features) -> list[tuple[Feature, Encoding]]:
    known = {feature.name: feature for feature in schema.features}
    if features is None:
        features = list(known)
    if (
        isinstance(features, (str, bytes))
        or not isinstance(features, (Mapping, Sequence))
        or not features
    ):
        raise UsageError(
            f"features={features!r} must be names, such as {list(known)[:2]}, or names with encodings, {{'label': OneHot()}}"
        )
    wanted = []
    for name, encoding in (
        features if isinstance(features, Mapping) else dict.fromkeys(features)
    ).items():
        if name not in known:
            raise UsageError(
                f"feature {name!r} is not in this dataset, which has {', '.join(known)}"
            )
        if encoding is not None and not isinstance(encoding, Encoding):
            raise UsageError(
                f"feature {name!r}: {encoding!r} is no encoding; give one such as OneHot(), or None for the values as stored"
            )
        if encoding is not None and known[name].source == Source.IMAGE:
            raise UsageError(
                f"feature {name!r} is the image, which takes no encoding: say by image=... how it is decoded"
            )
        wanted.append((known[name], encoding or natural_encoding(known[name])))
    return wanted


def _index_source(feature: Feature) -> Source | None:
    """Where the index has it; the text of a label is its class's name."""
    return Source.LABEL if feature.source == Source.LABEL_TEXT else feature.source


def _image_bytes(feature: Feature, block: Block, span: Span | None) -> memoryview:
    place = bytes_span(block, span) if span else None
    if place is not None:
        return memoryview(block)[place[0] : place[1]]
    return memoryview(_checked_values(feature.stored[0], block, span)[0])


def _checked_values(stored: StoredFeature, block: Block, span: Span | None) -> Values:
    if span is None:
        raise ExampleFault(f"feature {stored.key!r} is missing")
    kind, values = read_values(block, span)
    if not stored.takes(len(values)):
        raise ExampleFault(
            f"feature {stored.key!r} has {len(values)} values, the schema says {stored.told_count}"
        )
    if len(values) and kind is not None and _KINDS[kind] != stored.told_kind:
        raise ExampleFault(
            f"feature {stored.key!r} holds {_KINDS[kind]} values, the schema says {stored.told_kind}"
        )
    return values
