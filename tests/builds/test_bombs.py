"""Small files of others that decode to gigabytes: an error that names them, in bounded memory."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shardwright.format.contents import FileContent
from shardwright.format.index import INDEX_SCHEMA
from shardwright.inspect import cli
from tests.support.bombs import arrow_memory, packed, repeated
from tests.support.damage import edit_json, first_shard

NUM_ROWS = 100_000
MOST = 1200 << 20  # a step of 512 MB while it grows, and eight shards at a time


@pytest.fixture
def hostile(dataset: Path) -> Path:
    """A dataset whose first index has 100,000 rows that share an id of 60 kB."""
    name = first_shard(dataset)
    path = dataset / name.sidecar
    summary = json.loads(pq.read_schema(path).metadata[b"shardwright"])
    facts = {"num_records": NUM_ROWS, "num_bytes": 100 * NUM_ROWS}
    columns: dict[str, Any] = {each.name: pa.nulls(NUM_ROWS, each.type) for each in INDEX_SCHEMA}
    for each in INDEX_SCHEMA:
        if not each.nullable:
            columns[each.name] = pa.array([1]).take([0] * NUM_ROWS).cast(each.type)
    columns["id"] = repeated("x" * 60_000, NUM_ROWS)
    text = json.dumps({**summary, **facts}).encode()
    data = packed(pa.table(columns), {b"shardwright": text})
    assert len(data) < 10_000
    path.write_bytes(data)
    content = FileContent.of(data)
    facts |= {"sidecar_bytes": content.num_bytes, "sidecar_crc32c": content.crc32c}

    def edit(manifest: dict[str, Any]) -> None:
        manifest["splits"][name.split]["shards"][name.index].update(facts)

    edit_json(dataset / "manifest.json", edit)
    return dataset


_TOO_MUCH = r"\.parquet has [0-9.]+ kB and decodes to more than 268\.4 MB"


@pytest.mark.long_but_first
@pytest.mark.parametrize(("words", "told"), [
    (["show", "DATASET", "a"], _TOO_MUCH),
    (["verify", "DATASET"], "bytes, the manifest says 10,000,000"),  # it decodes no index
    (["diff", "DATASET", "ZOO"], _TOO_MUCH),
    (["erase", "DATASET", "--ids", "IDS"], _TOO_MUCH),
    (["repair", "DATASET"], _TOO_MUCH),
], ids=lambda each: each[0] if isinstance(each, list) else "")  # fmt: skip
def test_an_index_of_gigabytes(
    words: list[str], told: str, hostile: Path, zoo: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ids = hostile.with_name("ids.txt")
    ids.write_text("ape/1.png\n")
    places = {"DATASET": str(hostile), "ZOO": str(zoo), "IDS": str(ids)}
    with arrow_memory() as memory:
        assert cli.main([places.get(word, word) for word in words]) != 0
    assert memory.max_memory() < MOST
    printed = "".join(capfd.readouterr())
    assert re.search(told, printed)
