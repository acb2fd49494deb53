"""The README's commands parse, its options exist, and its schema is one."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from pipelines.options import parse_options
from shardwright.schema import ExampleSchema

README = (Path(__file__).parent.parent / "README.md").read_text()
COMMANDS = [
    line.rstrip("`| ").partition("  #")[0]
    for line in re.findall(r"shardwright build [^`\n]*", README)
    if "DATASET" not in line
]
OPTIONS = sorted(set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", README)))


@pytest.mark.parametrize("command", sorted(set(COMMANDS)))
def test_its_commands_parse(command: str) -> None:
    argv = shlex.split(command)[2:]
    if len(argv) >= 2:
        parse_options(argv)


def test_its_options_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_options(["--help"])
    text = capsys.readouterr().out
    others = {"--target", "--quick", "--runner", "--save", "--job"}  # of other commands, and Beam's
    missing = [option for option in OPTIONS if option not in text and option not in others]
    assert missing == []


def test_its_schema_is_one(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (block,) = [block for block in blocks if "SCHEMA" in block]
    (tmp_path / "schema.py").write_text(block)
    assert isinstance(runpy.run_path(str(tmp_path / "schema.py"))["SCHEMA"], ExampleSchema)
