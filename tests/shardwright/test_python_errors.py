"""Messages of the command line, in the words of Python."""

from __future__ import annotations

import pytest

from shardwright.errors import UsageError
from shardwright.pipelines.options.arguments import BuildArguments
from shardwright.python_errors import FLAGS, PythonErrors, in_python
from shardwright.transforms.options import options_of

CHOICES = {
    "if_exists": ("append", "overwrite"),
    "encode": ("jpeg",),
    "fit": ("cover",),
}


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("--split draws splits: leave --split out", "split= draws splits: leave split= out"),
        ("such as --split train=0.8,test=0.2", "such as split='train=0.8,test=0.2'"),
        ("--split a=1,b=1: fractions", "split='a=1,b=1': fractions"),
        (
            "(--encode jpeg --fit cover is)",
            "(encode='jpeg' fit='cover' is)",
        ),
        (
            "use --if-exists overwrite, or another OUTPUT",
            "use if_exists='overwrite', or another output",
        ),
        ("--if-exists must be", "if_exists= must be"),
        ("--schema 'a b' is", "schema='a b' is"),
        ("--split-ids FILE.", "split_ids=FILE."),
        ("--class-names /a/b.txt: class 0", "class_names='/a/b.txt': class 0"),
        ("more than --max-rejects 5 allows", "more than max_rejects=5 allows"),
        ("argument --check: invalid", "argument check: invalid"),
        ("'--shard_sise=3' is unknown", "'shard_sise=3' is unknown"),
        ("--keep-missing needs --stratify", "keep_missing=True needs stratify=True"),
        ("set --storage-option region=... or", "set storage_options={'region': '...'} or"),
        (
            "(--storage-option endpoint=http://minio:9000)",
            "(storage_options={'endpoint': 'http://minio:9000'})",
        ),
        ("run `shardwright gc --keep 1`", "run `shardwright gc --keep 1`"),
        ("a--b, -- and 3--4, /OUTPUT", "a--b, -- and 3--4, /OUTPUT"),
    ],
)
def test_messages(message: str, told: str) -> None:
    assert in_python(message, CHOICES) == told
    assert in_python(told, CHOICES) == told


def test_flags_are_those_of_the_command_line() -> None:
    assert {each.name for each in options_of(BuildArguments) if each.default is False} == FLAGS


def test_errors_keep_their_type_and_others_their_text() -> None:
    with pytest.raises(UsageError, match=r"^split= is wrong$"), PythonErrors():
        raise UsageError("--split is wrong")
    with pytest.raises(ValueError, match=r"^--split is wrong$"), PythonErrors():
        raise ValueError("--split is wrong")
