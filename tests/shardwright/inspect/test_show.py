"""show: one record by id or number with all its content, or an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardwright.errors import NotFoundError, UsageError
from shardwright.format.index import read_index
from shardwright.format.manifest import Manifest, read_manifest
from shardwright.inspect.cli import main
from shardwright.inspect.show import FoundRecord, find_record, format_record
from shardwright.storage.folder import Folder
from tests.support.damage import build, edit_bytes, edit_rows, first_shard, forge_shard, row_offsets

Captured = pytest.CaptureFixture[str]


def ids_of(dataset: Path, split: str) -> list[str]:
    root = Folder(str(dataset))
    names = read_manifest(root).shard_names(split)
    return [key for name in names for key in read_index(root, name, ["id"])["id"].to_pylist()]


def find(dataset: Path, key: str, split: str | None = None, by: str | None = None) -> FoundRecord:
    root = Folder(str(dataset))
    return find_record(root, read_manifest(root), key, split=split, by=by)


def place(dataset: Path, key: str, *more: str, by: str | None = None) -> tuple[str, str, int]:
    found = find(dataset, key, *more, by=by)
    return found.row["id"], found.name.split, found.number


def text_of(dataset: Path, key: str) -> str:
    return format_record(read_manifest(Folder(str(dataset))), find(dataset, key))


def show(dataset: Path, *args: str | Path) -> int:
    return main(["show", str(dataset), *map(str, args)])


def test_every_record_is_found_by_id_and_by_number(zoo: Path) -> None:
    for split in ("train", "test"):
        for number, key in enumerate(ids_of(zoo, split)):
            assert place(zoo, key) == place(zoo, str(number), split) == (key, split, number)


def test_a_number_counts_in_train_by_default(zoo: Path) -> None:
    assert place(zoo, "12") == (ids_of(zoo, "train")[12], "train", 12)


def test_a_number_counts_in_the_only_split(raw: Path) -> None:
    assert place(raw, "3")[1:] == ("other", 3)


def test_without_train_a_number_needs_its_split(zoo: Path) -> None:
    whole = read_manifest(Folder(str(zoo)))
    splits = {"a": whole.splits["test"], "b": whole.splits["train"]}
    manifest = Manifest(whole.name, "1.0.0", whole.schema, splits, {}, 36, {}, "", {})
    what = "a record number needs a split: give --split, one of a, b"
    with pytest.raises(NotFoundError, match=what):
        find_record(Folder(str(zoo)), manifest, "3", by="number")


@pytest.fixture(scope="module")
def numbered(zoo_images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset whose ids are numbers; "8" has columns of every type."""
    root = tmp_path_factory.mktemp("numbered")
    paths = sorted(zoo_images.glob("bee/*.png"))
    odd = {"ns": list(range(40)), "f": 0.5, "none": [], "s": "zwei\tdrei", "ss": ["ä", "b"]}
    plain = {"ns": [], "f": 0.0, "none": [], "s": "", "ss": []}
    rows = [
        {"path": str(path), "id": str(number), **(odd if number == 8 else plain)}
        for number, path in enumerate(paths, start=5)
    ]
    (root / "table.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return build(root / "table.jsonl", root / "out", "--allow-outside", str(zoo_images))


@pytest.fixture(scope="module")
def raw(zoo_images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of raw pixels in the split "other"."""
    options = ("--encode", "raw", "--resize", "7x5", "--split", "other=1")
    return build(zoo_images / "bee", tmp_path_factory.mktemp("raw") / "out", *options)


def test_an_id_wins_over_a_number(numbered: Path) -> None:
    ids = ids_of(numbered, "train")
    assert place(numbered, "7")[0] == place(numbered, "7", by="id")[0] == "7"
    assert place(numbered, "7", by="number") == (ids[7], "train", 7)
    assert place(numbered, "2") == (ids[2], "train", 2), "no id is 2"
    with pytest.raises(NotFoundError, match="no record in any split has the id '2'"):
        find(numbered, "2", by="id")


@pytest.mark.parametrize(("args", "what"), [
    (["nosuch.png"],
     "no record in any split has the id 'nosuch.png'; the splits are test, train"),
    (["nosuch.png", "--split", "test"], "no record in split 'test' has the id 'nosuch.png'"),
    (["-1"], "no record in any split has the id '-1'"),
    (["999"], "split 'train' has no record 999, and no record has that id: its records are 0 to "),
    (["0", "--split", "dev"], "unknown split 'dev'; the splits are test, train"),
])  # fmt: skip
def test_missing_records(args: list[str], what: str, zoo: Path, capsys: Captured) -> None:
    assert show(zoo, *args[1:], "--", args[0]) == 1
    assert what in capsys.readouterr().err


def test_an_id_of_another_split(zoo: Path) -> None:
    with pytest.raises(NotFoundError, match="no record in split 'test'"):
        find(zoo, ids_of(zoo, "train")[0], "test")


@pytest.mark.parametrize("key", ["x", "1.5", "²", ""])
def test_text_that_is_not_a_number(key: str, zoo: Path) -> None:
    with pytest.raises(UsageError, match="a record number must be a whole number of at least 0"):
        find(zoo, key, by="number")


def test_the_text_of_a_record(zoo: Path, zoo_images: Path, capsys: Captured) -> None:
    assert show(zoo, "Löwe/3.png") == 0
    lines = capsys.readouterr().out.splitlines()
    pairs = dict(line.split("  ", 1) for line in lines if "  " in line.strip())
    assert pairs["id"].strip() == "Löwe/3.png"
    image = (zoo_images / "Löwe" / "3.png").read_bytes()
    found, text = find(zoo, "Löwe/3.png"), text_of(zoo, "Löwe/3.png")
    row, size = found.row, len(image)
    label = read_manifest(Folder(str(zoo))).schema.class_names.index("Löwe")
    for part in (
        f"{found.name.shard}, {row['length']:,} bytes at byte {row['offset']:,}",
        f"png, 9x9, {size} B ({size:,} bytes at byte {row['image_offset']:,}), crc32c 0x",
        f"  image   {image[:24].hex(' ')}... ({size:,} bytes)",
        "  id      'Löwe/3.png'",
        f"  label   {label} (Löwe)",
        str(zoo_images / "Löwe" / "3.png"),
    ):
        assert part in text


def test_the_text_of_lists_and_odd_values(numbered: Path) -> None:
    text = text_of(numbered, "8")
    assert "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, ... 40 values]" in text
    assert "  ss      ['ä', 'b']" in text
    assert r"  s       'zwei\tdrei'" in text
    assert "  f       0.5" in text


def test_json(zoo: Path, capsys: Captured) -> None:
    assert show(zoo, "ape/5.png", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["id"], told["class_name"]) == ("ape/5.png", "ape")
    image = {"num_bytes": told["image_length"]}
    assert told["features"] == {"image": image, "id": "ape/5.png", "label": told["label"]}
    assert (zoo / told["shard"]).exists()


def test_save(zoo: Path, zoo_images: Path, tmp_path: Path, capsys: Captured) -> None:
    target = tmp_path / "saved.png"
    assert show(zoo, "ape/5.png", "--save", target) == 0
    assert target.read_bytes() == (zoo_images / "ape" / "5.png").read_bytes()
    assert f"saved {target}: {target.stat().st_size:,} bytes of png" in capsys.readouterr().err
    assert show(zoo, "ape/5.png", "--save", tmp_path) == 1
    assert f"cannot write {tmp_path}: " in capsys.readouterr().err


def test_raw_pixels_are_saved_as_they_are(raw: Path, tmp_path: Path, capsys: Captured) -> None:
    target = tmp_path / "saved"
    assert show(raw, "3.png", "--save", target) == 0
    assert find(raw, "3.png").features["image"] == [target.read_bytes()]
    assert "105 bytes of raw pixels, uint8 of shape (5, 7, 3)" in capsys.readouterr().err


def test_model_garden_names(zoo_images: Path, tmp_path: Path, capsys: Captured) -> None:
    options = ("--feature-names", "model-garden", "--max-reject-fraction", "0.5")
    dataset = build(zoo_images, tmp_path / "mg", *options)
    assert show(dataset, "bee/2.png", "--save", tmp_path / "a") == 0
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
    assert find(dataset, "4").number == 4


def test_damage_is_reported(dataset: Path, capsys: Captured) -> None:
    name = first_shard(dataset)
    path, offsets = dataset / name.shard, row_offsets(dataset, name)

    def flip(data: bytearray) -> None:
        data[offsets[2] + 30] ^= 1

    def error_of(number: str) -> str:
        assert show(dataset, number) == 1
        return capsys.readouterr().err

    edit_bytes(path, flip)
    told = error_of("2")
    what = f"record at byte {offsets[2]}: the checksum of the record's data is wrong"
    assert f"{name.shard}: {what}" in told
    assert "`shardwright verify` lists all faults" in told
    edit_bytes(path, lambda data: data.__delitem__(slice(offsets[5], None)))
    what = f"{name.shard}: record at byte {offsets[5]}: the file ends inside the record"
    assert what in error_of("5")
    path.unlink()
    assert f"{name.shard}: there is no such file" in error_of("5")
    (dataset / name.sidecar).unlink()
    assert f"{name.sidecar} is missing" in error_of("5")


def test_an_index_of_another_shard_is_noticed(dataset: Path, capsys: Captured) -> None:
    edit_rows(dataset, first_shard(dataset), lambda rows: rows[2].update(id="stranger.png"))
    assert show(dataset, "stranger.png") == 1
    what = "and its index do not match: run `shardwright verify`"
    assert what in capsys.readouterr().err


def test_missing_and_unknown_features(dataset: Path, capsys: Captured) -> None:
    def edit(features: list[dict[str, Any]]) -> None:
        features[2]["label"] = [99]
        features[2]["extra"] = [b"\x00\xff"]
        del features[3]["label"]

    forge_shard(dataset, first_shard(dataset), edit)
    assert show(dataset, "2") == 0
    told = capsys.readouterr().out
    assert "  label   99\n" in told
    assert "  extra   00 ff (2 bytes)" in told
    assert show(dataset, "3") == 0
    assert "  label   missing" in capsys.readouterr().out
