"""The other options, and `plan`, with INPUT, tables and OUTPUT in stores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines import plan_dataset
from tests.build_helpers import (
    build,
    hashes_of,
    make_images,
    manifest_of,
    png_of,
    reasons_of,
    stamps_of,
)
from tests.store_places import STORES, Kind, Place, Places

TINY = ("--name", "tiny", "--records-per-shard", "5")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("options") / "in", 20)


@pytest.fixture(scope="module")
def finished(images: Path, places: Places) -> dict[Kind, Place]:
    """A finished dataset in each store, for tests that leave it as it is."""
    made: dict[Kind, Place] = {}
    for kind in STORES:
        made[kind] = places.make(kind)
        assert build(images, made[kind].uri, *made[kind].args, *TINY) == 0
    return made


@pytest.mark.parametrize(
    ("kind", "options", "code", "said"),
    [
        (
            "s3",
            ("--if-exists", "error"),
            1,
            "already holds a dataset, and --if-exists error was given",
        ),
        ("gs", ("--seed", "1"), 1, "seed is 0 there and 1 here"),
        ("s3", ("--encode", "png"), 1, "--if-exists overwrite to replace it"),
        (
            "s3",
            ("--writer", "beam", "--if-exists", "overwrite"),
            2,
            "--writer beam writes to local folders only",
        ),
        ("s3", ("--storage-option", "regoin=x"), 2, "did you mean 'region'?"),
    ],
)
def test_what_is_refused_leaves_the_dataset_alone(
    images: Path,
    finished: dict[Kind, Place],
    capfd: pytest.CaptureFixture[str],
    kind: Kind,
    options: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    output = finished[kind]
    before = output.stamps()
    assert build(images, output.uri, *output.args, *TINY, *options) == code
    err = capfd.readouterr().err
    assert "Traceback" not in err
    assert said in err.splitlines()[-1]
    assert output.stamps() == before


@pytest.mark.parametrize("kind", STORES)
def test_beams_writer_is_refused(
    images: Path, places: Places, capfd: pytest.CaptureFixture[str], kind: Kind
) -> None:
    output = places.make(kind)
    assert build(images, output.uri, *output.args, *TINY, "--writer", "beam") == 2
    last = capfd.readouterr().err.splitlines()[-1]
    assert (
        f"--writer beam writes to local folders only, and OUTPUT is {output.uri}: use --writer planned"
        in last
    )
    assert output.names() == []


@pytest.mark.parametrize("kind", STORES)
def test_overwrite_rebuilds_and_leaves_nothing_stale(
    images: Path, places: Places, tmp_path: Path, kind: Kind
) -> None:
    output = places.make(kind)
    assert build(images, output.uri, *output.args, *TINY) == 0
    output.put("thesis.tex", b"mine")
    options = (
        "--name",
        "tiny",
        "--records-per-shard",
        "9",
        "--seed",
        "1",
        "--split",
        "a=0.5,b=0.5",
        "--if-exists",
        "overwrite",
    )
    assert build(images, output.uri, *output.args, *options) == 0
    assert build(images, tmp_path / "fresh", *options) == 0
    assert output.names() == sorted([*stamps_of(tmp_path / "fresh"), "thesis.tex"])
    assert hashes_of(output.download(tmp_path / "out")) == hashes_of(tmp_path / "fresh")
    assert output.get("thesis.tex") == b"mine"


@pytest.mark.parametrize("kind", STORES)
def test_an_output_of_strangers_is_refused(
    images: Path, places: Places, capfd: pytest.CaptureFixture[str], kind: Kind
) -> None:
    output = places.make(kind)
    output.put("thesis.tex", b"mine")
    assert build(images, output.uri, *output.args, *TINY) == 1
    assert (
        "is not empty and holds no shardwright build (there is 'thesis.tex')"
        in capfd.readouterr().err
    )
    assert output.names() == ["thesis.tex"]


@pytest.mark.parametrize(
    ("kind", "name"),
    [("s3", "tiny-train.tfrecord-00001-of-00004"), ("gs", "index/train-00001-of-00004.parquet")],
)
def test_what_is_lost_of_a_finished_dataset_is_made_again(
    images: Path, finished: dict[Kind, Place], kind: Kind, name: str
) -> None:
    output = finished[kind]
    whole, stamps = output.get(name), output.stamps()
    output.remove(name)
    assert build(images, output.uri, *output.args, *TINY) == 0
    assert output.get(name) == whole
    untouched = {other for other, stamp in output.stamps().items() if stamps[other] == stamp}
    assert {*stamps} - untouched <= {
        "tiny-train.tfrecord-00001-of-00004",
        "index/train-00001-of-00004.parquet",
    }


@pytest.mark.parametrize(
    ("source_kind", "table_kind", "output_kind"),
    [("s3", "gs", "s3"), ("gs", "local", "s3"), ("local", "s3", "gs")],
)
def test_split_folders_with_labels_and_class_names_elsewhere(
    places: Places, tmp_path: Path, source_kind: Kind, table_kind: Kind, output_kind: Kind
) -> None:
    root = tmp_path / "in"
    for number in range(24):
        path = root / ("Train", "val", "test")[number % 3] / "any" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png_of(number))
    ids = sorted(str(path.relative_to(root)) for path in root.rglob("*.png"))
    rows = [
        json.dumps({"path": image_id, "label": "ba"[row % 2], "weight": row / 2})
        for row, image_id in enumerate(ids)
    ]
    source, tables, output = (
        places.make(source_kind).fill(root),
        places.make(table_kind),
        places.make(output_kind),
    )
    tables.put(
        "labels.jsonl",
        "\n".join([*rows[:-1], json.dumps({"path": "nowhere.png", "label": "a"})]).encode(),
    )
    tables.put("names.txt", b"b\na\nc\n")
    options = ["--shard-size", "2kB", "--name", "x", "--max-reject-fraction", "0.2"]
    there = [
        "--labels",
        tables.at("labels.jsonl"),
        "--class-names",
        tables.at("names.txt"),
        *options,
    ]
    assert build(source.uri, output.uri, *source.args, *tables.args, *output.args, *there) == 0
    Place(str(tmp_path)).put("labels.jsonl", tables.get("labels.jsonl"))
    Place(str(tmp_path)).put("names.txt", tables.get("names.txt"))
    here = [
        "--labels",
        tmp_path / "labels.jsonl",
        "--class-names",
        tmp_path / "names.txt",
        *options,
    ]
    assert build(root, tmp_path / "local", *here) == 0
    found = output.download(tmp_path / "out")
    assert hashes_of(found) == hashes_of(tmp_path / "local")
    assert reasons_of(found) == reasons_of(tmp_path / "local")
    manifest = manifest_of(found)
    assert manifest["schema"]["class_names"] == ["b", "a", "c"]
    assert sorted(manifest["splits"]) == ["test", "train", "validation"]
    for split in manifest["splits"].values():
        sizes = [shard["num_records"] for shard in split["shards"]]
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("kind", STORES)
def test_class_names_that_are_not_there(
    images: Path, places: Places, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: Kind
) -> None:
    place = places.make(kind)
    assert build(images, tmp_path / "out", *place.args, "--class-names", place.at("names.txt")) == 2
    assert (
        f"--class-names {place.at('names.txt')} cannot be read: "
        in capfd.readouterr().err.splitlines()[-1]
    )


@pytest.mark.parametrize("kind", STORES)
def test_plan_tells_and_writes_nothing(
    images: Path,
    places: Places,
    finished: dict[Kind, Place],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: Kind,
) -> None:
    source, fresh = places.make(kind).fill(images), places.make(kind)

    def planned(output: Place | Path, given: Place | Path) -> dict[str, object]:
        args = [*(output.args if isinstance(output, Place) else []), *source.args]
        assert plan_dataset.main([str(given), str(output), *args, *TINY, "--json"]) == 0
        plan: dict[str, object] = json.loads(capsys.readouterr().out)
        return plan

    local, there = planned(tmp_path / "out", images), planned(fresh, source)
    assert there["splits"] == local["splits"]
    assert fresh.names() == []
    before = finished[kind].stamps()
    assert planned(finished[kind], images)["shards_to_write"] == 0
    assert finished[kind].stamps() == before
