"""The walk over a serialized tf.Example agrees with protobuf's parser on every form of it."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shardwright.format.entries import bytes_span, find_features, read_values
from shardwright.format.example import ExampleFault, parse_example, varint
from tests.support import damage, random_tests

NAMES = ["a", "id", "image/class/label", "Löwe", "x" * 127, "y" * 128]
# The fourth is an unknown field whose content looks like an entry of a wanted feature.
UNKNOWN = [
    b"", b"\x78\x05", b"\x7a\x03abc", b"\x7a\x0a" + b"\x0a\x01a\x12\x05\x1a\x03\x0a\x01\x07",
    b"\x7d\x01\x02\x03\x04", b"\x79\x01\x02\x03\x04\x05\x06\x07\x08",
]  # fmt: skip
unknown = st.sampled_from(UNKNOWN)
int64s = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300)
float32s = st.floats(width=32, allow_nan=False)


def field(tag: int, content: bytes) -> bytes:
    return bytes([tag]) + varint(len(content)) + content


def long_varint(value: int) -> bytes:
    """Return a varint that is one byte longer than necessary."""
    short = varint(value)
    return short[:-1] + bytes([short[-1] | 0x80, 0])


def packed_ints(values: list[int]) -> bytes:
    return b"".join(varint(value % 2**64) for value in values)


def packed_floats(values: list[float]) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def unpacked(values: list[int] | list[float]) -> bytes:
    if values and isinstance(values[0], float):
        return b"".join(b"\x0d" + struct.pack("<f", value) for value in values)
    return b"".join(b"\x08" + varint(int(value) % 2**64) for value in values)


ints = st.lists(int64s, max_size=6)
floats = st.lists(float32s, max_size=6)
small_ints = st.lists(st.integers(0, 127), max_size=6)
texts = st.lists(st.binary(max_size=40), max_size=4)
lists = st.one_of(
    st.binary(max_size=300).map(lambda value: (0x0A, field(0x0A, value))),
    texts.map(lambda values: (0x0A, b"".join(field(0x0A, value) for value in values))),
    floats.map(lambda values: (0x12, field(0x0A, packed_floats(values)))),
    floats.map(lambda values: (0x12, unpacked(values))),
    ints.map(lambda values: (0x1A, field(0x0A, packed_ints(values)))),
    small_ints.map(lambda values: (0x1A, field(0x0A, packed_ints(values)))),
    ints.map(lambda values: (0x1A, unpacked(values))),
    st.tuples(ints, ints).map(
        lambda two: (0x1A, field(0x0A, packed_ints(two[0])) + unpacked(two[1]))
    ),
)
# Some Features have no kind or several fields: those of one kind are merged, of two the last holds.
features = st.lists(lists, max_size=2).map(lambda found: b"".join(field(*one) for one in found))
features |= lists.map(lambda one: field(*one))


@st.composite
def entries(draw: st.DrawFn, usual: bool) -> bytes:
    key, value = field(0x0A, draw(st.sampled_from(NAMES)).encode()), field(0x12, draw(features))
    if usual:
        return field(0x0A, key + value)
    forms = [
        value + key,
        key,
        value,
        b"\x7a\x01a" + value,  # an unknown field in the place of the key
        key + value + field(0x12, draw(features)),
        key + value + field(0x0A, b"id"),
        field(0x0A, b"other") + key + value,
        key + draw(unknown) + value + draw(unknown),
        key + value,
    ]
    inside = draw(st.sampled_from(forms))
    length = draw(st.sampled_from([varint, varint, varint, long_varint]))(len(inside))
    return b"\x0a" + length + inside


@st.composite
def examples(draw: st.DrawFn) -> bytes:
    """Draw serialized tf.Examples: half in the usual form, keys in any order, some twice."""
    usual = draw(st.booleans())
    body = b"".join(draw(st.lists(entries(usual), max_size=6)))
    if usual:
        return field(0x0A, body)
    more = b"".join(draw(st.lists(entries(True), max_size=2)))
    parts = [field(0x0A, body + draw(unknown)), draw(unknown), field(0x0A, more)]
    return b"".join(parts[: draw(st.integers(1, 3))])


def walked(block: bytes, start: int, stop: int, names: list[str]) -> dict[str, list[object]]:
    found, spans = find_features(block, start, stop, {name.encode() for name in names})
    read = {key.decode(): read_values(found, span) for key, span in spans.items()}
    for key, span in spans.items():
        place = bytes_span(found, span)
        if place is not None:
            assert read[key.decode()] == ("bytes_list", [found[place[0] : place[1]]])
    return {
        name: values.tolist() if isinstance(values, np.ndarray) else list(values)
        for name, (_, values) in read.items()
    }


@random_tests.examples(150)
@given(examples(), st.binary(max_size=20), st.binary(max_size=20), st.sets(st.sampled_from(NAMES)))
@example(b"", b"", b"", set(NAMES))
def test_agrees_with_protobuf(data: bytes, before: bytes, after: bytes, names: set[str]) -> None:
    """Amid a block of other bytes, with and without the features that are not wanted."""
    parsed = parse_example(data)
    for wanted in (NAMES, sorted(names)):
        found = walked(before + data + after, len(before), len(before) + len(data), wanted)
        assert found == {name: parsed[name] for name in wanted if name in parsed}


@random_tests.examples(150)
@given(examples(), st.data())
def test_agrees_with_protobuf_on_damaged_bytes(data: bytes, draw: st.DataObject) -> None:
    damaged = bytearray(data or b"\x0a\x00")
    for _ in range(draw.draw(st.integers(0, 2))):
        damaged[draw.draw(st.integers(0, len(damaged) - 1))] = draw.draw(st.integers(0, 255))
    damaged = damaged[: draw.draw(st.integers(0, len(damaged)))]
    after = draw.draw(st.binary(max_size=2))
    try:
        found = walked(bytes(damaged) + after, 0, len(damaged), NAMES)
    except ExampleFault:
        with pytest.raises(ExampleFault):
            parse_example(bytes(damaged))
        return
    try:
        parsed = parse_example(bytes(damaged))
    except ExampleFault:
        return  # the damage is in an unwanted feature
    assert repr(found) == repr({name: parsed[name] for name in found}), "NaN is not itself"
    assert found.keys() == parsed.keys() & set(NAMES)


def field5(tag: int, content: bytes) -> bytes:
    """Return a field whose length takes five bytes."""
    length = len(content)
    return bytes([tag, length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, 0x80, 0x80, 0]) + content


LABEL = b"\x1a\x03\x0a\x01\x07"
# A walk that misreads the key's length takes its last byte for the tag of a value of 18 bytes.
LONG_KEY = "k" * 129 + "\x12"
KEY, VALUE = field(0x0A, b"n"), field(0x12, LABEL)


@pytest.mark.parametrize(("data", "wanted"), [
    (field5(0x0A, damage.entry("n", [7])), {"n": [7]}),
    (field(0x0A, field5(0x0A, KEY + VALUE)), {"n": [7]}),
    (field(0x0A, field(0x0A, KEY + field5(0x12, field5(0x0A, field5(0x0A, bytes(201)))))),
     {"n": [bytes(201)]}),
    (field(0x0A, damage.entry(LONG_KEY, [bytes(13)])), {LONG_KEY: [bytes(13)]}),
    # An unknown field like an entry; one like a key; and one like a list.
    (field(0x0A, damage.entry("n", [1]) + field(0x7A, KEY + VALUE)), {"n": [1]}),
    (field(0x0A, field(0x0A, field(0x7A, b"n") + VALUE)), {}),
    (field(0x0A, field(0x0A, KEY + field(0x12, field(0x1A, field(0x12, b"\x07"))))), {"n": []}),
    (field(0x0A, damage.entry("n", [1])) + field(0x0A, damage.entry("n", [2])), {"n": [2]}),
])  # fmt: skip
def test_rare_forms(data: bytes, wanted: dict[str, list[object]]) -> None:
    assert parse_example(data) == wanted
    assert walked(data, 0, len(data), ["n", LONG_KEY]) == wanted


@pytest.mark.parametrize("inside", [
    KEY + b"\x12\x06" + LABEL,  # a value one byte longer than its entry
    b"\x0a\x20n" + VALUE,  # a key longer than everything
    KEY + field(0x12, b"\x12\x05\x0a\x03\x01\x02\x03"),  # three bytes of floats
    KEY + field(0x12, b"\x1a\x03\x0a\x01\x87"),  # a number without an end
])  # fmt: skip
def test_damage_inside_an_entry(inside: bytes) -> None:
    data = field(0x0A, field(0x0A, inside))
    with pytest.raises(ExampleFault):
        parse_example(data)
    with pytest.raises(ExampleFault):
        walked(data + bytes(100), 0, len(data), ["n"])


def test_an_entry_longer_than_the_example() -> None:
    """By the one byte that follows it in the block."""
    entry = damage.entry("n", [7])
    data = field(0x0A, entry)[:-1].replace(field(0x0A, entry)[:2], bytes([0x0A, len(entry) - 1]))
    with pytest.raises(ExampleFault):
        walked(data + entry[-1:] + bytes(10), 0, len(data), ["n"])


@pytest.mark.parametrize("num_bytes", [1, 100, 110, 120, 128, 16_370, 16_384, 2_097_152])
def test_lengths_of_every_size(num_bytes: int) -> None:
    """The lengths around an image grow by a byte at various sizes."""
    for size in range(max(0, num_bytes - 13), num_bytes + 1):
        image = bytes(range(256)) * (size // 256 + 1)
        data = damage.example({"id": [b"x"], "image": [image[:size]], "label": [300]})
        found, spans = find_features(data, 0, len(data), {b"image", b"label"})
        assert found is data, "the usual form needs no protobuf"
        place = bytes_span(found, spans[b"image"])
        assert place is not None
        assert data[slice(*place)] == image[:size]
        assert read_values(found, spans[b"label"]) == ("int64_list", [300])


def test_unwanted_features_are_not_parsed() -> None:
    """An entry that holds no Feature at all, beside a wanted one."""
    entry = field(0x0A, field(0x0A, b"bad") + field(0x12, b"\xff\xff"))
    data = field(0x0A, entry + damage.entry("n", [5]))
    with pytest.raises(ExampleFault):
        parse_example(data)
    assert walked(data, 0, len(data), ["n"]) == {"n": [5]}


def test_a_mapped_file(tmp_path: Path) -> None:
    data = damage.example({"id": [b"x"], "scores": [0.5, 1.5], "image": [bytes(300)]})
    (tmp_path / "shard").write_bytes(b"frame" + data)
    with open(tmp_path / "shard", "rb") as file:
        block = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    with block:
        found, spans = find_features(block, 5, len(block), {b"image", b"scores"})
        place = bytes_span(found, spans[b"image"])
        assert place is not None
        assert found[slice(*place)] == bytes(300)
        assert read_values(found, spans[b"scores"])[1] == pytest.approx([0.5, 1.5])
