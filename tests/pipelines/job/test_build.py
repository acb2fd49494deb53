"""A build's configuration, from the options and a look at INPUT."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from shardwright.errors import BuildError, UsageError
from shardwright.format.schema import FeatureKind
from shardwright.pipelines.job.build import BuildJob, describe_job, prepare_job
from shardwright.pipelines.options.build import parse_options, shown_command
from tests.support.build_helpers import png_of, write_table

COLUMNS = {"age": 3, "good": True, "score": 0.5, "note": "n", "tags": ["a"], "boxes": [0.5]}
ROW = {"path": "a.png", "label": "x", **COLUMNS}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "in/x").mkdir(parents=True)
    (tmp_path / "in/x/a.png").write_bytes(png_of(0))
    return write_table(tmp_path / "t.jsonl", [ROW])


def job_of(source: Path, *options: str) -> BuildJob:
    return describe_job(parse_options([str(source), str(source.parent / "out"), *options]))


def test_columns_become_features_of_their_kind(table: Path) -> None:
    features = job_of(table).schema.features
    assert [feature.name for feature in features[:3]] == ["image", "id", "label"]
    found = {feature.name: (feature.kind, feature.is_list) for feature in features}
    assert {name: found[name] for name in COLUMNS} == {
        "age": (FeatureKind.INT64, False),
        "good": (FeatureKind.INT64, False),
        "score": (FeatureKind.FLOAT32, False),
        "note": (FeatureKind.BYTES, False),
        "tags": (FeatureKind.BYTES, True),
        "boxes": (FeatureKind.FLOAT32, True),
    }


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("in out --split train=0.8 --labels-key id", "in out --split train=0.8 --labels-key id"),
        ("in out --labels-key=id", "in out --labels-key=id"),
        ("in --storage-option secret_access_key=S", "in --storage-option 'secret_access_key=***'"),
        ("in --storage-option=s3://b:token=S=", "in '--storage-option=s3://b:token=***'"),
        ("in --s3_session_token S --seed 3", "in --s3_session_token '***' --seed 3"),
        ("in --s3_access_key_id=S out", "in '--s3_access_key_id=***' out"),
        ("https://me:S@host/x?sig=S out", "'https://***@host/x?***' out"),
        ("/data/key=5/images out", "/data/key=5/images out"),
    ],
)
def test_a_command_is_shown_without_its_secrets(words: str, shown: str) -> None:
    assert shown_command(words.split()) == shown
    assert shlex.split(shown)


@pytest.mark.parametrize(
    ("options", "same"),
    [
        ("--encode png", False),
        ("--check decode", False),
        ("--feature-names model-garden", False),
        ("--encode jpeg --quality 7", False),
        ("--seed 3", True),
        ("--threads 9", True),
        ("--if-exists overwrite", True),
        ("--version 2.0.0", True),
    ],
)
def test_the_digest_tells_the_bytes_of_records_apart(table: Path, options: str, same: bool) -> None:
    found = job_of(table, *options.split()).digest_settings
    assert (found == job_of(table).digest_settings) == same


def test_the_plan_is_cut_finer_for_workers_elsewhere(table: Path) -> None:
    elsewhere = ("--runner=FlinkRunner", "--flink_master=host:8081", "--shared-filesystem")
    assert job_of(table).num_buckets < job_of(table, *elsewhere).num_buckets


def test_raw_images_of_one_size_have_a_shape(table: Path) -> None:
    image = job_of(table, "--encode", "raw", "--resize", "6x4").schema.image
    assert (image.shape, image.encoding) == ((4, 6, 3), "raw")


def test_provenance_names_input_and_packages(table: Path) -> None:
    provenance = job_of(table).publication.provenance
    assert provenance["input"] == str(table)
    assert provenance["command"].startswith(f"shardwright build {table} ")
    assert provenance["packages"]["apache-beam"]
    assert provenance["runner"] == "FnApiRunner"
    assert not {"host", "user", "pid"} & set(provenance)


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        ("in", "--labels in", "is a folder; give a .csv, .tsv, .jsonl or .parquet table"),
        ("in", "--labels t.jsonlx", "does not exist"),
        ("in", "--class-names in", "cannot be read"),
        ("in", "--class-names in/x/a.png", "cannot be read"),
        ("in", "--labels t.jsonl --size-column age", "--size-column needs a table"),
        ("t.jsonl", "--input-format folder", "is not a folder"),
        ("splits", "--split train=0.5,test=0.5", "INPUT already states them"),
        (
            "splits",
            "--split-ids test=ids.txt",
            "--split-ids lists splits, but INPUT already states them",
        ),
    ],
)
def test_options_are_checked_against_the_input(
    table: Path, monkeypatch: pytest.MonkeyPatch, source: str, options: str, said: str
) -> None:
    monkeypatch.chdir(table.parent)
    for split in ("train", "test"):
        Path("splits", split).mkdir(parents=True)
    Path("ids.txt").write_text("1\n")
    with pytest.raises(UsageError, match=said):
        job_of(Path(source), *options.split())


def test_labels_of_a_table(table: Path) -> None:
    """A second table replaces columns of the same name, and adds the others."""
    (table.parent / "second.csv").write_text("id,label,extra\na.png,7,0.5\n")
    job = job_of(table, "--labels", str(table.parent / "second.csv"))
    names = [feature.name for feature in job_of(table).schema.features]
    assert [feature.name for feature in job.schema.features] == [*names, "extra"]
    assert job.label_table is not None
    assert (job.label_table.layout.root, job.label_table.layout.key) == (str(table.parent), "id")


def test_columns_are_those_of_the_labels_but_for_sizes(table: Path) -> None:
    (table.parent / "second.csv").write_text("file_name,kind\na.png,7\n")
    options = f"--labels {table.parent}/second.csv --label-column kind --size-column age"
    job = job_of(table, *options.split())
    assert job.source.name == "table"
    assert job.label_table is not None
    source, labels = job.source.layout, job.label_table.layout
    assert (source.label, source.size) == ("label", "age")
    assert (labels.image, labels.label, labels.size) == ("file_name", "kind", None)


@pytest.mark.parametrize(("options", "root"), [("", "in"), ("--image-root {here}/other", "other")])
def test_the_root_of_paths_of_labels(table: Path, options: str, root: str) -> None:
    here = table.parent
    labels = job_of(here / "in", "--labels", str(table), *options.format(here=here).split())
    assert labels.label_table is not None
    assert labels.label_table.layout.root == str(here / root)
    source = job_of(table, "--image-root", str(here / root)).source
    assert source.name == "table"
    assert source.layout.root == str(here / root)


def test_a_folder_as_forced_with_labels_and_splits(table: Path) -> None:
    options = f"--input-format folder --labels {table} --split train=1"
    job = job_of(table.parent / "in", *options.split())
    assert job.source.name == "folder"
    assert job.label_table is not None
    assert not job.splits_given
    (table.parent / "splits" / "train").mkdir(parents=True)
    assert job_of(table.parent / "splits").splits_given


def test_preparing_looks_at_output_and_describing_does_not(table: Path) -> None:
    (table.parent / "out").touch()
    assert job_of(table).options.name == "out"
    with pytest.raises(BuildError, match="is a file; give a folder"):
        prepare_job(parse_options([str(table), str(table.parent / "out")]))
