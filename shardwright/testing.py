"""Test an input format: what every source must do, those of other packages included.

    class TestLmdb(InputFormatTests):
        source = LmdbSource

        def make(self, folder):
            write_lmdb(folder / "x.mdb")
            return str(folder / "x.mdb")

pytest finds the tests by the name of the subclass. They need the build (`pip install
'shardwright[build]'`).
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from shardwright.errors import ShardwrightError
from shardwright.extras import import_application
from shardwright.storage.folder import Folder

_INPUTS = "shardwright.transforms.inputs"


class InputFormatTests:
    """Tests of an input format. A subclass names it, and makes an INPUT of it.

    Attributes:
        source: The format, a subclass of `InputSource`.
    """

    source: ClassVar[Any]

    def make(self, folder: Path) -> str:
        """Write an INPUT of some images below an empty folder, and return its path."""
        raise NotImplementedError

    def look(self, tmp_path: Path) -> Any:
        """Return INPUT as a source, as a build finds it; it may write below `tmp_path`/spool."""
        (tmp_path / "made").mkdir()
        spool = Folder(str(tmp_path / "spool"))
        return self._look_at(self.make(tmp_path / "made"), spool=spool)

    def _look_at(self, uri: str, **more: Any) -> Any:
        request = import_application(f"{_INPUTS}.source").SourceRequest(uri, **more)
        return self.source.look(import_application(f"{_INPUTS}.input_files").checked(request))

    def test_it_is_described_in_a_line(self, tmp_path: Path) -> None:
        assert self.source.summary
        assert "\n" not in self.source.summary
        found = self.look(tmp_path)
        assert isinstance(found, self.source), f"`look` does not recognize it: {found!r}"
        assert found.description
        assert "\n" not in found.description

    def test_a_listing_is_repeatable_and_survives_pickling(self, tmp_path: Path) -> None:
        """Each worker lists some parts, and a retry lists one again: the rows must be equal."""
        found = self.look(tmp_path)
        first = _listed(found, found.parts())
        assert any(isinstance(one, pa.RecordBatch) for one in first)
        sent = pickle.loads(pickle.dumps(found))
        assert sent == found
        assert _listed(sent, sent.parts()) == first

    def test_parts_of_workers_are_the_same_together(self, tmp_path: Path) -> None:
        found = self.look(tmp_path)
        one, many = (
            sorted(row["id"] for row in _rows(_listed(found, parts)))
            for parts in (found.parts(), found.worker_parts())
        )
        assert one == many

    def test_batches_have_its_schema_and_ids_of_their_own(self, tmp_path: Path) -> None:
        most = import_application("shardwright.transforms.references").BATCH_ROWS
        found = self.look(tmp_path)
        columns, listed = (found.schema.names, found.schema.types), _listed(found, found.parts())
        for batch in listed:
            if isinstance(batch, pa.RecordBatch):
                assert (batch.schema.names, batch.schema.types) == columns
                assert 0 < batch.num_rows <= most
        ids = [row["id"] for row in _rows(listed)]
        assert None not in ids
        assert len(set(ids)) == len(ids)

    def test_images_are_where_references_say(self, tmp_path: Path) -> None:
        """A reference has the place and the length of an image, and an etag that it keeps."""
        found = self.look(tmp_path)
        for row in _rows(_listed(found, found.parts())):
            size = os.path.getsize(row["uri"])
            assert 0 <= (row["offset"] or 0) <= size
            if found.copied_schema is None and row["num_bytes"]:
                assert row["etag"]
                assert (row["offset"] or 0) + row["num_bytes"] <= size

    def test_another_input_is_left_to_other_formats(self, tmp_path: Path) -> None:
        """Or is an error that names it, as is None for a user who has chosen this format."""
        (tmp_path / "notes.unknown").write_text("no images")
        for uri in (str(tmp_path), str(tmp_path / "notes.unknown")):
            for chosen in (None, "this"):
                try:
                    found = self._look_at(uri, input_format=chosen)
                except ShardwrightError as error:
                    if uri not in str(error):
                        raise
                else:
                    assert isinstance(found, self.source) or (found, chosen) == (None, None)


def _listed(source: Any, parts: Iterable[str]) -> list[Any]:
    """Return the batches and rejects of parts."""
    return [found for part in parts for found in source.list_part(part)]


def _rows(listed: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of batches of references."""
    for batch in listed:
        if isinstance(batch, pa.RecordBatch):
            yield from batch.to_pylist()
