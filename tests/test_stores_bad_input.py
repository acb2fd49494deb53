"""What is wrong with objects is told as of local files: a reject with a reason, or one clear line."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote

import pytest

from shardwright.errors import NotADatasetError
from shardwright.manifest import read_manifest
from shardwright.storage import Folder, StorageOptions
from tests.build_helpers import (
    build,
    hashes_of,
    make_images,
    png_of,
    reasons_of,
    record_ids,
    rejects_of,
    start_build,
    wait_for,
    write_table,
)
from tests.fault_proxy import Fault
from tests.image_corpus import all_samples
from tests.store_places import PAIR_IDS, PAIRS, STORES, Kind, Place, Places

ODD = (
    "--name",
    "odd",
    "--check",
    "decode",
    "--max-reject-fraction",
    "1",
    "--records-per-shard",
    "20",
)


def last_line(capfd: pytest.CaptureFixture[str]) -> str:
    """The last line on stderr; a user's mistake never shows a stack trace."""
    said = capfd.readouterr().err
    assert "Traceback" not in said
    line = said.splitlines()[-1]
    assert line.startswith("shardwright: error: ")
    return line


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every sample under a name that is an image's, and under one that is not."""
    root = tmp_path_factory.mktemp("corpus") / "in"
    for sample in all_samples():
        for folder, suffix in (("named", ".jpg"), ("bare", "")):
            (root / folder).mkdir(parents=True, exist_ok=True)
            (root / folder / f"{sample.name}{suffix}").write_bytes(sample.data)
    # What only a file system has. Copied to a store, links are what they lead to, or nothing.
    (root / "named/broken.jpg").symlink_to("nowhere")
    (root / "named/loop").symlink_to(root, target_is_directory=True)
    os.mkfifo(root / "named/pipe.jpg")
    Path(os.fsdecode(os.fsencode(root / "named") + b"/caf\xe9.jpg")).write_bytes(png_of(1))
    assert build(root, root.parent / "reference", *ODD) == 0
    return root


ONLY_FILES = {
    "named/broken.jpg": "missing_file",
    "named/loop": "other_file",
    "named/pipe.jpg": "unreadable",
    "": "bad_id",
}


def told(root: Path) -> list[tuple[str, str, str]]:
    return sorted((row["id"], row["reason"], row["detail"]) for row in rejects_of(root))


@pytest.fixture(scope="module")
def odd_sources(corpus: Path, places: Places) -> dict[Kind, Place]:
    """The samples, in every kind of place; links and pipes are not copied to stores."""
    found: dict[Kind, Place] = {"local": Place(str(corpus))}
    for kind in STORES:
        found[kind] = places.make(kind)
        for folder in ("named", "bare"):
            for path in sorted((corpus / folder).iterdir()):
                if (
                    path.is_file()
                    and not path.is_symlink()
                    and b"caf" not in os.fsencode(path.name)
                ):
                    found[kind].put(f"{folder}/{path.name}", path.read_bytes())
    return found


@pytest.mark.parametrize(("source_kind", "output_kind"), PAIRS, ids=PAIR_IDS)
def test_odd_images_are_told_as_of_local_files(
    odd_sources: dict[Kind, Place],
    corpus: Path,
    places: Places,
    tmp_path: Path,
    source_kind: Kind,
    output_kind: Kind,
) -> None:
    source, output, reference = (
        odd_sources[source_kind],
        places.make(output_kind),
        corpus.parent / "reference",
    )
    assert build(source.uri, output.uri, *source.args, *output.args, *ODD) == 0
    root = output.download(tmp_path / "out")
    expected, found = told(reference), told(root)
    if source_kind != "local":
        at = expected.index(("bare/empty", "empty_file", "the file has no bytes"))
        expected[at] = ("bare/empty", "other_file", "stands for a folder")  # as many tools mark one
        assert {row[0]: row[1] for row in set(expected) - set(found)} == ONLY_FILES
        expected = [row for row in expected if row[0] not in ONLY_FILES]
    assert found == expected
    assert len(found) > 120
    assert hashes_of(root) == hashes_of(reference)


@pytest.mark.parametrize("kind", STORES)
def test_what_only_a_store_has(places: Places, tmp_path: Path, kind: Kind) -> None:
    """Keys that are no paths, which clients can list and not ask for; and objects that stand for folders."""
    source = places.make(kind).fill(make_images(tmp_path / "in", 6))
    odd = {
        "cat/": "other_file",
        "empty folder/": "other_file",
        "cat/line\nbreak.png": "bad_id",
        "cat/\x7f.png": "bad_id",
    }
    if kind == "gs":  # file-based S3 servers make paths of such keys
        odd |= {
            "cat//double.png": "bad_id",
            "cat/./dot.png": "bad_id",
            "../up.png": "bad_id",
            "/root.png": "bad_id",
        }
    for name in odd:
        source.put(name, b"" if name.endswith("/") else png_of(9))
    assert build(source.uri, tmp_path / "out", *source.args, "--max-reject-fraction", "1") == 0
    found = reasons_of(tmp_path / "out")
    assert {name.rstrip("/"): reason for name, reason in odd.items()} == {
        name.rstrip("/"): reason for name, reason in found.items()
    }
    for row in rejects_of(tmp_path / "out"):
        assert row["reason"] == "other_file" or row["detail"].endswith(
            "which cannot be asked for: rename the object"
        )
    assert len(record_ids(tmp_path / "out")) == 6


@pytest.mark.parametrize("kind", STORES)
def test_objects_that_change_while_they_are_read(
    places: Places, tmp_path: Path, kind: Kind
) -> None:
    """The build fails, because too many did, and goes on with what is there then."""
    source, output = places.make(kind).fill(make_images(tmp_path / "in", 24)), places.make(kind)
    for name in ("gone", "other", "longer"):
        source.put(f"cat/{name}.zz.png", png_of(1))
    options = ("--name", "x", "--records-per-shard", "5")
    with places.proxy(source) as (proxy, through):
        proxy.add(Fault("latency", None, method="GET", path_contains="zz", latency_msec=2000))
        running = start_build(
            tmp_path / "stderr", through.uri, output.uri, *through.args, *output.args, *options
        )
        wait_for(lambda: sum("zz" in unquote(target) for _, target in proxy.requests) == 1, running)
        source.remove("cat/gone.zz.png")
        source.put("cat/other.zz.png", png_of(1)[::-1])
        source.put("cat/longer.zz.png", png_of(1) + b"\0")
        proxy.clear()
        assert running.wait() == 1
    (line,) = (line for line in running.said.splitlines() if "error: " in line)
    assert (
        "3 of 27 inputs (11.11%) are rejects, more than --max-reject-fraction 0.01 allows (2 changed, 1 missing_file)"
        in line
    )
    with pytest.raises(NotADatasetError, match="unfinished build"):
        read_manifest(Folder.at(output.uri, StorageOptions.of(output.storage_options)))
    found = {
        row["id"]: (row["reason"], row["detail"])
        for row in rejects_of(output.download(tmp_path / "first"))
    }
    changed = "has changed since it was listed"
    assert found == {
        "cat/gone.zz.png": (
            "missing_file",
            f"{source.at('cat/gone.zz.png')}: there is no such object",
        ),
        "cat/other.zz.png": ("changed", f"{source.at('cat/other.zz.png')} {changed}"),
        "cat/longer.zz.png": ("changed", f"{source.at('cat/longer.zz.png')} {changed}"),
    }

    source.put("cat/other.zz.png", png_of(2))
    assert build(source.uri, output.uri, *source.args, *output.args, *options) == 0
    root = output.download(tmp_path / "second")
    assert len(record_ids(root)) == 26
    assert reasons_of(root) == {}
    assert build(source.uri, tmp_path / "fresh", *source.args, *options) == 0
    assert hashes_of(root) == hashes_of(tmp_path / "fresh")


@pytest.mark.parametrize("kind", STORES)
def test_a_table_whose_sizes_are_stale(places: Places, tmp_path: Path, kind: Kind) -> None:
    """Nobody looks at the objects before they are read, so only then are they found out."""
    source = places.make(kind)
    names = [f"{number}.png" for number in range(10)]
    for number, name in enumerate(names):
        source.put(name, png_of(number))
    source.put("empty.png", b"")
    bad = {
        "gone.png": "missing_file",
        "empty.png": "empty_file",
        "new\nline.png": "unreadable",
        "../../../../out.png": "unreadable",
    }
    rows = [{"path": name, "bytes": 100 + 9 * len(name)} for name in [*names, *bad]]
    source.put("table.jsonl", write_table(tmp_path / "table.jsonl", rows).read_bytes())
    options = ("--size-column", "bytes", "--max-reject-fraction", "0.5", "--records-per-shard", "4")
    assert build(source.at("table.jsonl"), tmp_path / "out", *source.args, *options) == 0
    assert reasons_of(tmp_path / "out") == bad
    assert sorted(record_ids(tmp_path / "out")) == names


@pytest.mark.parametrize(
    ("kind", "as_table"),
    [("gs", False), ("s3", False), ("s3", True)],
    ids=["gs-folder", "s3-folder", "s3-table"],
)
def test_objects_that_may_not_be_read(
    places: Places, tmp_path: Path, kind: Kind, as_table: bool
) -> None:
    source = places.make(kind).fill(make_images(tmp_path / "in", 9))
    for name in ("denied/a.png", "denied/b.png"):
        source.put(name, png_of(1))
    options = ["--max-reject-fraction", "0.2", "--name", "x"]
    given = source.uri
    if as_table:
        rows = [{"path": source.at(name)} for name in source.names()]
        given = str(write_table(tmp_path / "t.jsonl", rows))
    with places.proxy(source) as (proxy, through):
        if kind == "s3":
            proxy.add(Fault("status", None, status=403, path_contains="denied/"))
        assert build(given, tmp_path / "out", *through.args, *options) == 0
        asked = sum("denied/a" in unquote(target) for _, target in proxy.requests)
    assert 1 <= asked <= 3, "no try more could help"
    found = {
        Path(row["uri"]).name: (row["reason"], row["detail"])
        for row in rejects_of(tmp_path / "out")
    }
    assert set(found) == {"a.png", "b.png"}
    for reason, detail in found.values():
        assert reason == "unreadable"
        assert "access denied: these credentials may not read it (403" in detail
    assert len(record_ids(tmp_path / "out")) == 9


@pytest.mark.parametrize(
    ("kind", "content", "planned"),
    [("s3", b"", True), ("gs", b"no image", False)],
    ids=["before-writing", "after-writing"],
)
def test_too_many_rejects(
    places: Places,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    kind: Kind,
    content: bytes,
    planned: bool,
) -> None:
    source, output = places.make(kind).fill(make_images(tmp_path / "in", 12)), places.make(kind)
    source.put("cat/bad.png", content)
    options = (*source.args, *output.args, "--records-per-shard", "4")
    assert build(source.uri, output.uri, *options) == 1
    assert (
        "1 of 13 inputs (7.69%) are rejects, more than --max-reject-fraction 0.01 allows"
        in last_line(capfd)
    )
    before = output.stamps()
    assert "manifest.json" not in before
    assert ("plan.json" not in before) is planned
    assert build(source.uri, output.uri, *options, "--max-reject-fraction", "0.1") == 0
    after = output.stamps()
    shards = [name for name in before if "tfrecord" in name]
    assert bool(shards) is not planned
    assert {name: after[name] for name in shards} == {name: before[name] for name in shards}, (
        "only published, not written again"
    )
    assert "rejects/failed.parquet" not in after


@pytest.mark.parametrize("kind", STORES)
def test_an_input_without_any_image(
    places: Places, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: Kind
) -> None:
    source = places.make(kind)
    assert build(source.uri, tmp_path / "out", *source.args) == 2
    assert f"INPUT {source.uri} does not exist: there are no objects below it" in last_line(capfd)
    source.put("cat/", b"")
    source.put("cat/notes.txt", b"x")
    assert build(source.uri, tmp_path / "out", *source.args) == 1
    assert "INPUT has no images: every file is a reject (2 other_file)" in last_line(capfd)
    assert not (tmp_path / "out/plan.json").exists()


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize(
    ("source", "output", "said"),
    [
        ("/in", "/in/out", "is inside INPUT"),
        ("/in", "/in/", "is inside INPUT"),
        ("/in/cat", "/in", "is inside OUTPUT"),
        ("", "/out", "is inside INPUT"),
        ("/in", "//out", "an empty, '.' or '..' part in its name"),
        ("/in", "/a/../out", "an empty, '.' or '..' part in its name"),
        ("/nowhere", "/out", "does not exist: there are no objects below it"),
        ("/in/gone.csv", "/out", "does not exist: there are no objects below it"),
    ],
)
def test_places_that_cannot_be(
    shared: dict[Kind, Place],
    capfd: pytest.CaptureFixture[str],
    kind: Kind,
    source: str,
    output: str,
    said: str,
) -> None:
    place = shared[kind]
    before = place.stamps()
    root = f"{kind}://{place.bucket}"
    assert build(root + source, root + output, *place.args) == 2
    assert said in last_line(capfd)
    assert place.stamps() == before


@pytest.fixture(scope="module")
def shared(places: Places, tmp_path_factory: pytest.TempPathFactory) -> dict[Kind, Place]:
    """Images at BUCKET/in."""
    images = make_images(tmp_path_factory.mktemp("shared") / "in", 3)
    found = {}
    for kind in STORES:
        made = places.make(kind)
        found[kind] = Place(f"{kind}://{made.bucket}/in", made.server).fill(images)
    return found
