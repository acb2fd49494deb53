"""Printed lines: ids, names and paths with escape sequences and line breaks do no harm."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from shardwright.inspect import cli
from shardwright.inspect.command_parts import to_json
from shardwright.terminal import join_lines, one_line, print_safely, say, set_up_log
from tests.support.build_helpers import make_images

NASTY = "c\x1b[31mred\r\n\x7f\x9b\t"
SAFE = "c\\x1b[31mred\\x0d\\x0a\\x7f\\x9b\\x09"


def test_a_text_is_one_line_without_controls() -> None:
    assert one_line(NASTY) == SAFE == one_line(one_line(NASTY))
    assert join_lines([NASTY, "été"]) == f"{SAFE}\nété"
    assert json.loads(to_json({"a": NASTY})) == {"a": NASTY}
    assert "\x9b" not in to_json({"a": NASTY})


def test_results_messages_and_logs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    print_safely("a\nb\x1b\x9b")
    say(NASTY)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    set_up_log()
    logging.getLogger("shardwright.test").warning("of %s", NASTY)
    logging.getLogger("other").warning("of\n%s", "\x1b")
    printed = capsys.readouterr()
    assert printed.out == "a\nb\\x1b\\x9b\n"
    assert printed.err.splitlines() == [
        f"shardwright: {SAFE}",
        f"WARNING:shardwright.test:of {SAFE}",
        "WARNING:other:of",
        "\\x1b",
    ]


@pytest.mark.long
def test_commands_on_a_dataset_with_such_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make_images(tmp_path / "in", 2) / "c\x1b[31mred"
    folder.mkdir()
    for path in list((tmp_path / "in").rglob("*.*")):
        path.rename(folder / f"\x1b{path.name}")
    (folder / "bad\x1b[5m.png").write_bytes(b"\x89PNG\r\n\x1a\nbad")
    dataset = str(tmp_path / "out")
    assert cli.main(["build", str(tmp_path / "in"), dataset, "--max-reject-fraction", "1"]) == 0
    for command in ("inspect", "stats", "verify", "log", "show", "diff"):
        cli.main([command, dataset, *{"show": ["0"], "diff": [dataset]}.get(command, [])])
    cli.main(["plan", str(tmp_path / "in"), str(tmp_path / "other")])
    printed = "".join(capsys.readouterr())
    assert "\x1b" not in printed
    assert "\\x1b[31mred" in printed
