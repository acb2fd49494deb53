"""Labels and class names in stores, and `plan`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardwright.pipelines.commands import plan as plan_command
from tests.support.build_helpers import (
    build,
    hashes_of,
    make_images,
    manifest_of,
    png_of,
    reasons_of,
)
from tests.support.store_builds import build_between, by_store, error_of
from tests.support.store_places import Kind, Place, Places

TINY = ("--name", "tiny", "--records-per-shard", "5")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_images(tmp_path_factory.mktemp("options") / "in", 20)


@pytest.mark.long
@pytest.mark.parametrize(
    ("source_kind", "table_kind", "output_kind"),
    [("s3", "gs", "s3"), ("gs", "local", "s3"), ("local", "s3", "gs")],
)
def test_split_folders_with_labels_and_class_names_elsewhere(
    places: Places, tmp_path: Path, source_kind: Kind, table_kind: Kind, output_kind: Kind
) -> None:
    root, here = tmp_path / "in", Place(str(tmp_path))
    ids = [f"{('Train', 'val', 'test')[number % 3]}/any/{number}.png" for number in range(24)]
    for number, image_id in enumerate(ids):
        here.put(f"in/{image_id}", png_of(number))
    rows = [
        {"path": image_id, "label": "ba"[row % 2], "weight": row / 2}
        for row, image_id in enumerate(sorted(ids)[:-1])
    ]
    lines = [json.dumps(row) for row in (*rows, {"path": "nowhere.png", "label": "a"})]
    source, output = places.make(source_kind).fill(root), places.make(output_kind)
    there = places.make(table_kind)
    options = ["--shard-size", "2kB", "--name", "x", "--max-reject-fraction", "0.2"]
    for tables, given, to in ((there, source, output), (here, root, tmp_path / "local")):
        tables.put("labels.jsonl", "\n".join(lines).encode())
        tables.put("names.txt", b"b\na\nc\n")
        by_table = ["--labels", tables.at("labels.jsonl"), "--class-names", tables.at("names.txt")]
        assert build_between(given, to, *tables.args, *by_table, *options) == 0
    found = output.download(tmp_path / "out")
    assert hashes_of(found) == hashes_of(tmp_path / "local")
    assert reasons_of(found) == reasons_of(tmp_path / "local")
    manifest = manifest_of(found)
    assert manifest["schema"]["class_names"] == ["b", "a", "c"]
    assert sorted(manifest["splits"]) == ["test", "train", "validation"]
    for split in manifest["splits"].values():
        sizes = [shard["num_bytes"] for shard in split["shards"]]
        assert max(sizes) <= 2000 + 600, "at most one of these small images over the size"


@by_store
def test_missing_class_names(
    images: Path, places: Places, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: Kind
) -> None:
    place = places.make(kind)
    names = place.at("names.txt")
    assert build(images, tmp_path / "out", *place.args, "--class-names", names) == 2
    assert f"--class-names {names} cannot be read: " in error_of(capfd.readouterr().err)


@pytest.mark.long
@by_store
def test_plan_writes_nothing(
    images: Path, places: Places, tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: Kind
) -> None:
    source, fresh = places.make(kind).fill(images), places.make(kind)

    def planned(output: Place | Path, given: Place | Path) -> dict[str, object]:
        argv = [str(given), str(output), *source.args, *fresh.args, *TINY, "--json"]
        assert plan_command.main(argv) == 0
        plan: dict[str, object] = json.loads(capsys.readouterr().out)
        return plan

    plan = planned(fresh, source)
    assert (plan["shards_to_write"], fresh.names()) == (4, [])
    assert plan["splits"] == planned(tmp_path / "out", images)["splits"]
    assert build_between(images, fresh, *TINY) == 0
    before = fresh.stamps()
    assert planned(fresh, images)["shards_to_write"] == 0
    assert fresh.stamps() == before
