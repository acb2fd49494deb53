"""show: one record by id or number, with all it holds, or a clear word on why not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from shardwright.cli import main
from shardwright.errors import NotFoundError, UsageError
from shardwright.index import read_index
from shardwright.manifest import Manifest, read_manifest
from shardwright.show import find_record, format_record
from shardwright.storage import Folder
from tests.damage import build, edit_bytes, edit_rows, first_shard, forge_shard, row_offsets


def ids_of(dataset: Path, split: str) -> list[str]:
    return [
        example_id
        for name in read_manifest(Folder(str(dataset))).shard_names(split)
        for example_id in read_index(Folder(str(dataset)), name, ["id"])["id"].to_pylist()
    ]


def find(
    dataset: Path, key: str, split: str | None = None, by: str | None = None
) -> tuple[str, str, int]:
    found = find_record(
        Folder(str(dataset)), read_manifest(Folder(str(dataset))), key, split=split, by=by
    )
    return found.row["id"], found.name.split, found.number


def test_every_record_is_found_by_id_and_by_number(zoo: Path) -> None:
    for split in ("train", "test"):
        for number, example_id in enumerate(ids_of(zoo, split)):
            assert find(zoo, example_id) == (example_id, split, number)
            assert find(zoo, str(number), split) == (example_id, split, number)


def test_a_number_counts_in_train_by_default(zoo: Path) -> None:
    assert find(zoo, "12") == (ids_of(zoo, "train")[12], "train", 12)


def test_a_number_counts_in_the_only_split(zoo_images: Path, tmp_path: Path) -> None:
    dataset = build(zoo_images / "bee", tmp_path / "flat", "--split", "other=1")
    assert find(dataset, "3")[1:] == ("other", 3)


def test_without_train_a_number_needs_its_split(zoo: Path) -> None:
    whole = read_manifest(Folder(str(zoo)))
    splits = {"a": whole.splits["test"], "b": whole.splits["train"]}
    manifest = Manifest(whole.name, "1.0.0", whole.schema, splits, {}, 36, {}, "", {})
    with pytest.raises(
        NotFoundError, match="a record number counts within a split: give --split, one of a, b"
    ):
        find_record(Folder(str(zoo)), manifest, "3", by="number")


@pytest.fixture(scope="module")
def numbered(zoo_images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset whose ids are numbers."""
    root = tmp_path_factory.mktemp("numbered")
    rows = [
        {"path": str(path), "id": str(5 + number)}
        for number, path in enumerate(sorted(zoo_images.glob("bee/*.png")))
    ]
    (root / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return build(root / "table.jsonl", root / "out")


def test_an_id_wins_over_a_number(numbered: Path) -> None:
    ids = ids_of(numbered, "train")
    assert find(numbered, "7")[0] == "7"
    assert find(numbered, "7", by="id")[0] == "7"
    assert find(numbered, "7", by="number") == (ids[7], "train", 7)
    assert find(numbered, "2") == (ids[2], "train", 2), "no id is 2"
    with pytest.raises(NotFoundError, match="no record in any split has the id '2'"):
        find(numbered, "2", by="id")


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (
            ["nosuch.png"],
            "no record in any split has the id 'nosuch.png' (ids are looked for in test, train)",
        ),
        (["nosuch.png", "--split", "test"], "no record in split 'test' has the id 'nosuch.png'"),
        (["-1"], "no record in any split has the id '-1'"),
        (
            ["999"],
            "split 'train' has no record 999, and no record has that id: its records are 0 to ",
        ),
        (["0", "--split", "dev"], "there is no split 'dev'; the splits are test, train"),
    ],
)
def test_what_is_not_there(
    args: list[str], what: str, zoo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(zoo), *args[1:], "--", args[0]]) == 1
    assert what in capsys.readouterr().err


def test_an_id_of_another_split(zoo: Path) -> None:
    with pytest.raises(NotFoundError, match="no record in split 'test'"):
        find(zoo, ids_of(zoo, "train")[0], "test")


def test_text_that_is_no_number(zoo: Path) -> None:
    for key in ("x", "1.5", "²", ""):
        with pytest.raises(UsageError, match="is no record number: give a whole number from 0 up"):
            find(zoo, key, by="number")


def test_all_that_is_shown(zoo: Path, zoo_images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(zoo), "Löwe/3.png"]) == 0
    lines = dict(
        line.split("  ", 1) for line in capsys.readouterr().out.splitlines() if "  " in line.strip()
    )
    image = (zoo_images / "Löwe" / "3.png").read_bytes()
    found = find_record(Folder(str(zoo)), read_manifest(Folder(str(zoo))), "Löwe/3.png")
    text = format_record(read_manifest(Folder(str(zoo))), found)
    assert lines["id"].strip() == "Löwe/3.png"
    assert (
        f"{found.name.shard}, {found.row['length']:,} bytes at byte {found.row['offset']:,}" in text
    )
    assert (
        f"png, 9x9, {len(image)} B ({len(image):,} bytes at byte {found.row['image_offset']:,}), crc32c 0x"
        in text
    )
    assert f"  image   {image[:24].hex(' ')}... ({len(image):,} bytes)" in text
    assert "  id      'Löwe/3.png'" in text
    label = read_manifest(Folder(str(zoo))).schema.class_names.index("Löwe")
    assert f"  label   {label} (Löwe)" in text
    assert str(zoo_images / "Löwe" / "3.png") in text


def test_lists_and_odd_values_are_shown(zoo_images: Path, tmp_path: Path) -> None:
    [image, *_] = sorted(zoo_images.glob("bee/*.png"))
    row = {
        "path": str(image),
        "id": "one",
        "ns": list(range(40)),
        "f": 0.5,
        "none": [],
        "s": "zwei\tdrei",
        "ss": ["ä", "b"],
    }
    (tmp_path / "table.jsonl").write_text(json.dumps(row) + "\n")
    dataset = build(tmp_path / "table.jsonl", tmp_path / "out")
    manifest = read_manifest(Folder(str(dataset)))
    text = format_record(manifest, find_record(Folder(str(dataset)), manifest, "one"))
    assert "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, ... 40 values]" in text
    assert "  ss      ['ä', 'b']" in text
    assert r"  s       'zwei\tdrei'" in text
    assert "  f       0.5" in text


def test_json(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(zoo), "ape/5.png", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["id"], told["class_name"], told["features"]["id"]) == (
        "ape/5.png",
        "ape",
        "ape/5.png",
    )
    assert told["features"]["image"] == {"num_bytes": told["image_length"]}
    assert told["features"]["label"] == told["label"]
    assert (zoo / told["shard"]).exists()


def test_the_image_is_saved_byte_for_byte(
    zoo: Path, zoo_images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "saved.png"
    assert main(["show", str(zoo), "ape/5.png", "--save", str(target)]) == 0
    assert target.read_bytes() == (zoo_images / "ape" / "5.png").read_bytes()
    assert f"saved {target}: {target.stat().st_size:,} bytes of png" in capsys.readouterr().err
    assert main(["show", str(zoo), "ape/5.png", "--save", str(tmp_path)]) == 1
    assert f"cannot write {tmp_path}: " in capsys.readouterr().err


def test_raw_pixels_are_saved_as_an_array(
    zoo_images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = build(zoo_images / "bee", tmp_path / "raw", "--encode", "raw", "--resize", "7x5")
    target = tmp_path / "saved.npy"
    assert main(["show", str(dataset), "3.png", "--save", str(target)]) == 0
    saved = np.load(target)
    assert (saved.shape, saved.dtype) == ((5, 7, 3), np.uint8)
    found = find_record(Folder(str(dataset)), read_manifest(Folder(str(dataset))), "3.png")
    assert found.features["image"] == [saved.tobytes()]
    capsys.readouterr()
    assert main(["show", str(dataset), "3.png", "--save", str(tmp_path / "x.png")]) == 2
    assert (
        "this image is bare pixels, not a file of any image format; give a name that ends in .npy"
        in capsys.readouterr().err
    )
    assert not (tmp_path / "x.png").exists()


def test_model_garden_names(
    zoo_images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = build(
        zoo_images,
        tmp_path / "mg",
        "--feature-names",
        "model-garden",
        "--max-reject-fraction",
        "0.5",
    )
    assert main(["show", str(dataset), "bee/2.png", "--save", str(tmp_path / "a")]) == 0
    told = capsys.readouterr().out
    assert "  image/class/text   'bee'" in told
    assert "(bee)" in told
    assert (tmp_path / "a").read_bytes() == (zoo_images / "bee" / "2.png").read_bytes()


def test_only_that_record_is_read(dataset: Path) -> None:
    """Every other byte of the shard may be broken."""
    name = first_shard(dataset)
    offsets = row_offsets(dataset, name)

    def wipe(data: bytearray) -> None:
        data[: offsets[4]] = bytes(offsets[4])
        data[offsets[5] :] = bytes(len(data) - offsets[5])

    edit_bytes(dataset / name.shard, wipe)
    assert find(dataset, "4")[2] == 4


def test_broken_places_are_told(dataset: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = first_shard(dataset)
    offsets = row_offsets(dataset, name)
    edit_bytes(
        dataset / name.shard,
        lambda data: data.__setitem__(offsets[2] + 30, data[offsets[2] + 30] ^ 1),
    )
    assert main(["show", str(dataset), "2"]) == 1
    told = capsys.readouterr().err
    assert (
        f"{name.shard}: record at byte {offsets[2]}: the checksum of the record's data is wrong"
        in told
    )
    assert "`shardwright verify` lists all faults" in told
    edit_bytes(dataset / name.shard, lambda data: data.__delitem__(slice(offsets[5], None)))
    assert main(["show", str(dataset), "5"]) == 1
    assert (
        f"{name.shard} ends before byte {offsets[5]}, where its index has a record"
        in capsys.readouterr().err
    )
    (dataset / name.shard).unlink()
    assert main(["show", str(dataset), "5"]) == 1
    assert f"{name.shard}: there is no such file" in capsys.readouterr().err
    (dataset / name.sidecar).unlink()
    assert main(["show", str(dataset), "5"]) == 1
    assert f"{name.sidecar} is missing" in capsys.readouterr().err


def test_an_index_of_another_shard_is_noticed(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit_rows(dataset, first_shard(dataset), lambda rows: rows[2].update(id="stranger.png"))
    assert main(["show", str(dataset), "stranger.png"]) == 1
    assert (
        "and its index do not belong together: run `shardwright verify`" in capsys.readouterr().err
    )


def test_a_record_with_features_missing_or_too_many(
    dataset: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def edit(features: list[dict[str, object]]) -> None:
        features[2]["label"] = [99]
        features[2]["extra"] = [b"\x00\xff"]
        del features[3]["label"]

    forge_shard(dataset, first_shard(dataset), edit)  # type: ignore[arg-type]
    assert main(["show", str(dataset), "2"]) == 0
    told = capsys.readouterr().out
    assert "  label   99\n" in told
    assert "  extra   00 ff (2 bytes)" in told
    assert main(["show", str(dataset), "3"]) == 0
    assert "  label   missing" in capsys.readouterr().out
