"""Inputs as tables of cases: the files of INPUT, options, and what its listing gives."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardwright.storage.folder import Folder
from shardwright.transforms.inputs.source import InputSource
from shardwright.transforms.rejects import Reject
from tests.support.archive_files import TAR_MODES, pack_tar, pack_zip
from tests.support.helpers import TINY_PNG, rejects_of, rows_of
from tests.support.listings import NONE, Rows, columns_of, detect, list_source
from tests.support.tfrecord_makers import write_records

PIPE = object()  # a file's content: a named pipe, which to open would wait for ever
Files = Mapping[str, Any]


@dataclass(frozen=True)
class Listing:
    source: InputSource
    rows: Rows
    rejects: list[Reject]

    def of(self, *names: str) -> list[tuple[Any, ...]]:
        """Return these columns of each row."""
        return columns_of(self.rows, *names)

    @property
    def reasons(self) -> dict[str, str]:
        """The reasons of the rejects by their ids, each of which is unique."""
        assert len({reject.id for reject in self.rejects}) == len(self.rejects)
        return {reject.id: str(reject.reason) for reject in self.rejects}

    @property
    def details(self) -> dict[str, str]:
        """`reason: detail` of the rejects by their ids."""
        return {reject.id: f"{reject.reason}: {reject.detail}" for reject in self.rejects}


@dataclass(frozen=True)
class Case:
    """An INPUT, and what its listing gives.

    Attributes:
        files: As `write_files` takes them; a list is of names of tiny images.
        at: The part of INPUT's path below the folder with the files.
        columns: Columns of roles, by role.
        options: Others of the request.
        rows: Column -> values of all rows, in order; "FOLDER" in them stands for the folder.
        rejects: Id -> reason, or "reason: text" with a part of the detail.
        error: An error of the type that is raised; its text is a pattern of the message.
        source: Attributes of the source.
        says: Part of the description.
        warns: Part of the log.
    """

    files: Files | Sequence[str]
    at: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    rows: Mapping[str, Sequence[Any]] | None = None
    rejects: Mapping[str, str] | None = None
    error: Exception | None = None
    source: Mapping[str, Any] = field(default_factory=dict)
    says: str = ""
    warns: str = ""

    def check(self, root: Path, caplog: pytest.LogCaptureFixture | None = None) -> None:
        """Write the files below `root`, list INPUT, and compare."""
        if self.error is None:
            self.listed(root, caplog)
            return
        pattern = str(self.error).replace("FOLDER", re.escape(f"{root}/in"))
        with pytest.raises(type(self.error), match=pattern):
            self._list(root)

    def listed(self, root: Path, caplog: pytest.LogCaptureFixture | None = None) -> Listing:
        """Do the same where no error is expected, and return the listing."""
        found, folder = self._list(root), f"{root}/in"
        if self.rows is not None:
            listed = {name: [row[name] for row in found.rows] for name in self.rows}
            assert listed == below(self.rows, folder), found.details
        if self.rows is not None or self.rejects is not None:
            rejects = {key: text.partition(": ") for key, text in (self.rejects or {}).items()}
            reasons = {key: reason for key, (reason, _, _) in rejects.items()}
            assert found.reasons == below(reasons, folder), found.details
            for key, (_, _, text) in rejects.items():
                assert below(text, folder) in found.details[key], found.details
        attributes = {name: getattr(found.source, name) for name in self.source}
        assert attributes == below(self.source, folder)
        assert below(self.says, folder) in found.source.description
        assert not self.warns or (caplog is not None and below(self.warns, folder) in caplog.text)
        return found

    def _list(self, root: Path) -> Listing:
        folder = write_files(root / "in", self.files)
        options = {"spool": Folder(str(root / "spool")), **below(self.options, str(folder))}
        uri = f"{folder}/{self.at}" if self.at else folder
        return listing(uri, columns=self.columns, **options)


def below(value: Any, folder: str) -> Any:
    """Return a value with a folder's path for "FOLDER" in its texts."""
    if isinstance(value, str):
        return value.replace("FOLDER", folder)
    if isinstance(value, Mapping):
        return {below(key, folder): below(each, folder) for key, each in value.items()}
    return [below(each, folder) for each in value] if isinstance(value, list) else value


def by_case(cases: Mapping[str, Case]) -> pytest.MarkDecorator:
    """Return a decorator that runs a test with each of the cases."""
    return pytest.mark.parametrize("case", list(cases.values()), ids=list(cases))


def listing(
    uri: str | Path, *, columns: Mapping[str, str | None] = NONE, **options: Any
) -> Listing:
    """List INPUT; its batches have the schema that its source states."""
    source = detect(str(uri), {**NONE, **columns}, **options)
    parts = list(list_source(source))
    stated = (source.schema.names, source.schema.types)
    for part in parts:
        if not isinstance(part, Reject):  # nullability apart, which arrays do not state
            assert (part.schema.names, part.schema.types) == stated
    return Listing(source, rows_of(parts), rejects_of(parts))


def pngs(*names: str) -> dict[str, bytes]:
    """Return tiny images of these names."""
    return dict.fromkeys(names, TINY_PNG)


def write_files(root: Path, files: Files | Sequence[str]) -> Path:
    """Write files below `root`, folders included; return `root`.

    Args:
        files: Name -> content: bytes, a text, `PIPE`, a Path that a link leads to, or, by the
            ending of the name, a table, its rows, an archive's members, records, or a JSON value.
            A list is of names of tiny images.
    """
    root.mkdir(parents=True, exist_ok=True)
    for name, content in (files if isinstance(files, Mapping) else pngs(*files)).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes | str):
            path.write_bytes(content.encode() if isinstance(content, str) else content)
        elif isinstance(content, Path):
            path.symlink_to(content)
        elif content is PIPE:
            os.mkfifo(path)
        else:
            _write_value(path, content)
    return root


def _write_value(path: Path, content: Any) -> None:
    ending = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    if ending == ".parquet":
        table = content if isinstance(content, pa.Table) else pa.Table.from_pylist(content)
        pq.write_table(table, path)
    elif ending in TAR_MODES:
        members = {name: encoded(value) for name, value in content.items()}
        pack_tar(path, members, TAR_MODES[ending])
    elif ending == ".zip":
        pack_zip(path, content)
    elif "record" in path.name:
        write_records(path, content, "GZIP" if ending.endswith(".gz") else "")
    elif ending == ".jsonl":
        path.write_text("".join(f"{json.dumps(row)}\n" for row in content))
    else:
        path.write_text(json.dumps(content))


def encoded(value: Any) -> bytes:
    """Return a member of a WebDataset: a dict is written as JSON."""
    if isinstance(value, bytes):
        return value
    return (json.dumps(value) if isinstance(value, dict) else str(value)).encode()
