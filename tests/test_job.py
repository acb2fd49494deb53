"""A build's configuration: what follows from the options and from a look at INPUT."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.job import BuildJob, describe_job, prepare_job
from pipelines.options import parse_options
from shardwright.errors import BuildError, ShardwrightError, UsageError
from shardwright.schema import FeatureKind
from tests.build_helpers import png_of, write_table

ROW = {"path": "a.png", "label": "x", "age": 3, "good": True, "score": 0.5, "note": "n", "tags": ["a"], "boxes": [0.5]}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "in/x").mkdir(parents=True)
    (tmp_path / "in/x/a.png").write_bytes(png_of(0))
    return write_table(tmp_path / "t.jsonl", [ROW])


def job_of(source: Path, *options: str) -> BuildJob:
    return describe_job(parse_options([str(source), str(source.parent / "out"), *options]))


def test_columns_become_features_of_their_kind(table: Path) -> None:
    features = {feature.name: (feature.kind, feature.is_list) for feature in job_of(table).schema.features}
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
    with pytest.raises(UsageError, match="two features are called 'image': rename the table's column"):
        job_of(table, "--image-column", "path")


@pytest.mark.parametrize(
    "options",
    [("--encode", "png"), ("--check", "decode"), ("--feature-names", "model-garden"), ("--encode", "jpeg", "--quality", "7")],
)
def test_what_decides_a_shards_bytes_is_in_its_digest(table: Path, options: tuple[str, ...]) -> None:
    assert job_of(table, *options).digest_settings != job_of(table).digest_settings


@pytest.mark.parametrize("options", [("--seed", "3"), ("--threads", "9"), ("--if-exists", "overwrite"), ("--version", "2.0.0")])
def test_what_decides_no_byte_of_a_record_is_not(table: Path, options: tuple[str, ...]) -> None:
    assert job_of(table, *options).digest_settings == job_of(table).digest_settings


def test_the_plan_is_cut_finer_for_workers_elsewhere(table: Path) -> None:
    assert job_of(table).num_buckets < job_of(table, "--runner=DataflowRunner").num_buckets


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
def test_options_are_checked_against_the_input(table: Path, options: tuple[str, ...], said: str | None) -> None:
    folder = table.parent / "in"
    places = {"table": table, "folder": folder, "image": folder / "x/a.png"}
    argv = [option.format(**places) for option in options]
    if said is None:
        assert job_of(folder, *argv).label_table is not None
    else:
        with pytest.raises(UsageError, match=said):
            job_of(folder, *argv)


def test_labels_beside_a_table_are_one_too_many(table: Path) -> None:
    with pytest.raises(UsageError, match="--labels goes with a folder INPUT"):
        job_of(table, "--labels", str(table))


def test_splits_are_stated_or_drawn_and_never_both(tmp_path: Path) -> None:
    for split in ("train", "test"):
        (tmp_path / "in" / split).mkdir(parents=True)
    assert job_of(tmp_path / "in").splits_given
    with pytest.raises(UsageError, match="INPUT already states them"):
        job_of(tmp_path / "in", "--split", "train=0.5,test=0.5")


def test_preparing_looks_at_output_and_describing_does_not(table: Path) -> None:
    (table.parent / "out").touch()
    assert job_of(table).options.name == "out"
    with pytest.raises(BuildError, match="is a file; give a folder") as caught:
        prepare_job(parse_options([str(table), str(table.parent / "out")]))
    assert isinstance(caught.value, ShardwrightError)
