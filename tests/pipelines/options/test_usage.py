"""Wrong command lines: one line and exit code 2, before anything is read or written."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from shardwright.pipelines.commands import build
from tests.support.helpers import make_files


def cases(text: str) -> list[tuple[str, str]]:
    """Parse `OPTIONS => MESSAGE` lines; an indented line continues the one above."""
    lines = re.sub(r"\n +", " ", text.strip()).splitlines()
    return [
        (options, message) for options, _, message in (line.partition(" => ") for line in lines)
    ]


WRONG_VALUES = cases("""
--runner=DataflowRunner => INPUT in is on this machine, and the workers of DataflowRunner may be
    on others: give gs:// or s3://
--runner=DataflowRunner --shared-filesystem => --shared-filesystem: workers of Dataflow have no
    shared file system
--runner=PortableRunner => --runner PortableRunner needs a job server: give its address with
    --job_endpoint
--runner=FlinkRunner --flink_master=h:1 => give gs:// or s3://, or --shared-filesystem if all
    workers see this path
--output=x => --output needs --input: give both, or INPUT and OUTPUT without names
--records-per-shard 0 => --records-per-shard must be at least 1, got 0
--records-per-shard 1.5 => argument --records-per-shard: invalid int value: '1.5'
--shard-count 0 => --shard-count must be at least 1, got 0
--shard-size 0 => --shard-size '0' is not a size: write a number above 0 with a unit, such as 150MB
    or 128MiB
--shard-size 0.0001kB => --shard-size '0.0001kB' is less than one byte
--shard-size=-5MB => --shard-size '-5MB' is not a size
--shard-size '' => --shard-size '' is not a size
--shard-size 1MB --records-per-shard 5 => give one of --shard-size, --records-per-shard and
    --shard-count, not 2
--shard-count 2 --records-per-shard 5 => not 2 (--records-per-shard, --shard-count)
--shard-count-multiple-of 0 => --shard-count-multiple-of must be at least 1, got 0
--shard-count-multiple-of 8 --records-per-shard 5 => --shard-count-multiple-of cannot be combined
    with --records-per-shard
--split train=0.8 => --split train=0.8: fractions must each be above 0 and add up to 1
--split train=a => --split: 'a' in 'train=a' is not a number
--split '' => --split: '' is not a valid split name
--split test=3,train=4 => exact numbers need one split with the rest, as in
    test=5000,train=rest
--split test=5,train=rest,x=rest => --split: exactly one split must get the rest, got 2; use for
    example test=5000,train=rest
--split test=0.5,x=5,train=rest => use either fractions below 1 or whole numbers of records
--labels a.csv --labels=b.csv => --labels is given more than once: give one table with all labels
--stratify => --stratify needs --split, such as --split train=0.8,test=0.2
--split-ids nowhere.csv => --split-ids nowhere.csv: there is no file {here}/nowhere.csv
--split-ids in/cat/1.png => --split-ids in/cat/1.png has ids only: give their split, as in
    --split-ids test=in/cat/1.png
--split-ids test=in/cat/1.png --split train --group-column x => --split-ids assigns single
    images, so --split could divide groups: leave --group-column or --split out
--duplicates some => argument --duplicates: invalid choice: 'some'
--seed x => argument --seed: invalid int value: 'x'
--encode gif => argument --encode: invalid choice: 'gif'
--encode raw => --encode 'raw' needs one shape for all images, got no resize: give a width and
    height
--resize 224x224 => --encode 'keep' stores files unchanged, got resize 224x224: choose jpeg, png
    or raw
--resize 224 --encode jpeg => --resize must be WIDTHxHEIGHT in pixels, such as 224x224, got '224'
--resize 0x5 --encode jpeg => --resize must be WIDTHxHEIGHT
--resize -1x5 --encode jpeg => argument --resize: expected one argument
--resize 99999x1 --encode jpeg => --resize must be two whole numbers of pixels (width, height) from
    1 to 65,500
--resize 60000x60000 --encode png => --resize must have at most
--quality 0 => --quality must be a whole number from 1 to 100, got 0: 90 is the default
--quality 101 => --quality must be a whole number from 1 to 100, got 101
--check deep => argument --check: invalid choice: 'deep'
--max-reject-fraction 1.5 => --max-reject-fraction must be from 0 to 1, got 1.5
--max-reject-fraction -0.1 => --max-reject-fraction must be from 0 to 1, got -0.1
--max-reject-fraction nan => --max-reject-fraction must be from 0 to 1, got nan
--max-reject-fraction 5% => argument --max-reject-fraction: invalid float value: '5%'
--feature-names mine => argument --feature-names: invalid choice: 'mine'
--name My-Set => --name must be lower-case letters, digits and underscores and start with a letter,
    got 'My-Set'
--name Über => a letter, got 'Über'
--version 1.0 => --version must be three numbers, such as 1.0.0, got '1.0'
--version v1.0.0 => --version must be three numbers
--if-exists merge => argument --if-exists: invalid choice: 'merge'
--writer fast => argument --writer: invalid choice: 'fast'
--threads 0 => --threads must be at least 1, got 0
--class-names nowhere.txt => --class-names nowhere.txt cannot be read
--labels nowhere.csv => --labels nowhere.csv does not exist: check its spelling
--labels in/cat/1.png => --labels {here}/in/cat/1.png is a file without a table's extension
--labels in => --labels {here}/in is a folder; give a .csv, .tsv, .jsonl or .parquet table
--labels-key stem => --labels-key stem needs --labels
--labels-key name => argument --labels-key: invalid choice: 'name'
--input-format lmdb => --input-format 'lmdb' is unknown: choose one of
--input-format table => INPUT {here}/in holds no table; a table's name ends in
--label-column x => --label-column needs a table, but INPUT {here}/in is a folder
--runner Foo => Beam rejects its options: Unexpected pipeline runner: Foo
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
in in => OUTPUT in is inside INPUT in, so its shards would be read as input: choose an OUTPUT
    outside INPUT
in in/out => OUTPUT in/out is inside INPUT in
in ./x/../in/out => OUTPUT ./x/../in/out is inside INPUT in
in link => OUTPUT link is inside INPUT in
in link/deep/out => OUTPUT link/deep/out is inside INPUT in
link in/out => OUTPUT in/out is inside INPUT link
file://{here}/in in/out => is inside INPUT file://
in/cat in => INPUT in/cat is inside OUTPUT in: choose another OUTPUT
in/t.csv in => INPUT in/t.csv is inside OUTPUT in
in / => INPUT in is inside OUTPUT /
/ out => OUTPUT out is inside INPUT /
nothing out => INPUT nothing does not exist: check its spelling
in/cat/1.png out => is a file without a table's extension
ftp://host/in out => 'ftp://host/in': ftp:// addresses are not supported; use a local path or one of
    s3://, gs://
in ftp://host/out => 'ftp://host/out': ftp:// addresses are not supported; use a local path or one
    of s3://, gs://
in s3:// => 's3://' has no bucket: write s3://BUCKET/PREFIX
gs:///in out => 'gs:///in' has no bucket: write gs://BUCKET/PREFIX
in s3://bucket/a//b => 's3://bucket/a//b' has an empty, '.' or '..' part in its name
s3://bucket/in/ s3://bucket/in/out => OUTPUT s3://bucket/in/out is inside INPUT s3://bucket/in/
s3a://bucket s3://bucket/out => OUTPUT s3://bucket/out is inside INPUT s3a://bucket
gs://bucket/in/cat gs://bucket/in => INPUT gs://bucket/in/cat is inside OUTPUT gs://bucket/in:
    choose another OUTPUT
in => missing OUTPUT: shardwright build INPUT OUTPUT [options]
--seed 1 => missing INPUT, OUTPUT: shardwright build INPUT OUTPUT [options]
""")
WRONG_COLUMNS = cases("""
path,image,x --image-column path => two features have the name 'image': rename one in the input
image,id,x --id-column x => two features have the name 'id'
image,label,x --label-column x => column 'label' does not hold the labels, but the labels become
image,a,a/b => feature 'a' is also the folder of 'a/b': rename one of the two columns
image,id/x,label --id-column label => feature 'id' is also the folder of 'id/x'
image,label,image/encoded --feature-names model-garden => two features have the name 'image/encoded'
image,label,split --split a=1 => --split draws splits, but INPUT already states them
image,label,x --label-column class => --label-column 'class' is not in
img_name,b,c => has the columns 'img_name', 'b', 'c': set --image-column to the one with
    the image paths
""")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with an INPUT called `in`."""
    make_files(tmp_path / "in", "cat/1.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def build_fails(argv: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run the command, which must end as wrong usage; return the last line of stderr."""
    code = build.main(shlex.split(argv))
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, ""), captured.err
    assert "Traceback" not in captured.err
    assert not Path("out").exists()
    assert "usage:" not in captured.err
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
    told = f"{name} is not an option of shardwright or Beam{';' * bool(hint)}{hint}"
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
