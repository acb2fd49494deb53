"""The formats of this project pass the tests that `shardwright.testing` has for all."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardwright.testing import InputFormatTests
from shardwright.transforms.inputs.detection import known_formats
from tests.support.input_forms import FORMS, Form

FORMAT_OF = {  # of the forms that are not called as their format
    "class-folders": "folder", "split-folders": "folder", "labels-beside": "folder",
    "csv": "table", "tsv": "table", "jsonl": "table", "parquet": "table", "sharded-csv": "table",
    "box-table": "table", "imagefolder-metadata": "image-folder", "tar.gz": "tar",
    "zip-stored": "zip", "zip-deflated": "zip", "hub-parquet": "embedded",
}  # fmt: skip


class TestOwnFormats(InputFormatTests):
    @pytest.fixture(autouse=True, params=FORMS, ids=str)
    def _of_form(self, request: pytest.FixtureRequest) -> None:
        self.form: Form = request.param
        self.source = known_formats()[FORMAT_OF.get(self.form.name, self.form.name)]  # type: ignore[misc]

    def make(self, folder: Path) -> str:
        self.form.write(folder / "data")
        return str(folder / "data" / self.form.input)


def test_each_format_has_a_form() -> None:
    """A format that `--input-format` knows and the table of forms lacks is tested nowhere."""
    names = {FORMAT_OF.get(form.name, form.name) for form in FORMS}
    assert names | {"arrays"} == known_formats().keys()
