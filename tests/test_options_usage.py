"""Wrong command lines: one line and exit code 2, before anything is read or written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pipelines import build_dataset
from tests.helpers import make_files


def cases(text: str) -> list[tuple[str, str]]:
    """Parse `OPTIONS => MESSAGE` lines; an indented line continues the one above."""
    lines = re.sub(r"\n +", " ", text.strip()).splitlines()
    return [
        (options, message) for options, _, message in (line.partition(" => ") for line in lines)
    ]


WRONG_VALUES = cases("""
--runner=DataflowRunner => INPUT in is on this machine, and the workers of DataflowRunner may be
    on others: give gs:// or s3://
--runner=DataflowRunner --shared-filesystem => --shared-filesystem: workers of Dataflow share no
    file system with anybody
--runner=PortableRunner => --runner PortableRunner submits to a job server: give its address by
    --job_endpoint
--runner=FlinkRunner --flink_master=h:1 => give gs:// or s3://, or --shared-filesystem where all
    workers see this path
--output=x => --output is given without --input: give both, or INPUT and OUTPUT without these names
--records-per-shard 0 => --records-per-shard is 0; it must be 1 or more
--records-per-shard 1.5 => argument --records-per-shard: invalid int value: '1.5'
--shard-count 0 => --shard-count is 0; it must be 1 or more
--shard-size 0 => --shard-size '0' is no size; write a number above 0 with a unit, such as 150MB or
    128MiB
--shard-size 0.0001kB => --shard-size '0.0001kB' is less than a byte
--shard-size=-5MB => --shard-size '-5MB' is no size
--shard-size '' => --shard-size '' is no size
--shard-size 1MB --records-per-shard 5 => give one of --shard-size, --records-per-shard and
    --shard-count, not 2
--shard-count 2 --records-per-shard 5 => not 2 (--records-per-shard, --shard-count)
--shard-count-multiple-of 0 => --shard-count-multiple-of is 0; it must be 1 or more
--shard-count-multiple-of 8 --records-per-shard 5 => --shard-count-multiple-of cannot be kept with
    --records-per-shard
--split train=0.8 => --split train=0.8: fractions must each be above 0 and add up to 1
--split train=a => --split: 'a' in 'train=a' is no number
--split '' => --split: '' is no split name
--split test=3,train=4 => exact numbers need a split that gets the rest, as in test=5000,train=rest
--split test=5,train=rest,x=rest => --split: 2 splits are to get the rest; give one, as in
    test=5000,train=rest
--split test=0.5,x=5,train=rest => give fractions below 1, or whole numbers of records, and not both
--stratify => --stratify says how splits are drawn, and none are: give --split, such as
    --split train=0.8,test=0.2
--split-ids nowhere.csv => --split-ids nowhere.csv: there is no file {here}/nowhere.csv
--split-ids in/cat/1.png => --split-ids in/cat/1.png lists ids alone: name their split, as in
    --split-ids test=in/cat/1.png
--split-ids test=in/cat/1.png --split train --group-column x => --split-ids puts single images in
    splits, so --split could tear groups: leave --group-column or --split out
--duplicates some => argument --duplicates: invalid choice: 'some'
--seed x => argument --seed: invalid int value: 'x'
--encode gif => argument --encode: invalid choice: 'gif'
--encode raw => --encode 'raw' needs one shape for all images, got no resize: give a width and
    height
--resize 224x224 => --encode 'keep' stores files as they are, got resize 224x224: choose jpeg, png,
    raw or tensor
--resize 224 --encode jpeg => --resize '224' is no size; write width x height in pixels, such as
    224x224
--resize 0x5 --encode jpeg => --resize '0x5' is no size
--resize -1x5 --encode jpeg => argument --resize: expected one argument
--resize 99999x1 --encode jpeg => --resize must be two whole numbers of pixels (width, height) from
    1 to 65,500
--resize 60000x60000 --encode png => --resize must ask for at most
--quality 0 => --quality must be a whole number from 1 to 100, got 0: 90 is the default
--quality 101 => --quality must be a whole number from 1 to 100, got 101
--check deep => argument --check: invalid choice: 'deep'
--max-reject-fraction 1.5 => --max-reject-fraction is 1.5; it must be from 0 to 1
--max-reject-fraction -0.1 => --max-reject-fraction is -0.1; it must be from 0 to 1
--max-reject-fraction nan => --max-reject-fraction is nan; it must be from 0 to 1
--max-reject-fraction 5% => argument --max-reject-fraction: invalid float value: '5%'
--feature-names mine => argument --feature-names: invalid choice: 'mine'
--name My-Set => --name 'My-Set' must be lower-case letters, digits and underscores, and start with
    a letter
--name Über => --name 'Über' must be lower-case
--version 1.0 => --version '1.0' must be three numbers, such as 1.0.0
--version v1.0.0 => --version 'v1.0.0' must be three numbers
--if-exists append => argument --if-exists: invalid choice: 'append'
--writer fast => argument --writer: invalid choice: 'fast'
--threads 0 => --threads is 0; it must be 1 or more
--class-names nowhere.txt => --class-names nowhere.txt cannot be read
--labels nowhere.csv => --labels nowhere.csv does not exist
--labels in/cat/1.png => --labels {here}/in/cat/1.png is a file, and its name is not a table's
--labels in => --labels {here}/in is a folder; give a .csv, .tsv, .jsonl or .parquet table
--labels-key stem => --labels-key stem says what the rows of --labels go by: give --labels, or leave
    it out
--labels-key name => argument --labels-key: invalid choice: 'name'
--input-format lmdb => --input-format 'lmdb' is not known; give one of
--input-format table => INPUT {here}/in names no file whose name is a table's
--label-column x => --label-column is for a table, and INPUT {here}/in is a folder
--runner Foo => Beam refuses its options: Unexpected pipeline runner: Foo
""")
# Abbreviations are none of ours: they would swallow options of Beam.
UNKNOWN_OPTIONS = cases("""
--record-per-shard 5 => '--record-per-shard'; did you mean --records-per-shard?
--records-per 5 => '--records-per'; did you mean --records-per-shard?
--runer DirectRunner => '--runer'; did you mean --runner?
--shuffle => '--shuffle'
third => 'third'; see `shardwright build --help`
--runner DirectRunner third => 'third'
-x => '-x'
""")
WRONG_PLACES = cases("""
in in => OUTPUT in is inside INPUT in: its shards would be taken for input; give a place outside
in in/out => OUTPUT in/out is inside INPUT in
in ./x/../in/out => OUTPUT ./x/../in/out is inside INPUT in
in link => OUTPUT link is inside INPUT in
in link/deep/out => OUTPUT link/deep/out is inside INPUT in
link in/out => OUTPUT in/out is inside INPUT link
file://{here}/in in/out => is inside INPUT file://
in/cat in => INPUT in/cat is inside OUTPUT in: give an OUTPUT of its own
in/t.csv in => INPUT in/t.csv is inside OUTPUT in
in / => INPUT in is inside OUTPUT /
/ out => OUTPUT out is inside INPUT /
nothing out => INPUT nothing does not exist
in/cat/1.png out => is a file, and its name is not a table's
ftp://host/in out => 'ftp://host/in': ftp:// addresses are not read or written; give a local path or
    one of s3://, gs://
in ftp://host/out => 'ftp://host/out': ftp:// addresses are not read or written; give a local path
    or one of s3://, gs://
in s3:// => 's3://' names no bucket: write s3://BUCKET/PREFIX
gs:///in out => 'gs:///in' names no bucket: write gs://BUCKET/PREFIX
in s3://bucket/a//b => 's3://bucket/a//b' has an empty, '.' or '..' part in its name
s3://bucket/in/ s3://bucket/in/out => OUTPUT s3://bucket/in/out is inside INPUT s3://bucket/in/
s3a://bucket s3://bucket/out => OUTPUT s3://bucket/out is inside INPUT s3a://bucket
gs://bucket/in/cat gs://bucket/in => INPUT gs://bucket/in/cat is inside OUTPUT gs://bucket/in: give
    an OUTPUT of its own
in => the following arguments are required: OUTPUT
--seed 1 => the following arguments are required: INPUT, OUTPUT
""")
WRONG_COLUMNS = cases("""
path,image,x --image-column path => two features are called 'image': rename the table's column of
    that name
image,id,x --id-column x => two features are called 'id'
image,label,x --label-column x => two features are called 'label'
image,a,a/b => feature 'a' is also the folder of 'a/b': rename one of the two columns
image,id/x,label --id-column label => feature 'id' is also the folder of 'id/x'
image,label,image/encoded --feature-names model-garden => two features are called 'image/encoded'
image,label,split --split a=1 => --split draws splits, but INPUT already states them
image,label,x --label-column class => --label-column 'class' is not in
img_name,b,c => has the columns 'img_name', 'b', 'c': name the one with the image paths by
    --image-column
""")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with an INPUT called `in`."""
    make_files(tmp_path / "in", "cat/1.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def build_fails(argv: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run the command, which must end as wrong usage; return the last line of stderr."""
    try:
        code = build_dataset.main(shlex.split(argv))
    except SystemExit as error:  # argparse leaves so
        code = error.code  # type: ignore[assignment]
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, ""), captured.err
    assert "Traceback" not in captured.err
    assert not Path("out").exists()
    return captured.err.strip().splitlines()[-1]


@pytest.mark.parametrize(("options", "message"), WRONG_VALUES)
def test_wrong_values(
    here: Path, capsys: pytest.CaptureFixture[str], options: str, message: str
) -> None:
    assert message.format(here=here) in build_fails(f"in out {options}", capsys)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("options", "message"), UNKNOWN_OPTIONS)
def test_unknown_options(capsys: pytest.CaptureFixture[str], options: str, message: str) -> None:
    name, _, hint = message.partition(";")
    told = f"{name} is no option of shardwright or of Beam{';' * bool(hint)}{hint}"
    assert told in build_fails(f"in out {options}", capsys)


@pytest.mark.parametrize(("places", "message"), WRONG_PLACES)
def test_wrong_places(
    here: Path, capsys: pytest.CaptureFixture[str], places: str, message: str
) -> None:
    (here / "link").symlink_to("in")
    (here / "in" / "t.csv").write_text("image\ncat/1.png\n")
    assert message in build_fails(places.format(here=here), capsys)


@pytest.mark.parametrize(("given", "message"), WRONG_COLUMNS)
def test_options_that_do_not_fit_the_table(
    here: Path, capsys: pytest.CaptureFixture[str], given: str, message: str
) -> None:
    header, _, options = given.partition(" ")
    (here / "t.csv").write_text(f"{header}\nin/cat/1.png,1,2\n")
    assert message in build_fails(f"t.csv out {options}", capsys)
