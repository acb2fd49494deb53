"""A build's configuration: what follows from the options and from a look at INPUT."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.job import BuildJob, describe_job, prepare_job
from pipelines.options import parse_options
from shardwright.errors import BuildError, ShardwrightError, UsageError
from shardwright.schema import FeatureKind
from tests.build_helpers import png_of, write_table
from transforms.inputs.folders.folder_source import FolderSource
from transforms.inputs.tables.table_source import TableSource

ROW = {
    "path": "a.png",
    "label": "x",
    "age": 3,
    "good": True,
    "score": 0.5,
    "note": "n",
    "tags": ["a"],
    "boxes": [0.5],
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "in/x").mkdir(parents=True)
    (tmp_path / "in/x/a.png").write_bytes(png_of(0))
    return write_table(tmp_path / "t.jsonl", [ROW])


def job_of(source: Path, *options: str) -> BuildJob:
    return describe_job(parse_options([str(source), str(source.parent / "out"), *options]))


def test_columns_become_features_of_their_kind(table: Path) -> None:
    features = {
        feature.name: (feature.kind, feature.is_list) for feature in job_of(table).schema.features
    }
    assert list(features)[:3] == ["image", "id", "label"]
    assert {name: features[name] for name in ROW if name not in ("path", "label")} == {
        "age": (FeatureKind.INT64, False),
        "good": (FeatureKind.INT64, False),
        "score": (FeatureKind.FLOAT32, False),
        "note": (FeatureKind.BYTES, False),
        "tags": (FeatureKind.BYTES, True),
        "boxes": (FeatureKind.FLOAT32, True),
    }


def test_a_column_may_not_take_the_name_of_a_feature(table: Path) -> None:
    write_table(table, [{"path": "a.png", "image": "x"}])
    with pytest.raises(
        UsageError, match="two features are called 'image': rename the table's column"
    ):
        job_of(table, "--image-column", "path")


@pytest.mark.parametrize(
    "options",
    [
        ("--encode", "png"),
        ("--check", "decode"),
        ("--feature-names", "model-garden"),
        ("--encode", "jpeg", "--quality", "7"),
    ],
)
def test_what_decides_a_shards_bytes_is_in_its_digest(
    table: Path, options: tuple[str, ...]
) -> None:
    assert job_of(table, *options).digest_settings != job_of(table).digest_settings


@pytest.mark.parametrize(
    "options",
    [("--seed", "3"), ("--threads", "9"), ("--if-exists", "overwrite"), ("--version", "2.0.0")],
)
def test_what_decides_no_byte_of_a_record_is_not(table: Path, options: tuple[str, ...]) -> None:
    assert job_of(table, *options).digest_settings == job_of(table).digest_settings


def test_the_plan_is_cut_finer_for_workers_elsewhere(table: Path) -> None:
    assert (
        job_of(table).num_buckets
        < job_of(
            table, "--runner=FlinkRunner", "--flink_master=host:8081", "--shared-filesystem"
        ).num_buckets
    )


def test_raw_images_of_one_size_have_a_shape(table: Path) -> None:
    image = job_of(table, "--encode", "raw", "--resize", "6x4").schema.image
    assert (image.shape, image.encoding) == ((4, 6, 3), "raw")


def test_provenance_names_input_and_packages(table: Path) -> None:
    provenance = job_of(table).publication.provenance
    assert provenance["input"] == str(table)
    assert provenance["packages"]["apache-beam"]
    assert not {"host", "user", "pid"} & set(provenance)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--labels", "{table}", "--split", "train=1"), None),
        (("--labels", "{folder}"), "is a folder; give a .csv, .tsv, .jsonl or .parquet table"),
        (("--labels", "{table}x"), "does not exist"),
        (("--class-names", "{folder}"), "cannot be read"),
        (("--class-names", "{image}"), "cannot be read"),
    ],
)
def test_options_are_checked_against_the_input(
    table: Path, options: tuple[str, ...], said: str | None
) -> None:
    folder = table.parent / "in"
    places = {"table": table, "folder": folder, "image": folder / "x/a.png"}
    argv = [option.format(**places) for option in options]
    if said is None:
        assert job_of(folder, *argv).label_table is not None
    else:
        with pytest.raises(UsageError, match=said):
            job_of(folder, *argv)


def test_labels_of_a_table(table: Path) -> None:
    """A second table replaces what the first says in columns of the same name, and adds the others."""
    (table.parent / "second.csv").write_text("id,label,extra\na.png,7,0.5\n")
    job = job_of(table, "--labels", str(table.parent / "second.csv"))
    names = [feature.name for feature in job_of(table).schema.features]
    assert [feature.name for feature in job.schema.features] == [*names, "extra"]
    assert job.integer_labels
    assert job.label_table is not None
    assert (job.label_table.root, job.label_table.key) == (str(table.parent), "id")


def test_columns_are_those_of_the_labels_but_for_sizes(table: Path) -> None:
    (table.parent / "second.csv").write_text("file_name,kind\na.png,7\n")
    options = (
        "--labels",
        str(table.parent / "second.csv"),
        "--label-column",
        "kind",
        "--size-column",
        "age",
    )
    job = job_of(table, *options)
    assert isinstance(job.source, TableSource)
    assert job.label_table is not None
    assert (job.source.label, job.source.size) == ("label", "age")
    assert (job.label_table.image, job.label_table.label, job.label_table.size) == (
        "file_name",
        "kind",
        None,
    )
    with pytest.raises(UsageError, match="--size-column is for a table"):
        job_of(table.parent / "in", *options)


@pytest.mark.parametrize(
    ("options", "root"), [((), "in"), (("--image-root", "{here}/other"), "other")]
)
def test_where_paths_of_labels_start(table: Path, options: tuple[str, ...], root: str) -> None:
    here = table.parent
    job = job_of(
        here / "in", "--labels", str(table), *(option.format(here=here) for option in options)
    )
    assert job.label_table is not None
    assert job.label_table.root == str(here / root)


def test_an_image_root_of_a_table(table: Path) -> None:
    source = job_of(table, "--image-root", str(table.parent / "in")).source
    assert isinstance(source, TableSource)
    assert source.root == str(table.parent / "in")


def test_an_input_format_that_is_forced(table: Path) -> None:
    assert isinstance(job_of(table.parent / "in", "--input-format", "folder").source, FolderSource)
    with pytest.raises(UsageError, match="is no folder"):
        job_of(table, "--input-format", "folder")


def test_splits_are_stated_or_drawn_and_never_both(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / "in" / split).mkdir(parents=True)
    assert job_of(tmp_path / "in").splits_given
    with pytest.raises(UsageError, match="INPUT already states them"):
        job_of(tmp_path / "in", "--split", "train=0.5,test=0.5")
    (tmp_path / "ids.txt").write_text("1\n")
    with pytest.raises(UsageError, match="--split-ids lists splits, but INPUT already states them"):
        job_of(tmp_path / "in", "--split-ids", f"test={tmp_path}/ids.txt")


def test_preparing_looks_at_output_and_describing_does_not(table: Path) -> None:
    (table.parent / "out").touch()
    assert job_of(table).options.name == "out"
    with pytest.raises(BuildError, match="is a file; give a folder") as caught:
        prepare_job(parse_options([str(table), str(table.parent / "out")]))
    assert isinstance(caught.value, ShardwrightError)
