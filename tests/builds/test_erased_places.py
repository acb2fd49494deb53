"""Records with a canary in every value, by several inputs: none is left in any file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardwright.pipelines.commands.erase import main
from shardwright.storage.folder import Folder
from tests.support.archive_files import pack_tar
from tests.support.build_helpers import files_below, png_of
from tests.support.canaries import canary, canary_png, find_canaries
from tests.support.detection_makers import write
from tests.support.growing import Grown, Source
from tests.support.input_forms import csv_of
from tests.support.judge import judge
from tests.support.repairs import build_plainly

SCHEMA = """
from shardwright.format.schema import ExampleSchema, Feature, FeatureKind, Source

SCHEMA = ExampleSchema((
    Feature("image", FeatureKind.IMAGE, Source.IMAGE),
    Feature("id", FeatureKind.TEXT, Source.ID),
    Feature("label", FeatureKind.CLASS_LABEL, Source.LABEL),
    Feature("caption", FeatureKind.TOKENS),
    Feature("note", FeatureKind.TEXT, default=""),
))
"""
OPTIONS = (
    "--name", "data", "--split", "train=0.5,test=0.5", "--records-per-shard", "5", "--signals",
    "--duplicates", "drop", "--near-duplicates", "report", "--max-reject-fraction", "0.9",
)  # fmt: skip
GOES, COMES, RAGGED = 7, 8, 9  # by an overwrite, by an append, in a line of a table


class Picture(NamedTuple):
    name: str
    data: bytes
    label: str
    caption: str
    note: str

    @property
    def row(self) -> dict[str, str]:
        fields = {"label": self.label, "caption": self.caption, "note": self.note}
        return {"path": f"pictures/{self.name}", **fields}


def marked(number: int) -> Picture:
    """Return a picture whose every value is a canary."""
    texts = [canary(number, copy) for copy in range(1, 4)]
    data = canary_png(canary(number), is_flat=False)
    return Picture(f"{canary(number)}.png", data, texts[0], f"bird {texts[1]}", texts[2])


def pictures(numbers: Iterable[int]) -> list[Picture]:
    plain = [Picture(f"p{n}.png", png_of(n), "ab"[n % 2], "a bird", "plain") for n in range(8)]
    # The first id of duplicates is kept, so the reject of this one names the canary.
    copy = plain[0]._replace(name="q.png", label="d", data=marked(0).data)
    broken = marked(6)._replace(data=b"no picture")
    return [*plain, copy, broken, *map(marked, numbers)]


def table(root: Path, found: Sequence[Picture]) -> tuple[Path, list[str]]:
    ragged = f"pictures/{canary(RAGGED)}.png,a,b,c,{canary(RAGGED, 1)}\n"
    text = csv_of([each.row for each in found]) + ragged
    write(root, {"t.csv": text, **{each.row["path"]: each.data for each in found}})
    return root / "t.csv", ["--schema", f"{root}/schema.py"]


def labels(root: Path, found: Sequence[Picture]) -> tuple[Path, list[str]]:
    text = csv_of([each.row for each in found])
    write(root, {"t.csv": text, **{f"in/{each.row['path']}": each.data for each in found}})
    return root / "in", ["--labels", f"{root}/t.csv", "--schema", f"{root}/schema.py"]


def parquet(root: Path, found: Sequence[Picture]) -> tuple[Path, list[str]]:
    rows: list[dict[str, Any]] = [
        {**each.row, "image": {"bytes": each.data, "path": each.name}} for each in found
    ]
    rows = [{**row, "id": row.pop("path")} for row in rows]
    pq.write_table(pa.Table.from_pylist(rows), root / "t.parquet")
    return root / "t.parquet", ["--schema", f"{root}/schema.py"]


def archive(root: Path, found: Sequence[Picture]) -> tuple[Path, list[str]]:
    files = {f"{each.label}/{each.name}": each.data for each in found}
    return pack_tar(root / "in.tar.gz", files, "w:gz"), []


def coco(root: Path, found: Sequence[Picture]) -> tuple[Path, list[str]]:
    # An append needs the same categories, and one that no record had is the schema's, so it stays.
    found = [each if each.data != b"no picture" else each._replace(label="a") for each in found]
    names = sorted({each.label for each in (*found, marked(COMES))})
    shape = {"bbox": [0, 0, 8, 4], "area": 32, "iscrowd": 0, "segmentation": []}
    content = {
        "images": [{"id": n, "file_name": each.name} for n, each in enumerate(found)],
        "categories": [{"id": number, "name": name} for number, name in enumerate(names)],
        "annotations": [
            {"id": n, "image_id": n, "category_id": names.index(each.label), **shape}
            for n, each in enumerate(found)
        ],
    }
    files = {f"in/{each.name}": each.data for each in found}
    write(root, {**files, "in/instances.json": json.dumps(content)})
    return root / "in", []


Make = Callable[[Path, Sequence[Picture]], tuple[Path, list[str]]]
MAKES: tuple[Make, ...] = (table, labels, parquet, archive, coco)


class Made(NamedTuple):
    output: Path
    ids: set[str]


def _ids_in(root: Path) -> set[str]:
    """Return the ids with a canary in all indexes and rejects."""
    found = set()
    for path in [*root.rglob("index/*.parquet"), *root.rglob("rejects/*.parquet")]:
        found.update(pq.read_table(path, columns=["id"])["id"].to_pylist())
    return {name for name in found if "canary" in name}


def make_dataset(root: Path, make: Make) -> Made:
    """Build, overwrite and append, so that canaries come and go, and leave a stopped build."""
    output, numbers = root / "out", range(6)
    write(root, {"schema.py": SCHEMA})
    source, options = make(root, pictures([*numbers, GOES]))
    build_plainly(source, output, *OPTIONS, *options)
    ids = _ids_in(output)
    for path in files_below(root / "in").values():
        path.unlink()
    source, options = make(root, pictures(numbers))
    build_plainly(source, output, *OPTIONS, *options, "--if-exists", "overwrite")
    source, options = make(root, pictures([*numbers, COMES]))
    Grown(Folder(str(output)), (*OPTIONS, *options)).append(Source(source))
    ids |= _ids_in(output)
    if make is table:
        ids.add(f"pictures/{canary(RAGGED)}.png")
    data = marked(0).data
    for place in (
        "generations/00009-x/plan.json",
        "spool/images.bin",
        "next/plan.json",
        "index/.x.tmp",
    ):
        (output / place).parent.mkdir(parents=True, exist_ok=True)
        (output / place).write_bytes(data)
    write(output, {"staged/fresh/data-train.tfrecord-00000-of-00001": data})
    return Made(output, ids)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    return {
        make.__name__: make_dataset(tmp_path_factory.mktemp(make.__name__), make) for make in MAKES
    }


HOLDERS = {
    "tfrecord", "index/", "signals/", "rejects/", "near_duplicates", ".labels.txt", ".vocab.txt",
    "stats.json", "report.html", "manifest.json", "versions/", "spool/", "next/", "staged/",
    ".tmp", "generations/00009-x",
}  # fmt: skip


@pytest.mark.long
def test_every_kind_of_file_has_a_canary(made: dict[str, Made]) -> None:
    """Else the next test would prove little."""
    paths = [path for each in made.values() for path in find_canaries([each.output])]
    assert {kind for kind in HOLDERS if any(kind in path for path in paths)} == HOLDERS


@pytest.mark.long_but_first
@pytest.mark.parametrize("name", [make.__name__ for make in MAKES])
def test_no_file_has_a_canary(name: str, made: dict[str, Made], tmp_path: Path) -> None:
    output, ids = made[name]
    (tmp_path / "ids").write_text("\n".join(sorted(ids)))
    words = ["--ids", str(tmp_path / "ids"), "--receipt", str(tmp_path / "receipt.json"), "--yes"]
    # Two of the table's ids are on the page and in a message alone, which go with the other lists.
    assert main([str(output), *words, "--allow-missing"]) == 0
    assert find_canaries([output]) == {}
    assert "canary" not in (tmp_path / "receipt.json").read_text()
    assert judge(str(output)).is_sound
    assert main([str(output), "--verify", str(tmp_path / "receipt.json")]) == 0
