"""JSON files are opened by a type: the error names the place, the value and what was expected."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from shardwright.errors import NotADatasetError, StorageError
from shardwright.format.json_files import Count, Crc32c, Number, parse_json, read_json, typed
from shardwright.storage.folder import Folder


class Part(Struct):
    size: Count
    sums: dict[str, Crc32c] = {}

    def __post_init__(self) -> None:
        if self.size == 13:
            raise ValueError("the size is unlucky")


@dataclass(frozen=True)
class Whole:
    parts: dict[str, list[Part]]
    share: Number = 0.5


def parts(**changes: Any) -> dict[str, Any]:
    """Return JSON of 100 lists of parts, of which one in the middle is changed."""
    lists = {f"list {number}": [{"size": 1}, {"size": 2}] for number in range(100)}
    return {"parts": {**lists, "list 57": [{"size": 1}, {"size": 2, **changes}]}}


@pytest.mark.parametrize(("content", "what"), [
    ([], "$: expected object, got array"),
    ({}, "$: object missing required field parts"),
    (parts(size="x"), "$.parts[...][1].size: expected int, got str"),
    (parts(size=-1), "$.parts[...][1].size: expected int >= 0"),
    (parts(size=2**63), "$.parts[...][1].size: expected int <= 9223372"),
    (parts(size=13), "$.parts[...][1]: the size is unlucky"),
    (parts(sums={"a": 1, "b": 2**32}), "$.parts[...][1].sums[...]: expected int <="),
    (parts(sums={"a": 1, 2: 1}), "key in $.parts[...][1].sums: expected str, got int"),
    ({"parts": {}, "share": math.nan}, "$.share is nan: expected float >= -1.797693"),
    ({"parts": {}, "share": math.inf}, "$.share is inf: expected float <= 1.797693"),
    ({"parts": {}, "share": 10**400}, "$.share is 1000000000"),
    ({"parts": {"\ud800": 3}}, "$.parts[...]: expected array, got int"),
    ({"parts": {}, "\ud800": 3}, "surrogates not allowed"),
])  # fmt: skip
def test_the_error_names_the_place(content: Any, what: str) -> None:
    before = repr(content)
    with pytest.raises(ValueError, match=re.escape(what)):
        typed(content, Whole)
    assert repr(content) == before


def test_later_fields_are_left_out() -> None:
    assert typed({**parts(later=3), "later": []}, Whole) == typed(parts(), Whole)


def test_files(tmp_path: Path) -> None:
    root = Folder(str(tmp_path))
    assert read_json(root, "a.json", Whole) is None
    (tmp_path / "a.json").write_text('{"parts": {}}')
    assert read_json(root, "a.json", Whole) == Whole({})
    (tmp_path / "a.json").write_text('{"parts": 3}')
    with pytest.raises(NotADatasetError) as caught:
        read_json(root, "a.json", Whole, fix="copy it")
    what = "is damaged ($.parts is 3: expected object, got int): copy it"
    assert str(caught.value) == f"{tmp_path}/a.json {what}"
    with pytest.raises(StorageError, match="a pin is not readable JSON"):
        parse_json(b"\xff", Whole, "a pin", "", error=StorageError)


def test_a_type_that_another_thread_is_just_meeting_for_the_first_time() -> None:
    """In a process of its own, which `convert` alone ends by a fault of memory."""
    program = """if True:
        import threading, time
        from msgspec import Struct
        from shardwright.format.json_files import typed

        begun = threading.Event()

        def number():
            begun.set()
            time.sleep(0.2)
            return int

        class Inner(Struct):
            number: "number()"

        class Outer(Struct):
            inner: Inner
            other: int

        def open_it():
            assert typed({"inner": {"number": 1}, "other": 2}, Outer) == Outer(Inner(1), 2)

        thread = threading.Thread(target=open_it)
        thread.start()
        begun.wait()
        open_it()
        thread.join()
        """
    subprocess.run([sys.executable, "-c", program], check=True, timeout=250)
