"""Paths and links that lead out of INPUT: rejects, unless an option allows their folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.build_helpers import build_without_beam as build
from tests.support.build_helpers import make_images, reasons_of, rejects_of

NUM_INSIDE = 4


def table(root: Path, outside: Path) -> Path:
    rows = ["path", *(f"{n}.png" for n in range(NUM_INSIDE)), str(outside), f"../{outside.name}",
            f"file://{outside}"]  # fmt: skip
    (root / "t.csv").write_text("\n".join(rows))
    return root / "t.csv"


def sized_table(root: Path, outside: Path) -> Path:
    size = outside.stat().st_size
    rows = [*(f"{n}.png,{(root / f'{n}.png').stat().st_size}" for n in range(NUM_INSIDE))]
    (root / "t.csv").write_text("\n".join(["path,size", *rows, f"{outside},{size}"]))
    return root / "t.csv"


def links(root: Path, outside: Path) -> Path:
    """Make a link to a file, one to a folder, and one within INPUT, which is allowed."""
    (root / "link.png").symlink_to(outside)
    (root / "folder").symlink_to(outside.parent / "more")
    (root / "inside.png").symlink_to(root / "0.png")
    return root


def linked_table(root: Path, outside: Path) -> Path:
    links(root, outside)
    rows = ["path", "0.png", "1.png", "2.png", "3.png", "inside.png", "link.png", "folder/x.png"]
    (root / "t.csv").write_text("\n".join(rows))
    return root / "t.csv"


def coco(root: Path, outside: Path) -> Path:
    names = [*(f"{n}.png" for n in range(NUM_INSIDE)), f"../{outside.name}"]
    images = [{"id": n, "file_name": name} for n, name in enumerate(names)]
    (root / "x.json").write_text(json.dumps({"images": images, "annotations": []}))
    return root / "x.json"


def hub(root: Path, outside: Path) -> Path:
    paths = [*(f"{n}.png" for n in range(NUM_INSIDE)), str(outside)]
    images = [{"bytes": None, "path": path} for path in paths]
    images[0]["bytes"] = (root / "0.png").read_bytes()
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    pq.write_table(pa.table({"image": pa.array(images, kind)}), root / "x.parquet")
    return root / "x.parquet"


MAKERS: list[tuple[Callable[[Path, Path], Path], int]] = [
    (table, 3), (sized_table, 1), (links, 2), (linked_table, 2), (coco, 1), (hub, 1),
]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(("make", "refused"), MAKERS)
def test_references_that_leave_the_input(
    tmp_path: Path,
    make: Callable[[Path, Path], Path],
    refused: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = sorted(make_images(tmp_path / "made", NUM_INSIDE + 2).rglob("*.png"))
    root, more = tmp_path / "in", tmp_path / "more"
    for folder in (root, more):
        folder.mkdir()
    for number, file in enumerate(made[:NUM_INSIDE]):
        shutil.copy(file, root / f"{number}.png")
    outside = Path(shutil.copy(made[-1], tmp_path / "secret.png"))
    shutil.copy(made[-2], more / "x.png")
    source = make(root, outside)
    capsys.readouterr()
    assert build(source, tmp_path / "no", "--max-rejects=0") == 1
    assert f"{refused} outside_input" in capsys.readouterr().err
    out = tmp_path / "out"
    assert build(source, out, "--max-reject-fraction=0.9") == 0
    rejects = [row for row in rejects_of(out) if row["reason"] == "outside_input"]
    assert len(rejects) == refused
    assert all(f"--allow-outside '{tmp_path}" in row["detail"] for row in rejects)
    assert outside.read_bytes() not in b"".join(
        path.read_bytes() for path in out.rglob("*") if path.is_file()
    )
    allowed = tmp_path / "allowed"
    assert build(source, allowed, "--max-reject-fraction=0.9", f"--allow-outside={tmp_path}") == 0
    assert "outside_input" not in reasons_of(allowed).values()


def test_a_data_yaml_that_leads_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_images(tmp_path / "data" / "images", 6)
    (tmp_path / "in").mkdir()
    source = tmp_path / "in" / "data.yaml"
    source.write_text("path: ../data\ntrain: images\nnames: [cat, dog]\n")
    assert build(source, tmp_path / "out") == 2
    told = f"the path of {source} leads to {tmp_path}/data, outside of INPUT: allow it with "
    assert f"{told}--allow-outside '{tmp_path}/data'" in capsys.readouterr().err
    assert build(source, tmp_path / "out", f"--allow-outside={tmp_path}/data") == 0


@pytest.mark.long
def test_further_images_of_a_table_of_labels(tmp_path: Path) -> None:
    images = make_images(tmp_path / "in", NUM_INSIDE)
    mask = sorted(make_images(tmp_path / "masks", 1).rglob("*.png"))[0]
    paths = sorted(str(path.relative_to(images)) for path in images.rglob("*.png"))
    (tmp_path / "tables").mkdir()
    labels = tmp_path / "tables" / "labels.csv"
    lines = [f"{path},{path}" for path in paths[1:]]
    labels.write_text("\n".join(["path,mask", f"{paths[0]},{mask}", *lines]))
    schema = tmp_path / "schema.py"
    schema.write_text(
        "from shardwright.format.schema import *\n"
        "SCHEMA = ExampleSchema((Feature('image', FeatureKind.IMAGE, source=Source.IMAGE),"
        " Feature('mask', FeatureKind.IMAGE)))\n"
    )
    options = [f"--labels={labels}", f"--schema={schema}", "--max-reject-fraction=0.9"]
    assert build(images, tmp_path / "out", *options) == 0
    assert "outside_input" in reasons_of(tmp_path / "out").values()
    allowed = f"--allow-outside={tmp_path}/masks"
    assert build(images, tmp_path / "allowed", *options, allowed) == 0
    assert reasons_of(tmp_path / "allowed") == {}


@pytest.mark.long
def test_an_input_that_is_a_link(tmp_path: Path) -> None:
    """The user gave it: where it leads is INPUT."""
    make_images(tmp_path / "real", 6)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert build(tmp_path / "link", tmp_path / "out") == 0
    assert reasons_of(tmp_path / "out") == {}
