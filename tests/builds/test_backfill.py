"""Days that are added in any order, and again, end as one build of all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from shardwright.pipelines.commands.append import append_version, prepare_version
from shardwright.pipelines.local.build import build_here
from shardwright.pipelines.options.build import parse_options
from shardwright.storage.folder import Folder
from tests.support.archive_files import pack_tar
from tests.support.build_helpers import png_of
from tests.support.growing import Grown

OPTIONS = ("--records-per-shard", "3", "--name", "grown", "--split", "train=0.5,test=0.5")
NUM_DAYS, NUM_IMAGES = 3, 8


def images_of(day: int) -> dict[str, bytes]:
    """Return images by CLASS/NAME; each day has a class of its own, and the names of the others."""
    names = [f"cat/{number}.png" for number in range(NUM_IMAGES - 1)] + [f"new{day}/0.png"]
    return {name: png_of(10 * day + number) for number, name in enumerate(names)}


def put_table(root: Path, day: int) -> str:
    rows = ["image,label"]
    for name, image in images_of(day).items():
        path = root / f"day-{day}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image)
        rows.append(f"day-{day}/{name},{name.partition('/')[0]}")
    (root / f"{day}.csv").write_text("\n".join(rows))
    return f"{root}/{day}.csv"


def put_tar(root: Path, day: int) -> str:
    pack_tar(root / f"{day}.tar", images_of(day))
    return f"{root}/{day}.tar"


def add(source: str, output: Path, *options: str) -> None:
    job = prepare_version(
        parse_options([source, str(output), *OPTIONS, "--if-exists", "append", *options])
    )
    if job.known is None:
        build_here(job)
    else:
        append_version(job)


@pytest.mark.long
@pytest.mark.parametrize(("put", "everything"), [(put_table, "*.csv"), (put_tar, "*.tar")])
@pytest.mark.parametrize("order", [(2, 0, 2, 1, 0), (1, 2, 0)], ids=str)
def test_any_order_of_days_is_one_build(
    tmp_path: Path, put: Callable[[Path, int], str], everything: str, order: tuple[int, ...]
) -> None:
    days = [put(tmp_path / "in", day) for day in range(NUM_DAYS)]
    for day in order:
        add(days[day], tmp_path / "out", "--keep-missing")
    add(f"{tmp_path}/in/{everything}", tmp_path / "all")
    grown, whole = (Grown(Folder(str(tmp_path / name)), ()).records() for name in ("out", "all"))
    assert len(grown) == NUM_DAYS * NUM_IMAGES
    assert grown == whole
    add(f"{tmp_path}/in/{everything}", tmp_path / "out")
    assert not list(tmp_path.glob(f"out/versions/{NUM_DAYS + 1:05d}.json"))
