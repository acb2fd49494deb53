"""Bad objects are rejected like local files, with a reason; bad places fail with one error."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pytest

from shardwright.errors import NotADatasetError
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.support import build_helpers as builds
from tests.support import store_builds as stores
from tests.support.build_helpers import (
    build,
    make_images,
    png_of,
    reasons_of,
    record_ids,
    rejects_of,
)
from tests.support.image_corpus import all_samples
from tests.support.store_builds import (
    Pair,
    Sources,
    assert_as_reference,
    build_between,
    by_store,
    error_of,
)
from tests.support.store_places import STORES, Kind, Place, Places

ANY_REJECTS = ("--max-reject-fraction", "1")
ODD = ("--name", "odd", "--check", "decode", *ANY_REJECTS, "--records-per-shard", "20")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every sample under a name that is an image's, and under one that is not."""
    root = tmp_path_factory.mktemp("corpus") / "in"
    for folder, suffix in (("named", ".jpg"), ("bare", "")):
        (root / folder).mkdir(parents=True)
        for sample in all_samples():
            (root / folder / f"{sample.name}{suffix}").write_bytes(sample.data)
    return stores.make_reference(root, *ODD)


@pytest.fixture(scope="module")
def odd_sources(corpus: Path, places: Places) -> Sources:
    return stores.fill_places(places, corpus)


def num_requests(proxy: FaultProxy, text: str) -> int:
    return sum(text in unquote(target) for _, target in proxy.requests)


def detailed_rejects(root: Path) -> list[tuple[str, str, str]]:
    return sorted((row["id"], row["reason"], row["detail"]) for row in rejects_of(root))


@pytest.mark.long
@stores.by_pair
def test_odd_images_are_rejected_like_local_files(
    odd_sources: Sources, corpus: Path, places: Places, tmp_path: Path, pair: Pair
) -> None:
    output = places.make(pair[1])
    assert build_between(odd_sources[pair[0]], output, *ODD) == 0
    found = detailed_rejects(assert_as_reference(output, corpus, tmp_path / "out"))
    expected = detailed_rejects(corpus.parent / "reference")
    if pair[0] != "local":
        empty = expected.index(("bare/empty", "empty_file", "the file has no bytes"))
        expected[empty] = ("bare/empty", "other_file", "stands for a folder")  # so tools mark one
    assert found == expected
    assert len(found) > 120


@pytest.mark.long_but_first
@by_store
def test_keys_that_only_a_store_has(places: Places, tmp_path: Path, kind: Kind) -> None:
    """Keys that are no paths can be listed and not requested; some objects stand for folders."""
    source = places.make(kind).fill(make_images(tmp_path / "in", 6))
    odd = dict.fromkeys(("cat", "empty folder"), "other_file")
    odd["cat/\x7f.png"] = "bad_id"
    if not (kind == "s3" and places.has_moto):  # it finds no object with a line break in its key
        odd["cat/line\nbreak.png"] = "bad_id"
    if kind == "gs":  # file-based S3 servers make paths of such keys
        names = ("cat//double.png", "cat/./dot.png", "../up.png", "/root.png")
        odd |= dict.fromkeys(names, "bad_id")
    for name, reason in odd.items():
        folder = reason == "other_file"
        source.put(f"{name}/" if folder else name, b"" if folder else png_of(9))
    assert build_between(source, tmp_path / "out", *ANY_REJECTS) == 0
    found = reasons_of(tmp_path / "out")
    assert {name.rstrip("/"): reason for name, reason in found.items()} == odd
    advice = "which is not supported: rename the object"
    for row in rejects_of(tmp_path / "out"):
        assert row["reason"] == "other_file" or row["detail"].endswith(advice)
    assert len(record_ids(tmp_path / "out")) == 6


@pytest.mark.long
@by_store
def test_objects_that_change_during_a_build(places: Places, tmp_path: Path, kind: Kind) -> None:
    """The build fails because of too many rejects; the next one takes the present objects."""
    source, output = places.make(kind).fill(make_images(tmp_path / "in", 24)), places.make(kind)
    gone, other, longer = names = [f"cat/{name}.zz.png" for name in ("gone", "other", "longer")]
    for name in names:
        source.put(name, png_of(1))
    options = ("--name", "x", "--records-per-shard", "5", "--max-reject-fraction", "0.01")
    argv = (source.uri, output.uri, *source.args, *output.args, *options)
    running = builds.start_build(tmp_path / "stderr", *argv, waits=builds.before_shard(0))
    builds.wait_for(lambda: "plan.json" in output.names(), running)
    source.remove(gone)
    source.put(other, png_of(1)[::-1])
    source.put(longer, png_of(1) + b"\0")
    running.go_on()
    assert running.wait() == 1
    assert (
        "3 of 27 inputs (11.11%) are rejects, more than --max-reject-fraction 0.01 allows "
        "(2 changed, 1 missing_file)"
    ) in error_of(running.said)
    with pytest.raises(NotADatasetError, match="unfinished build"):
        stores.manifest_at(output)
    assert detailed_rejects(output.download(tmp_path / "first")) == [
        (gone, "missing_file", f"{source.at(gone)}: there is no such object"),
        (longer, "changed", f"{source.at(longer)} has changed since it was listed"),
        (other, "changed", f"{source.at(other)} has changed since it was listed"),
    ]
    source.put(other, png_of(2))
    assert_is_a_new_build(source, output, tmp_path, *options)


def assert_is_a_new_build(source: Place, output: Place, tmp_path: Path, *options: str) -> None:
    for place in (output, tmp_path / "fresh"):
        assert build_between(source, place, *options) == 0
    root = output.download(tmp_path / "second")
    assert (len(record_ids(root)), reasons_of(root)) == (26, {})
    assert builds.hashes_of(root) == builds.hashes_of(tmp_path / "fresh")


@pytest.mark.long_but_first
@by_store
def test_a_table_whose_sizes_are_stale(places: Places, tmp_path: Path, kind: Kind) -> None:
    """Objects with a stated size are first seen when they are read."""
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
    source.put("table.jsonl", builds.write_table(tmp_path / "table.jsonl", rows).read_bytes())
    options = ("--size-column", "bytes", "--max-reject-fraction", "0.5", "--records-per-shard", "4")
    assert build(source.at("table.jsonl"), tmp_path / "out", *source.args, *options) == 0
    assert reasons_of(tmp_path / "out") == bad
    assert sorted(record_ids(tmp_path / "out")) == names


@pytest.mark.long_but_first
@pytest.mark.parametrize(("kind", "table"), [("gs", False), ("s3", False), ("s3", True)])
def test_objects_that_are_denied(places: Places, tmp_path: Path, kind: Kind, table: bool) -> None:
    source = places.make(kind).fill(make_images(tmp_path / "in", 9))
    for name in ("denied/a.png", "denied/b.png"):
        source.put(name, png_of(1))
    given: str | Path = source.uri
    if table:
        rows = [{"path": source.at(name)} for name in source.names()]
        given = builds.write_table(tmp_path / "t.jsonl", rows)
    with places.proxy(source) as (proxy, through):
        if kind == "s3":
            proxy.add(Fault("status", None, status=403, path_contains="denied/"))
        options = (*through.args, "--max-reject-fraction", "0.2", "--name", "x")
        assert build(given, tmp_path / "out", *options) == 0
        assert 1 <= num_requests(proxy, "denied/a") <= 3, "no retry could help"
    found = detailed_rejects(tmp_path / "out")
    assert [(image_id[-5:], reason) for image_id, reason, _ in found] == [
        ("a.png", "unreadable"),
        ("b.png", "unreadable"),
    ]
    for _, _, detail in found:
        assert "access denied: these credentials may not read it (403" in detail
    assert len(record_ids(tmp_path / "out")) == 9


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "content", "is_early"), [("s3", b"", True), ("gs", b"no image", False)]
)
def test_too_many_rejects(
    places: Places,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    kind: Kind,
    content: bytes,
    is_early: bool,
) -> None:
    source, output = places.make(kind).fill(make_images(tmp_path / "in", 12)), places.make(kind)
    source.put("cat/bad.png", content)
    options = ("--records-per-shard", "4", "--max-reject-fraction", "0.01")
    assert build_between(source, output, *options) == 1
    message = "1 of 13 inputs (7.69%) are rejects, more than --max-reject-fraction 0.01 allows"
    assert message in error_of(capfd.readouterr().err)
    before = output.stamps()
    assert "manifest.json" not in before
    assert ("plan.json" not in before) is is_early
    assert build_between(source, output, *options, "--max-reject-fraction", "0.1") == 0
    after = output.stamps()
    shards = [name for name in before if "tfrecord" in name]
    assert bool(shards) is not is_early
    assert [after[name] for name in shards] == [before[name] for name in shards], "only published"
    assert "rejects/failed.parquet" not in after


@by_store
def test_an_input_without_any_image(
    places: Places, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: Kind
) -> None:
    source = places.make(kind)
    assert build_between(source, tmp_path / "out") == 2
    message = f"INPUT {source.uri} does not exist: there are no objects below it"
    assert message in error_of(capfd.readouterr().err)
    source.put("cat/", b"")
    source.put("cat/notes.txt", b"x")
    assert build_between(source, tmp_path / "out") == 1
    message = "INPUT has no images: every file is a reject (2 other_file)"
    assert message in error_of(capfd.readouterr().err)
    assert not (tmp_path / "out/plan.json").exists()


@pytest.fixture(scope="module")
def shared(places: Places, tmp_path_factory: pytest.TempPathFactory) -> Sources:
    """Images at BUCKET/in; not to be changed."""
    images = make_images(tmp_path_factory.mktemp("shared") / "in", 3)
    made = {kind: places.make(kind) for kind in STORES}
    return {
        kind: Place(f"{kind}://{place.bucket}/in", place.server).fill(images)
        for kind, place in made.items()
    }


@by_store
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
def test_invalid_places(
    shared: Sources,
    capfd: pytest.CaptureFixture[str],
    kind: Kind,
    source: str,
    output: str,
    said: str,
) -> None:
    place = shared[kind]
    before, root = place.stamps(), f"{kind}://{place.bucket}"
    assert build(root + source, root + output, *place.args) == 2
    assert said in error_of(capfd.readouterr().err)
    assert place.stamps() == before
