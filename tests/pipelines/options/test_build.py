"""The options of a build: values, defaults, settings and help."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import UsageError
from shardwright.pipelines.options.arguments import make_parser
from shardwright.pipelines.options.build import BuildOptions, parse_options
from shardwright.transforms.inputs.detection import known_formats
from shardwright.transforms.options import options_of
from shardwright.transforms.plan.packing import ShardPolicy
from shardwright.transforms.reject_limits import RejectLimits
from shardwright.transforms.splits.split_rules import SplitRule

DEFAULTS = {"seed": 0, "check": "header", "name": "out", "version": "1.0.0", "beam_args": ()}
FLINK = "--runner=FlinkRunner --flink_master=h:1"
pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def parsed(options: str) -> BuildOptions:
    return parse_options(["in", "out", *shlex.split(options)])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", {**DEFAULTS, "policy": ShardPolicy(num_bytes=150_000_000)}),
        ("--shard-size 1.5GiB", {"policy": ShardPolicy(num_bytes=3 * 2**29)}),
        ("--shard-size 12", {"policy": ShardPolicy(num_bytes=12)}),
        ("--records-per-shard 7", {"policy": ShardPolicy(num_records=7)}),
        ("--shard-count 7", {"policy": ShardPolicy(num_shards=7)}),
        (
            "--shard-count 7 --shard-count-multiple-of 4",
            {"policy": ShardPolicy(num_shards=7, multiple_of=4)},
        ),
        (
            "--shard-count-multiple-of 4",
            {"policy": ShardPolicy(num_bytes=150_000_000, multiple_of=4)},
        ),
        ("--split a=.5,b=.5", {"split": SplitRule(("a", "b"), (0.5, 0.5))}),
        ("--seed -3", {"seed": -3}),
        ("--max-reject-fraction 0", {"limits": RejectLimits(max_reject_fraction=0.0)}),
        ("--max-reject-fraction 1", {"limits": RejectLimits(max_reject_fraction=1.0)}),
        ("--max-rejects 0", {"limits": RejectLimits(max_rejects=0)}),
        ("--threads 3", {"threads": 3}),
        ("--threads 1", {"threads": 1}),
        (f"{FLINK} --shared-filesystem", {"shared_filesystem": True}),
        ("--name a_1", {"name": "a_1"}),
        # Beam's --labels is key=value, ours a path.
        ("--labels t.csv", {"labels": "t.csv", "beam_args": ()}),
        ("--labels=t.csv", {"labels": "t.csv", "beam_args": ()}),
        ("--labels a=b.csv", {"labels": "a=b.csv", "beam_args": ()}),
        ("--labels t.csv --labels=x=y", {"labels": "t.csv", "beam_args": ("--labels=x=y",)}),
    ],
)
def test_values_that_are_understood(options: str, expected: dict[str, Any]) -> None:
    found = parsed(options)
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.parametrize("options", [
    "--runner DirectRunner",
    "--runner=DirectRunner --project p",
    "--experiments=a --experiments=b",
    "--direct_num_workers 2",
    "--runner=FlinkRunner --only_its_server_knows 1",
    "--labels=airflow-version=2-10",
    "--labels team=vision",
    """'--labels={"team": "vision"}'""",
])  # fmt: skip
def test_options_of_beam_are_passed_on(options: str) -> None:
    found = parsed(f"{options} --seed 4")
    assert (found.beam_args, found.seed, found.labels) == (tuple(shlex.split(options)), 4, None)


def test_names_from_the_output() -> None:
    names = {
        "elsewhere/out": "out",
        "/data/My Flowers/": "my_flowers",
        "elsewhere/2024-run": "dataset_2024_run",
        "elsewhere/é": "dataset",
        "elsewhere/x/..": "elsewhere",
    }
    assert {output: parse_options(["in", output]).name for output in names} == names


def test_a_command_without_words() -> None:
    with pytest.raises(UsageError, match="missing INPUT, OUTPUT"):
        parse_options([])


def test_places_may_be_named() -> None:
    for argv in (
        "--input in --output=out --seed 3",
        "--runner DirectRunner --seed=3 --output out --input=in",
    ):
        found = parse_options(argv.split())
        assert (found.input, found.output, found.seed) == ("in", "out", 3)


def test_settings_tell_builds_apart() -> None:
    """A resumed build compares every option that decides a byte, and no place or machine."""
    base = parsed("").settings
    for options in (
        "--seed 1", "--shard-size 1MB", "--shard-count 2", "--records-per-shard 2", "--split a=1",
        "--shard-count-multiple-of 2", "--encode jpeg", "--encode jpeg --quality 80",
        "--encode jpeg --resize 8x8", "--check decode", "--feature-names model-garden",
        "--name other", "--version 2.0.0", "--writer beam", "--label-column x",
        "--split a=5,b=rest", "--split a=1 --stratify", "--split-ids a=in/cat/1.png",
        "--duplicates drop",
    ):  # fmt: skip
        assert parsed(options).settings != base, options
    for options in (
        "--threads 9", "--if-exists error", "--max-reject-fraction 0.5", "--runner DirectRunner",
        "--max-rejects 3",
    ):  # fmt: skip
        assert parsed(options).settings == base, options
    near, far = (parsed(f"--split-ids a={path}").settings for path in ("x.txt", "elsewhere/x.txt"))
    assert near == far
    assert parse_options(["in/cat", "elsewhere/out"]).settings == base


@pytest.mark.parametrize(("values", "message"), [
    ({"version": "1"}, r"--version must be three numbers, .*, got '1'"),
    ({"check": "deep"}, "--check must be one of header, decode, none, got 'deep'"),
    ({"threads": 0}, "--threads must be at least 1, got 0"),
    ({"shard_size": 1, "shard_count": 1}, "give one of --shard-size, .*, not 2"),
])  # fmt: skip
def test_options_made_in_python_are_checked_too(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        BuildOptions(input="in", output="out", name="x", **values)


def test_defaults_made_in_python_are_those_of_the_command() -> None:
    assert BuildOptions(input="in", output="out") == parsed("")


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse_options(["--help-all"])
    options = "labels size-column split shard-size encode if-exists writer threads"
    text = capsys.readouterr().out
    assert left.value.code == 0
    assert [option for option in options.split() if f"--{option}" not in text] == []


def test_help_fits_two_screens(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse_options(["--help"])
    text = capsys.readouterr().out
    assert left.value.code == 0
    assert len(text.splitlines()) <= 100
    usual = {option.name for option in options_of(BuildOptions) if option.usual}
    assert len(usual) == 19
    assert all(
        f"--{name.replace('_', '-')} " in text for name in usual - {"input", "output", "stratify"}
    )
    assert "--max-aspect" not in text
    assert "--help-all lists every option" in text


def test_help_lists_the_installed_formats_and_nothing_else_loads_them() -> None:
    """Formats of other packages may take long to import, or fail."""
    known_formats.cache_clear()
    make_parser("build").parse_known_args(["in", "out"])
    assert not known_formats.cache_info().misses, "loaded by parsing"
    lines = make_parser("build").format_help().partition("input formats, ")[2].splitlines()[1:]
    listed = dict(line.split(maxsplit=1) for line in lines)
    assert listed["folder"].startswith("a folder of images, of class folders")
    assert listed["table"].startswith("a .csv")
