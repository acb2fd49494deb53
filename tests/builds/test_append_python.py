"""`if_exists="append"` of `sw.write` and `sw.Writer`: the rules of `build --if-exists append`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardwright as sw
from shardwright.errors import BuildError, ShardwrightError, TooManyRejectsError, UsageError
from tests.support.build_helpers import png_of, stamps_of
from tests.support.judge import judge
from tests.transforms.versions.histories import pictures_of, wanted

OPTIONS: dict[str, Any] = {"records_per_shard": 4, "name": "grown", "if_exists": "append"}
FIRST = {f"r{number}": number for number in range(6)}
SECOND = {**FIRST, "r1": 20, "new": 8}
del SECOND["r5"]


def records(content: dict[str, int], **more: Any) -> list[dict[str, Any]]:
    labels = ("a", "b", "c")
    return [
        {"id": name, "image": png_of(seed), "label": labels[seed % 3], **more}
        for name, seed in content.items()
    ]


def by_writer(some: list[dict[str, Any]], output: str, **options: Any) -> sw.Dataset:
    with sw.Writer(output, **options) as writer:
        for each in some:
            writer.write(each)
    return sw.open(output)


def by_shards(some: list[dict[str, Any]], output: str, **options: Any) -> sw.Dataset:
    return sw.write(lambda shard: some[shard::2], output, shards=2, **options)


WAYS = [sw.write, by_writer, by_shards]


@pytest.mark.long_but_first
@pytest.mark.parametrize("way", WAYS, ids=["write", "Writer", "shards"])
def test_the_dataset_follows_the_records(tmp_path: Path, way: Callable[..., sw.Dataset]) -> None:
    out = tmp_path / "out"
    first = way(records(FIRST), str(out), **OPTIONS)
    assert (first.history["version"], pictures_of(out)) == (1, wanted(FIRST))
    before = stamps_of(out)
    assert way(records(FIRST), str(out), **OPTIONS).history["version"] == 1
    assert stamps_of(out) == before  # nothing has changed
    second = way(records(SECOND), str(out), **OPTIONS)
    assert [second.history[key] for key in ("version", "added", "removed")] == [2, 2, 2]
    assert pictures_of(out) == wanted(SECOND)
    assert pictures_of(out, version=1).keys() == FIRST.keys()
    third = way(records({"q": 30}), str(out), **OPTIONS, keep_missing=True)
    assert [third.history[key] for key in ("added", "removed")] == [1, 0]
    assert pictures_of(out) == wanted({**SECOND, "q": 30})
    assert judge(str(out)).is_sound
    assert not list(out.rglob("*.bin"))


def test_files_are_compared_by_their_etag(tmp_path: Path) -> None:
    out, paths = tmp_path / "out", {}
    for name, seed in FIRST.items():
        paths[name] = tmp_path / f"{name}.png"
        paths[name].write_bytes(png_of(seed))
    rows = [{"id": name, "image": str(path), "label": "a"} for name, path in paths.items()]
    sw.write(rows, str(out), **OPTIONS)
    paths["r2"].write_bytes(png_of(50))
    history = sw.write(rows, str(out), **OPTIONS).history
    assert (history["added"], history["removed"]) == (1, 1)
    assert pictures_of(out)["r2"][0] == png_of(50)


def test_two_appends_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    sw.write(records(FIRST), out, **OPTIONS)
    with sw.Writer(out, **OPTIONS, keep_missing=True) as one:
        for each in records({"one": 30}):
            one.write(each)
        by_writer(records({"other": 31}), out, **OPTIONS, keep_missing=True)
    assert pictures_of(Path(out)) == wanted({**FIRST, "one": 30, "other": 31})


def test_appends_that_are_refused(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    without = [{"image": png_of(1), "label": "a"}]
    with pytest.raises(
        UsageError, match=r"if_exists='append' compares .* give each record .* 'id'"
    ):
        sw.write(without, out, **OPTIONS)
    assert not (tmp_path / "out").exists()
    sw.write(records(FIRST), out, **OPTIONS)
    before = stamps_of(tmp_path / "out")
    with pytest.raises(UsageError, match="keep_missing=True needs if_exists='append', not resume"):
        sw.write(records(FIRST), out, keep_missing=True)
    with pytest.raises(BuildError, match=r"other settings .* or build into another output"):
        sw.write(records(FIRST), out, if_exists="append", name="grown")
    with pytest.raises(BuildError, match=r"'score' is missing there.* bring INPUT or schema= in"):
        sw.write(records(FIRST, score=1.5), out, **OPTIONS)
    bad = records({**FIRST, "bad": 9})
    bad[-1]["image"] = b"no image"
    with pytest.raises(TooManyRejectsError, match=r"\n  not_an_image: bad: the file"):
        sw.write(bad, out, **OPTIONS, max_rejects=0)
    after = stamps_of(tmp_path / "out")
    assert {name: at for name, at in after.items() if "generations" not in name} == before
    assert sw.open(out).history["version"] == 1


def _fails(**options: Any) -> Callable[[str], Any]:
    return lambda out: sw.write(records(FIRST), out, **options)


def _rejected(out: str) -> None:
    rows = [{"image": png_of(number), "label": "a"} for number in range(9)]
    rows[7]["image"] = b"no image"
    sw.write(rows, out, max_rejects=0)


@pytest.mark.parametrize(
    ("fails", "message"),
    [
        (_fails(stratify=True), "stratify=True needs split=, such as split='train=0.8,test=0.2'"),
        (_fails(split={"a": 0.5, "b": 0.9}), "split='a=0.5,b=0.9': fractions must"),
        (_fails(schema="nope"), "schema='nope' is neither a ready schema"),
        (_fails(shard_sise="1MB"), "'shard_sise=1MB' is not an option .* did you mean shard_size="),
        (_fails(check="x"), "check: invalid choice: 'x'"),
        (_fails(encode="jpeg", schema="records"), "encode= is for images, and schema= has none"),
        (_rejected, "more than max_reject(s=0|_fraction=0.01)(.|\n)*\n  not_an_image: 7: the file"),
        (lambda out: sw.write([*records(FIRST), 3], out), "record 6: a record must be a dict"),
        (lambda out: sw.open(out, storage_options={"nope": 1}), r"^storage_options"),
        (
            lambda out: sw.Reader(out, global_batch_size=1, storage_options={"nope": 1}),
            "^storage_o",
        ),
        (lambda out: sw.load(out, storage_options={"nope": 1}), r"^storage_options"),
    ],
)
def test_errors_speak_python(tmp_path: Path, fails: Callable[[str], Any], message: str) -> None:
    with pytest.raises(ShardwrightError, match=message) as raised:
        fails(str(tmp_path / "out"))
    assert "--" not in str(raised.value)
