"""Steps: every place of every epoch exactly once over all hosts, wherever a reading stops and on however many hosts it goes on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from shardwright.errors import UsageError
from shardwright.reader.steps import Remainder, Step, Steps

DIVISORS = {
    batch: [count for count in range(1, batch + 1) if batch % count == 0] for batch in range(1, 49)
}
REMAINDERS = list(Remainder)


@st.composite
def readings(draw: st.DrawFn, *, endless: bool = False) -> tuple[int, int, Remainder, int | None]:
    """(epoch size, global batch, remainder, epochs)."""
    batch = draw(st.one_of(st.sampled_from([1, 2, 6, 12, 24, 48]), st.integers(1, 48)))
    remainder = draw(st.sampled_from(REMAINDERS))
    multiple = st.builds(
        lambda times, more: max(1, times * batch + more), st.integers(0, 4), st.integers(-1, 1)
    )
    size = draw(st.one_of(st.integers(1, 130), multiple))
    assume(remainder != Remainder.DROP or size >= batch)
    epochs = st.integers(1, 4)
    return size, batch, remainder, draw(st.none() | epochs if endless else epochs)


READINGS = readings()
OR_ENDLESS = readings(endless=True)


def hosts(reading: tuple[int, int, Remainder, int | None], count: int) -> list[Steps]:
    size, batch, remainder, epochs = reading
    return [Steps(size, batch, host, count, remainder, epochs) for host in range(count)]


def walk(steps: Steps, position: int = 0) -> Iterator[Step]:
    while (step := steps.step_at(position)) is not None:
        yield step
        position = step.next_position


def global_step(all_hosts: list[Steps], position: int) -> tuple[list[int], int] | None:
    """(places that all hosts take together, next position); None where all of them are at the end."""
    steps = [host.step_at(position) for host in all_hosts]
    if None in steps:
        assert steps == [None] * len(steps), "hosts must end together, or those that go on hang"
        return None
    found = [step for step in steps if step is not None]
    assert {step.position for step in found} == {found[0].start}
    assert len({step.next_position for step in found}) == 1
    places = [place for step in found for place in range(step.start, step.start + step.num_places)]
    check_rows(all_hosts[0], found, len(places))
    return places, found[0].next_position


def check_rows(host: Steps, steps: list[Step], num_places: int) -> None:
    assert all(0 <= step.num_places <= step.num_rows <= host.host_batch_size for step in steps)
    assert 1 <= num_places <= host.global_batch_size
    rows = [step.num_rows for step in steps]
    if host.has_static_rows:
        assert rows == [host.host_batch_size] * len(rows)
    if host.remainder != Remainder.PAD:
        assert rows == [step.num_places for step in steps], (
            "only padding makes rows that are no records"
        )
        assert max(rows) - min(rows) <= 1, "shared out evenly"
    elif num_places < host.global_batch_size:
        filled = [step.num_places for step in steps]
        assert filled == sorted(filled, reverse=True), "fillers come last"


def expected_places(reading: tuple[int, int, Remainder, int | None]) -> list[int]:
    """What must be read: everything, or with "drop" all but the end of each epoch that fills no batch."""
    size, batch, remainder, epochs = reading
    kept = size // batch * batch if remainder == Remainder.DROP else size
    return [epoch * size + place for epoch in range(epochs or 0) for place in range(kept)]


@settings(max_examples=400, deadline=None)
@given(READINGS, st.data())
@example((7, 4, Remainder.KEEP, 2), None)
@example((7, 4, Remainder.PAD, 2), None)
@example((3, 48, Remainder.CARRY, 4), None)
@example((4, 4, Remainder.DROP, 3), None)
def test_every_place_exactly_once_whoever_reads_it(
    reading: tuple[int, int, Remainder, int], data: st.DataObject | None
) -> None:
    """THE promise. At every global batch the reading may stop and go on with another number of hosts."""
    counts = DIVISORS[reading[1]]
    position, places, stops = 0, [], 0
    while True:
        count = counts[stops % len(counts)] if data is None else data.draw(st.sampled_from(counts))
        for _ in range(1 if data is None else data.draw(st.integers(1, 6))):
            taken = global_step(hosts(reading, count), position)
            if taken is None:
                assert places == expected_places(reading)
                return
            places += taken[0]  # in order too: host 0's part, then host 1's
            position = taken[1]
        stops += 1


@settings(max_examples=150, deadline=None)
@given(READINGS)
def test_batches_are_full_but_for_the_stated_ones(reading: tuple[int, int, Remainder, int]) -> None:
    size, batch, remainder, epochs = reading
    lengths = [step.num_places for step in walk(hosts(reading, 1)[0])]
    full, rest = divmod(size, batch)
    if remainder == Remainder.CARRY:
        assert lengths == [batch] * (size * epochs // batch) + [size * epochs % batch] * (
            size * epochs % batch > 0
        )
    else:
        assert (
            lengths
            == ([batch] * full + [rest] * (rest > 0 and remainder != Remainder.DROP)) * epochs
        )


@settings(max_examples=150, deadline=None)
@given(READINGS, st.integers(1, 48), st.data())
def test_another_batch_size_misses_nothing_either(
    reading: tuple[int, int, Remainder, int], other: int, data: st.DataObject
) -> None:
    """Stopped in mid-epoch and gone on with larger or smaller batches: what "drop" leaves out is less than one of them."""
    size, batch, remainder, epochs = reading
    assume(remainder != Remainder.DROP or size >= other)
    stop = data.draw(st.integers(0, 12))
    before = list(itertools.islice(walk(hosts(reading, 1)[0]), stop))
    position = before[-1].next_position if before else 0
    after = list(walk(Steps(size, other, remainder=remainder, epochs=epochs), position))
    places = [
        place
        for step in before + after
        for place in range(step.start, step.start + step.num_places)
    ]
    assert places == sorted(set(places))
    left_out = set(range(size * epochs)) - set(places)
    if remainder != Remainder.DROP:
        assert not left_out
    for epoch in range(epochs):
        lost = sorted(place for place in left_out if place // size == epoch)
        assert len(lost) < max(batch, other)
        assert lost == list(range((epoch + 1) * size - len(lost), (epoch + 1) * size)), (
            "from an epoch's end"
        )


def positions(steps: Steps) -> list[int]:
    """Some that are the beginnings of batches, and some that are not."""
    size = steps.epoch_size
    begun = [step.next_position for step in itertools.islice(walk(steps), 8)]
    return sorted(
        {
            0,
            *begun,
            1,
            size - 1,
            size,
            size + 1,
            2 * size - steps.global_batch_size % size,
            3 * size + size // 2,
        }
    )


@settings(max_examples=150, deadline=None)
@given(OR_ENDLESS)
def test_skipping_is_stepping(reading: tuple[int, int, Remainder, int | None]) -> None:
    steps = hosts(reading, 1)[0]
    for position in positions(steps):
        now = steps.normalize(position)
        for count in range(14):
            skipped = steps.skip(position, count)
            if steps.end is None or position <= steps.end:
                assert skipped == now, (position, count)
            step = steps.step_at(now)
            now = now if step is None else step.next_position


@settings(max_examples=150, deadline=None)
@given(READINGS)
def test_counting_is_iterating(reading: tuple[int, int, Remainder, int]) -> None:
    steps = hosts(reading, 1)[0]
    for position in positions(steps):
        assert steps.count_steps(position) == len(list(walk(steps, position)))
    assert steps.end == reading[0] * reading[3]
    counts = {
        len(list(walk(host))) for count in DIVISORS[reading[1]] for host in hosts(reading, count)
    }
    assert counts == {steps.count_steps(0)}


@settings(max_examples=150, deadline=None)
@given(OR_ENDLESS)
def test_steps_per_epoch(reading: tuple[int, int, Remainder, int | None]) -> None:
    size, batch, remainder, epochs = reading
    steps = hosts(reading, 1)[0]
    one = Steps(size, batch, remainder=remainder, epochs=1)
    assert steps.steps_per_epoch == one.count_steps(0)
    if remainder != Remainder.CARRY:
        assert steps.skip(0, steps.steps_per_epoch) == size
        assert epochs is None or steps.count_steps(0) == epochs * steps.steps_per_epoch
    else:
        assert 0 <= steps.skip(0, steps.steps_per_epoch) - min(size, steps.end or size) < batch


@settings(max_examples=150, deadline=None)
@given(OR_ENDLESS)
def test_positions_have_one_form(reading: tuple[int, int, Remainder, int | None]) -> None:
    steps = hosts(reading, 1)[0]
    for position in positions(steps):
        normal = steps.normalize(position)
        assert steps.normalize(normal) == normal
        assert 0 <= normal - position < steps.global_batch_size
        assert steps.step_at(position) == steps.step_at(normal)
        step = steps.step_at(position)
        assert step is None or steps.normalize(step.next_position) == step.next_position > position


@pytest.mark.parametrize("epochs", [None, 10**12])
def test_far_ahead_at_once(epochs: int | None) -> None:
    """ImageNet for a trillion epochs: no step is counted one by one."""
    steps = Steps(1_281_167, 1024, 3, 4, Remainder.DROP, epochs)
    assert steps.skip(0, 1251 * 10**11 + 7) == 1_281_167 * 10**11 + 7 * 1024
    assert steps.step_at(steps.skip(0, 1251 * 10**11 + 7)) == Step(
        1_281_167 * 10**11 + 7 * 1024 + 768,
        256,
        256,
        1_281_167 * 10**11 + 8 * 1024,
        1_281_167 * 10**11 + 7 * 1024,
    )
    assert steps.count_steps(1_281_167 * 10**11) == (
        None if epochs is None else 1251 * (10**12 - 10**11)
    )
    assert Steps(1_281_167, 1024, 3, 4, Remainder.KEEP, epochs).steps_per_epoch == 1252


@pytest.mark.parametrize(
    ("remainder", "host_steps"),
    [  # an epoch of 7 in batches of 4 on 2 hosts: (start, places, rows, next position, position) of the second batch
        (Remainder.DROP, [(7, 2, 2, 14, 7), (9, 2, 2, 14, 7)]),
        (Remainder.KEEP, [(4, 1, 1, 7, 4), (5, 2, 2, 7, 4)]),
        (Remainder.PAD, [(4, 2, 2, 7, 4), (6, 1, 2, 7, 4)]),
        (Remainder.CARRY, [(4, 2, 2, 8, 4), (6, 2, 2, 8, 4)]),
    ],
)
def test_the_end_of_an_epoch(remainder: Remainder, host_steps: list[tuple[int, ...]]) -> None:
    assert [host.step_at(4) for host in hosts((7, 4, remainder, None), 2)] == [
        Step(*values) for values in host_steps
    ]


@pytest.mark.parametrize(
    ("reading", "static"),
    [
        ((8, 4, Remainder.KEEP, 2), True),
        (
            (7, 4, Remainder.KEEP, 4),
            False,
        ),  # host 1 of 2 has 2 rows of the last 3, and host 0 has 1
        ((7, 4, Remainder.DROP, 2), True),
        ((7, 4, Remainder.PAD, 2), True),
        ((7, 4, Remainder.CARRY, None), True),
        ((7, 4, Remainder.CARRY, 4), True),
        ((7, 4, Remainder.CARRY, 3), False),
    ],
)
def test_static_rows(reading: tuple[int, int, Remainder, int | None], static: bool) -> None:
    first, second = hosts(reading, 2)
    assert first.has_static_rows is second.has_static_rows is static
    rows = {step.num_rows for host in (first, second) for step in itertools.islice(walk(host), 20)}
    assert (rows == {first.host_batch_size}) is static


WHOLE = "must be a whole number, 1 or more"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"global_batch_size": 0}, f"global_batch_size=0 {WHOLE}"),
        ({"global_batch_size": -4}, f"global_batch_size=-4 {WHOLE}"),
        ({"global_batch_size": 4.0}, f"global_batch_size=4.0 {WHOLE}"),
        ({"global_batch_size": True}, f"global_batch_size=True {WHOLE}"),
        ({"global_batch_size": "4"}, f"global_batch_size='4' {WHOLE}"),
        ({"host_count": 0}, f"host_count=0 {WHOLE}"),
        ({"host_index": -1}, "host_index=-1 must be a whole number, 0 or more"),
        ({"host_index": None}, "host_index=None must be a whole number, 0 or more"),
        ({"epochs": 0}, f"epochs=0 {WHOLE}"),
        ({"epochs": 1.5}, f"epochs=1.5 {WHOLE}"),
        ({"epoch_size": 0, "remainder": Remainder.KEEP}, f"epoch_size=0 {WHOLE}"),
        (
            {"host_index": 2, "host_count": 2},
            "host_index=2 must be below host_count=2: hosts are counted from 0",
        ),
        (
            {"host_count": 3},
            "global_batch_size=4 must be a multiple of host_count=3: each host takes an equal part",
        ),
        ({"remainder": "round"}, "remainder='round' must be one of drop, keep, pad, carry"),
        (
            {"epoch_size": 1000, "global_batch_size": 1024},
            "an epoch has 1,000 records, fewer than global_batch_size=1024, and remainder='drop' leaves out what does not fill a batch: "
            "give a smaller batch, or remainder='keep', 'pad' or 'carry'",
        ),
    ],
)
def test_what_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Steps(**{"epoch_size": 10, "global_batch_size": 4, **given})  # type: ignore[arg-type]
    assert str(caught.value) == message
