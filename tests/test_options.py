"""The command line: values that break a rule are told in one line, exit code 2, before anything is read or written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines import build_dataset
from pipelines.options import BuildOptions, parse_options
from shardwright.errors import UsageError
from tests.helpers import make_files
from transforms.planning.packing import ShardPolicy
from transforms.splitting.splits import SplitFractions

WRONG_VALUES = [
    (
        ["--runner=DataflowRunner"],
        "INPUT in is on this machine, and the workers of DataflowRunner may be on others: give gs:// or s3://",
    ),
    (
        ["--runner=DataflowRunner", "--shared-filesystem"],
        "--shared-filesystem: workers of Dataflow share no file system with anybody",
    ),
    (
        ["--runner=PortableRunner"],
        "--runner PortableRunner submits to a job server: give its address by --job_endpoint",
    ),
    (
        ["--runner=FlinkRunner", "--flink_master=h:1"],
        "give gs:// or s3://, or --shared-filesystem where all workers see this path",
    ),
    (
        ["--output=x"],
        "--output is given without --input: give both, or INPUT and OUTPUT without these names",
    ),
    (["--records-per-shard", "0"], "--records-per-shard is 0; it must be 1 or more"),
    (["--records-per-shard", "-1"], "--records-per-shard is -1; it must be 1 or more"),
    (["--records-per-shard", "x"], "argument --records-per-shard: invalid int value: 'x'"),
    (["--records-per-shard", "1.5"], "argument --records-per-shard: invalid int value: '1.5'"),
    (["--shard-count", "0"], "--shard-count is 0; it must be 1 or more"),
    (
        ["--shard-size", "0"],
        "--shard-size '0' is no size; write a number above 0 with a unit, such as 150MB or 128MiB",
    ),
    (["--shard-size", "0.0001kB"], "--shard-size '0.0001kB' is less than a byte"),
    (["--shard-size", "abc"], "--shard-size 'abc' is no size"),
    (["--shard-size", "10XB"], "--shard-size '10XB' is no size"),
    (["--shard-size=-5MB"], "--shard-size '-5MB' is no size"),
    (["--shard-size", ""], "--shard-size '' is no size"),
    (
        ["--shard-size", "1MB", "--records-per-shard", "5"],
        "give one of --shard-size, --records-per-shard and --shard-count, not 2",
    ),
    (
        ["--shard-count", "2", "--records-per-shard", "5"],
        "not 2 (--records-per-shard, --shard-count)",
    ),
    (["--shard-count-multiple-of", "0"], "--shard-count-multiple-of is 0; it must be 1 or more"),
    (
        ["--shard-count-multiple-of", "8", "--records-per-shard", "5"],
        "--shard-count-multiple-of cannot be kept with --records-per-shard",
    ),
    (["--split", "train=0.8"], "--split train=0.8: fractions must each be above 0 and add up to 1"),
    (["--split", "train=a"], "--split: 'a' in 'train=a' is no number"),
    (["--split", ""], "--split: '' is no split name"),
    (
        ["--split", "test=5,train=rest,x=rest"],
        "--split: 2 splits are to get the rest; give one, as in test=5000,train=rest",
    ),
    (
        ["--split", "test=0.5,x=5,train=rest"],
        "give fractions below 1, or whole numbers of records, and not both",
    ),
    (
        ["--stratify"],
        "--stratify says how splits are drawn, and none are: give --split, such as --split train=0.8,test=0.2",
    ),
    (
        ["--split-ids", "nowhere.csv"],
        "--split-ids nowhere.csv: there is no file {here}/nowhere.csv",
    ),
    (
        ["--split-ids", "in/cat/1.png"],
        "--split-ids in/cat/1.png lists ids alone: name their split, as in --split-ids test=in/cat/1.png",
    ),
    (
        ["--split-ids", "test=in/cat/1.png", "--split", "train", "--group-column", "x"],
        "--split-ids puts single images in splits, so --split could tear groups: leave --group-column or --split out",
    ),
    (["--duplicates", "some"], "argument --duplicates: invalid choice: 'some'"),
    (["--seed", "x"], "argument --seed: invalid int value: 'x'"),
    (["--encode", "gif"], "argument --encode: invalid choice: 'gif'"),
    (
        ["--encode", "raw"],
        "--encode 'raw' needs one shape for all images, got no resize: give a width and height",
    ),
    (
        ["--resize", "224x224"],
        "--encode 'keep' stores files as they are, got resize 224x224: choose jpeg, png, raw or tensor",
    ),
    (
        ["--resize", "224", "--encode", "jpeg"],
        "--resize '224' is no size; write width x height in pixels, such as 224x224",
    ),
    (["--resize", "0x5", "--encode", "jpeg"], "--resize '0x5' is no size"),
    (["--resize", "-1x5", "--encode", "jpeg"], "argument --resize: expected one argument"),
    (
        ["--resize", "99999x1", "--encode", "jpeg"],
        "--resize must be two whole numbers of pixels (width, height) from 1 to 65,500",
    ),
    (["--resize", "60000x60000", "--encode", "png"], "--resize must ask for at most"),
    (
        ["--quality", "0"],
        "--quality must be a whole number from 1 to 100, got 0: 90 is the default",
    ),
    (["--quality", "101"], "--quality must be a whole number from 1 to 100, got 101"),
    (["--check", "deep"], "argument --check: invalid choice: 'deep'"),
    (["--max-reject-fraction", "2"], "--max-reject-fraction is 2; it must be from 0 to 1"),
    (["--max-reject-fraction", "-0.1"], "--max-reject-fraction is -0.1; it must be from 0 to 1"),
    (["--max-reject-fraction", "nan"], "--max-reject-fraction is nan; it must be from 0 to 1"),
    (["--max-reject-fraction", "5%"], "argument --max-reject-fraction: invalid float value: '5%'"),
    (["--feature-names", "mine"], "argument --feature-names: invalid choice: 'mine'"),
    (
        ["--name", "My-Set"],
        "--name 'My-Set' must be lower-case letters, digits and underscores, and start with a letter",
    ),
    (["--name", "1set"], "--name '1set' must be lower-case"),
    (["--version", "1.0"], "--version '1.0' must be three numbers, such as 1.0.0"),
    (["--version", "v1.0.0"], "--version 'v1.0.0' must be three numbers"),
    (["--if-exists", "append"], "argument --if-exists: invalid choice: 'append'"),
    (["--writer", "fast"], "argument --writer: invalid choice: 'fast'"),
    (["--threads", "0"], "--threads is 0; it must be 1 or more"),
    (["--threads", "-2"], "--threads is -2; it must be 1 or more"),
    (["--class-names", "nowhere.txt"], "--class-names nowhere.txt cannot be read"),
    (["--labels", "nowhere.csv"], "--labels nowhere.csv does not exist"),
    (
        ["--labels", "in/cat/1.png"],
        "--labels {here}/in/cat/1.png is a file, and its name is not a table's",
    ),
    (
        ["--labels", "in"],
        "--labels {here}/in is a folder; give a .csv, .tsv, .jsonl or .parquet table",
    ),
    (
        ["--labels-key", "stem"],
        "--labels-key stem says what the rows of --labels go by: give --labels, or leave it out",
    ),
    (["--labels-key", "name"], "argument --labels-key: invalid choice: 'name'"),
    (["--input-format", "lmdb"], "--input-format 'lmdb' is not known; give one of "),
    (["--input-format", "table"], "INPUT {here}/in names no file whose name is a table's"),
    (["--label-column", "x"], "--label-column is for a table, and INPUT {here}/in is a folder"),
    # Options that are nobody's. Abbreviations are none of ours: they would swallow options of Beam.
    (
        ["--record-per-shard", "5"],
        "'--record-per-shard' is no option of shardwright or of Beam; did you mean --records-per-shard?",
    ),
    (
        ["--records-per", "5"],
        "'--records-per' is no option of shardwright or of Beam; did you mean --records-per-shard?",
    ),
    (["--shuffle"], "'--shuffle' is no option of shardwright or of Beam"),
    (
        ["--runer", "DirectRunner"],
        "'--runer' is no option of shardwright or of Beam; did you mean --runner?",
    ),
    (["third"], "'third' is no option of shardwright or of Beam; see `shardwright build --help`"),
    (["--runner", "DirectRunner", "third"], "'third' is no option of shardwright or of Beam"),
    (["-x"], "'-x' is no option of shardwright or of Beam"),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with an INPUT called `in`."""
    make_files(tmp_path / "in", "cat/1.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def build_fails(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run the command, which must end as wrong usage; gives the last line of stderr."""
    try:
        code = build_dataset.main(argv)
    except SystemExit as error:  # argparse leaves so
        code = error.code  # type: ignore[assignment]
    captured = capsys.readouterr()
    assert code == 2, captured.err
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err.strip().splitlines()[-1]


@pytest.mark.parametrize(("options", "message"), WRONG_VALUES)
def test_wrong_values(
    here: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert message.replace("{here}", str(here)) in build_fails(["in", "out", *options], capsys)
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    ("places", "message"),
    [
        (
            ["in", "in"],
            "OUTPUT in is inside INPUT in: its shards would be taken for input; give a place outside",
        ),
        (["in", "in/out"], "OUTPUT in/out is inside INPUT in"),
        (["in", "./x/../in/out"], "OUTPUT ./x/../in/out is inside INPUT in"),
        (["in", "link"], "OUTPUT link is inside INPUT in"),
        (["in", "link/deep/out"], "OUTPUT link/deep/out is inside INPUT in"),
        (["link", "in/out"], "OUTPUT in/out is inside INPUT link"),
        (["file://{here}/in", "in/out"], "is inside INPUT file://"),
        (["in/cat", "in"], "INPUT in/cat is inside OUTPUT in: give an OUTPUT of its own"),
        (["in/t.csv", "in"], "INPUT in/t.csv is inside OUTPUT in"),
        (["in", "/"], "INPUT in is inside OUTPUT /"),
        (["/", "out"], "OUTPUT out is inside INPUT /"),
        (["nothing", "out"], "INPUT nothing does not exist"),
        (["in/cat/1.png", "out"], "is a file, and its name is not a table's"),
        (
            ["ftp://host/in", "out"],
            "'ftp://host/in': ftp:// addresses are not read or written; give a local path or one of s3://, gs://",
        ),
        (
            ["in", "ftp://host/out"],
            "'ftp://host/out': ftp:// addresses are not read or written; give a local path or one of s3://, gs://",
        ),
        (["in", "s3://"], "'s3://' names no bucket: write s3://BUCKET/PREFIX"),
        (["gs:///in", "out"], "'gs:///in' names no bucket: write gs://BUCKET/PREFIX"),
        (
            ["in", "s3://bucket/a//b"],
            "'s3://bucket/a//b' has an empty, '.' or '..' part in its name",
        ),
        (
            ["s3://bucket/in/", "s3://bucket/in/out"],
            "OUTPUT s3://bucket/in/out is inside INPUT s3://bucket/in/",
        ),
        (
            ["s3a://bucket", "s3://bucket/out"],
            "OUTPUT s3://bucket/out is inside INPUT s3a://bucket",
        ),
        (
            ["gs://bucket/in/cat", "gs://bucket/in"],
            "INPUT gs://bucket/in/cat is inside OUTPUT gs://bucket/in: give an OUTPUT of its own",
        ),
        (["in"], "the following arguments are required: OUTPUT"),
        ([], "the following arguments are required: INPUT, OUTPUT"),
    ],
)
def test_wrong_places(
    here: Path, capsys: pytest.CaptureFixture[str], places: list[str], message: str
) -> None:
    (here / "link").symlink_to("in")
    (here / "in" / "t.csv").write_text("image\ncat/1.png\n")
    assert message in build_fails([place.format(here=here) for place in places], capsys)
    assert not (here / "out").exists()


@pytest.mark.parametrize(
    ("header", "options", "message"),
    [
        (
            "path,image,x",
            [],
            "two features are called 'image': rename the table's column of that name",
        ),
        ("image,id,x", ["--id-column", "x"], "two features are called 'id'"),
        ("image,label,x", ["--label-column", "x"], "two features are called 'label'"),
        (
            "image,a,a/b",
            [],
            "feature 'a' is also the folder of 'a/b': rename one of the two columns",
        ),
        ("image,id/x,label", ["--id-column", "label"], "feature 'id' is also the folder of 'id/x'"),
        (
            "image,label,image/encoded",
            ["--feature-names", "model-garden"],
            "two features are called 'image/encoded'",
        ),
        (
            "image,label,split",
            ["--split", "a=1"],
            "--split draws splits, but INPUT already states them",
        ),
        ("image,label,x", ["--label-column", "class"], "--label-column 'class' is not in"),
        (
            "img_name,b,c",
            [],
            "has the columns 'img_name', 'b', 'c': name the one with the image paths by --image-column",
        ),
    ],
)
def test_options_that_do_not_fit_the_table(
    here: Path, capsys: pytest.CaptureFixture[str], header: str, options: list[str], message: str
) -> None:
    (here / "t.csv").write_text(f"{header}\nin/cat/1.png,1,2\n")
    if header.startswith("path,image"):
        options = ["--image-column", "path", *options]
    assert message in build_fails(["t.csv", "out", *options], capsys)
    assert not (here / "out").exists()


def parsed(*options: str) -> BuildOptions:
    return parse_options(["in", "out", *options])


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            [],
            {
                "policy": ShardPolicy(num_bytes=150_000_000),
                "seed": 0,
                "check": "header",
                "name": "out",
                "version": "1.0.0",
                "beam_args": (),
            },
        ),
        (["--shard-size", "1.5GiB"], {"policy": ShardPolicy(num_bytes=3 * 2**29)}),
        (["--shard-size", "12"], {"policy": ShardPolicy(num_bytes=12)}),
        (["--records-per-shard", "7"], {"policy": ShardPolicy(num_records=7)}),
        (
            ["--shard-count", "7", "--shard-count-multiple-of", "4"],
            {"policy": ShardPolicy(num_shards=7, multiple_of=4)},
        ),
        (
            ["--shard-count-multiple-of", "4"],
            {"policy": ShardPolicy(num_bytes=150_000_000, multiple_of=4)},
        ),
        (["--split", "a=.5,b=.5"], {"split": SplitFractions(("a", "b"), (0.5, 0.5))}),
        (["--seed", "-3"], {"seed": -3}),
        (["--max-reject-fraction", "0"], {"max_reject_fraction": 0.0}),
        (["--max-reject-fraction", "1"], {"max_reject_fraction": 1.0}),
        (["--threads", "3"], {"threads": 3}),
        (["--threads", "1"], {"threads": 1}),
        (
            ["--runner=FlinkRunner", "--flink_master=h:1", "--shared-filesystem"],
            {"shared_filesystem": True},
        ),
        (["--name", "a_1"], {"name": "a_1"}),
        (["--runner", "DirectRunner"], {"beam_args": ("--runner", "DirectRunner")}),
        (
            ["--runner=DirectRunner", "--project", "p"],
            {"beam_args": ("--runner=DirectRunner", "--project", "p")},
        ),
        (
            ["--experiments=a", "--experiments=b"],
            {"beam_args": ("--experiments=a", "--experiments=b")},
        ),
        (
            ["--direct_num_workers", "2", "--seed", "4"],
            {"beam_args": ("--direct_num_workers", "2"), "seed": 4},
        ),
        (
            ["--runner=FlinkRunner", "--only_its_server_knows", "1"],
            {"beam_args": ("--runner=FlinkRunner", "--only_its_server_knows", "1")},
        ),
        # Beam's --labels is key=value, ours a path.
        (["--labels", "t.csv"], {"labels": "t.csv", "beam_args": ()}),
        (["--labels=t.csv"], {"labels": "t.csv", "beam_args": ()}),
        (["--labels", "a=b.csv"], {"labels": "a=b.csv", "beam_args": ()}),
        (
            ["--labels=airflow-version=2-10"],
            {"labels": None, "beam_args": ("--labels=airflow-version=2-10",)},
        ),
        (["--labels", "team=vision"], {"labels": None, "beam_args": ("--labels", "team=vision")}),
        (
            ['--labels={"team": "vision"}'],
            {"labels": None, "beam_args": ('--labels={"team": "vision"}',)},
        ),
        (
            ["--labels", "t.csv", "--labels=team=vision"],
            {"labels": "t.csv", "beam_args": ("--labels=team=vision",)},
        ),
    ],
)
def test_what_is_understood(options: list[str], expected: dict[str, Any]) -> None:
    found = parsed(*options)
    assert {name: getattr(found, name) for name in expected} == expected


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("out", "out"),
        ("/data/My Flowers/", "my_flowers"),
        ("2024-run", "dataset_2024_run"),
        ("é", "dataset"),
        ("x/..", None),
    ],
)
def test_names_from_the_output(output: str, name: str | None) -> None:
    assert parse_options(["in", f"elsewhere/{output}" if output[0] != "/" else output]).name == (
        name or "elsewhere"
    )


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "argv",
    [
        ["--input", "in", "--output=out", "--seed", "3"],
        ["--runner", "DirectRunner", "--seed=3", "--output", "out", "--input=in"],
    ],
)
def test_places_may_be_named(argv: list[str]) -> None:
    found = parse_options(argv)
    assert (found.input, found.output, found.seed) == ("in", "out", 3)


@pytest.mark.usefixtures("here")
def test_settings_tell_builds_apart() -> None:
    """What a resumed build compares: every option that decides a byte, and no place or machine."""
    base = parsed().settings
    for options in (
        ["--seed", "1"], ["--shard-size", "1MB"], ["--shard-count", "2"], ["--records-per-shard", "2"], ["--shard-count-multiple-of", "2"],
        ["--split", "a=1"], ["--encode", "jpeg"], ["--encode", "jpeg", "--quality", "80"], ["--encode", "jpeg", "--resize", "8x8"],
        ["--check", "decode"], ["--feature-names", "model-garden"], ["--name", "other"], ["--version", "2.0.0"], ["--writer", "beam"],
        ["--label-column", "x"], ["--split", "a=5,b=rest"], ["--split", "a=1", "--stratify"], ["--split-ids", "a=in/cat/1.png"],
        ["--duplicates", "drop"],
    ):  # fmt: skip
        assert parsed(*options).settings != base, options
    for options in (
        ["--threads", "9"],
        ["--if-exists", "error"],
        ["--max-reject-fraction", "0.5"],
        ["--runner", "DirectRunner"],
    ):
        assert parsed(*options).settings == base, options
    assert (
        parsed("--split-ids", "a=x.txt").settings
        == parsed("--split-ids", "a=elsewhere/x.txt").settings
    )
    elsewhere = parse_options(["in/cat", "elsewhere/out"])
    assert elsewhere.settings == base


@pytest.mark.usefixtures("here")
def test_options_made_in_python_are_checked_too() -> None:
    with pytest.raises(UsageError, match="--version '1' must be three numbers"):
        BuildOptions(input="in", output="out", name="x", version="1")


def test_help_names_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse_options(["--help"])
    text = capsys.readouterr().out
    assert left.value.code == 0
    for option in (
        "--labels",
        "--size-column",
        "--split",
        "--shard-size",
        "--encode",
        "--if-exists",
        "--writer",
        "--threads",
    ):
        assert option in text


def test_help_lists_the_installed_formats_and_nothing_else_loads_them() -> None:
    """In a process of its own: formats of other packages may take long to import, or fail."""
    script = """
import sys
from pipelines.arguments import make_parser
from transforms.inputs.detection import known_formats
make_parser("build").parse_known_args(["in", "out"])
assert not known_formats.cache_info().misses, "loaded by parsing"
text = make_parser("build").format_help()
listed = dict(line.split(maxsplit=1) for line in text.partition("input formats, ")[2].splitlines()[1:])
assert listed["folder"].startswith("a folder of images, of class folders"), text
assert listed["table"].startswith("a .csv"), text
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
