"""Steps: every place of every epoch once over all hosts, after any stop and change of hosts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from shardwright.errors import UsageError
from shardwright.reader.steps import Remainder, Step, Steps
from tests.support.random_tests import examples

Reading = tuple[int, int, Remainder, int | None]  # epoch size, global batch, remainder, epochs
FiniteReading = tuple[int, int, Remainder, int]
DROP, KEEP, PAD, CARRY = Remainder.DROP, Remainder.KEEP, Remainder.PAD, Remainder.CARRY
DIVISORS = {
    batch: [count for count in range(1, batch + 1) if batch % count == 0] for batch in range(1, 49)
}


@st.composite
def readings(draw: st.DrawFn, *, endless: bool = False) -> Reading:
    batch = draw(st.one_of(st.sampled_from([1, 2, 6, 12, 24, 48]), st.integers(1, 48)))
    remainder = draw(st.sampled_from(Remainder))
    multiple = st.builds(
        lambda times, more: max(1, times * batch + more), st.integers(0, 4), st.integers(-1, 1)
    )
    size = draw(st.one_of(st.integers(1, 130), multiple))
    assume(remainder != DROP or size >= batch)
    epochs = st.integers(1, 4)
    return size, batch, remainder, draw(st.none() | epochs if endless else epochs)


READINGS = readings()
OR_ENDLESS = readings(endless=True)


def hosts(reading: Reading, count: int) -> list[Steps]:
    size, batch, remainder, epochs = reading
    return [Steps(size, batch, host, count, remainder, epochs) for host in range(count)]


def walk(steps: Steps, position: int = 0) -> Iterator[Step]:
    """Yield the steps from a position to the end of its pass."""
    end = steps.pass_end(position)
    while end is None or position < end:
        step = steps.step_at(position)
        yield step
        position = step.next_position


def places_of(steps: list[Step]) -> list[int]:
    return [place for step in steps for place in range(step.start, step.start + step.num_places)]


def global_step(all_hosts: list[Steps], position: int) -> tuple[list[int], int] | None:
    """Return the places that all hosts take together and the next position; None at the end."""
    ends = {host.pass_end(0) for host in all_hosts}
    assert len(ends) == 1, "hosts must end together, or the others hang"
    if position in ends:
        return None
    found = [host.step_at(position) for host in all_hosts]
    assert {step.position for step in found} == {found[0].start}
    assert len({step.next_position for step in found}) == 1
    places = places_of(found)
    check_rows(all_hosts[0], found, len(places))
    return places, found[0].next_position


def check_rows(host: Steps, steps: list[Step], num_places: int) -> None:
    assert all(0 <= step.num_places <= step.num_rows <= host.host_batch_size for step in steps)
    assert 1 <= num_places <= host.global_batch_size
    rows = [step.num_rows for step in steps]
    if host.has_static_rows:
        assert rows == [host.host_batch_size] * len(rows)
    if host.remainder != PAD:
        assert rows == [step.num_places for step in steps], "only padding adds rows"
        assert max(rows) - min(rows) <= 1, "places are shared evenly"
    elif num_places < host.global_batch_size:
        filled = [step.num_places for step in steps]
        assert filled == sorted(filled, reverse=True), "fillers come last"


def expected_places(reading: FiniteReading) -> list[int]:
    """Return all places, or with "drop" all but those at the end of an epoch that fill no batch."""
    size, batch, remainder, epochs = reading
    kept = size // batch * batch if remainder == DROP else size
    return [epoch * size + place for epoch in range(epochs) for place in range(kept)]


@examples(120)
@given(READINGS, st.data())
@example((7, 4, KEEP, 2), None)
@example((7, 4, PAD, 2), None)
@example((3, 48, CARRY, 4), None)
@example((4, 4, DROP, 3), None)
def test_every_place_exactly_once(reading: FiniteReading, data: st.DataObject | None) -> None:
    """At every global batch, reading may stop and continue on another number of hosts."""
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


@examples(60)
@given(READINGS, st.integers(1, 48), st.data())
def test_another_batch_size(reading: FiniteReading, other: int, data: st.DataObject) -> None:
    """After a stop in mid-epoch, "drop" leaves out less than one of the larger batches."""
    size, batch, remainder, epochs = reading
    assume(remainder != DROP or size >= other)
    before = list(itertools.islice(walk(hosts(reading, 1)[0]), data.draw(st.integers(0, 12))))
    position = before[-1].next_position if before else 0
    after = list(walk(Steps(size, other, remainder=remainder, epochs=epochs), position))
    places = places_of(before + after)
    assert places == sorted(set(places))
    left_out = set(range(size * epochs)) - set(places)
    assert remainder == DROP or not left_out
    for epoch in range(epochs):
        lost = sorted(place for place in left_out if place // size == epoch)
        assert len(lost) < max(batch, other)
        end = (epoch + 1) * size
        assert lost == list(range(end - len(lost), end))


def positions(steps: Steps) -> list[int]:
    """Return positions at the beginning of a batch and elsewhere."""
    size = steps.epoch_size
    begun = [step.next_position for step in itertools.islice(walk(steps), 8)]
    late = [2 * size - steps.global_batch_size % size, 3 * size + size // 2]
    return sorted({0, *begun, 1, size - 1, size, size + 1, *late})


@examples(60)
@given(OR_ENDLESS)
def test_skipping_and_counting_are_stepping(reading: Reading) -> None:
    """And positions have one form: two that differ by what "drop" leaves out are one."""
    steps = hosts(reading, 1)[0]
    for position in positions(steps):
        now = steps.normalize(position)
        assert steps.normalize(now) == now
        assert 0 <= now - position < steps.global_batch_size
        assert steps.step_at(position) == steps.step_at(now)
        if steps.epochs is not None:
            assert steps.count_steps(position) == len(list(walk(steps, position)))
        for count in range(14):
            assert steps.skip(position, count) == now, (position, count)
            following = steps.step_at(now).next_position
            assert steps.normalize(following) == following > now
            now = following


@examples(60)
@given(READINGS)
def test_an_epoch_has_its_steps_and_only_the_last_is_short(reading: FiniteReading) -> None:
    """The last of each epoch, or with "carry" the last of all."""
    size, batch, remainder, epochs = reading
    steps = hosts(reading, 1)[0]
    total, times = (size * epochs, 1) if remainder == CARRY else (size, epochs)
    full, rest = divmod(total, batch)
    short = [rest] if rest and remainder != DROP else []
    assert [step.num_places for step in walk(steps)] == ([batch] * full + short) * times
    one = Steps(size, batch, remainder=remainder, epochs=1)
    assert steps.steps_per_epoch == one.count_steps(0)
    skipped = steps.skip(0, steps.steps_per_epoch)
    if remainder == CARRY:
        assert 0 <= skipped - size < batch or skipped == steps.pass_end(0)
    else:
        assert (skipped, steps.count_steps(0)) == (size, epochs * steps.steps_per_epoch)


@pytest.mark.parametrize("epochs", [None, 10**12])
def test_far_positions_take_no_longer(epochs: int | None) -> None:
    """ImageNet for a trillion epochs: no step is counted one by one."""
    size, far = 1_281_167, 10**11
    start = size * far + 7 * 1024
    steps = Steps(size, 1024, 3, 4, DROP, epochs)
    assert steps.skip(0, 1251 * far + 7) == start
    assert steps.step_at(start) == Step(start + 768, 256, 256, start + 1024, start)
    count = None if epochs is None else 1251 * (epochs - far)
    assert steps.count_steps(size * far) == count
    assert Steps(size, 1024, 3, 4, KEEP, epochs).steps_per_epoch == 1252


@pytest.mark.parametrize(("remainder", "host_steps"), [
    # start, places, rows, next position and position of the second batch of 4 of an epoch of 7
    (DROP, [(7, 2, 2, 14, 7), (9, 2, 2, 14, 7)]),
    (KEEP, [(4, 1, 1, 7, 4), (5, 2, 2, 7, 4)]),
    (PAD, [(4, 2, 2, 7, 4), (6, 1, 2, 7, 4)]),
    (CARRY, [(4, 2, 2, 8, 4), (6, 2, 2, 8, 4)]),
])  # fmt: skip
def test_the_end_of_an_epoch(remainder: Remainder, host_steps: list[tuple[int, ...]]) -> None:
    found = [host.step_at(4) for host in hosts((7, 4, remainder, None), 2)]
    assert found == [Step(*values) for values in host_steps]


@pytest.mark.parametrize(("reading", "static"), [
    ((8, 4, KEEP, 2), True),
    ((7, 4, KEEP, 4), False),  # of the last 3 rows, host 0 of 2 has 1, and host 1 has 2
    ((7, 4, DROP, 2), True),
    ((7, 4, PAD, 2), True),
    ((7, 4, CARRY, None), True),
    ((7, 4, CARRY, 4), True),
    ((7, 4, CARRY, 3), False),
])  # fmt: skip
def test_static_rows(reading: Reading, static: bool) -> None:
    first, second = hosts(reading, 2)
    assert first.has_static_rows is second.has_static_rows is static
    rows = {step.num_rows for host in (first, second) for step in itertools.islice(walk(host), 20)}
    assert (rows == {first.host_batch_size}) is static


WHOLE = "must be a whole number, at least 1"


@pytest.mark.parametrize(("given", "message"), [
    ({"global_batch_size": 0}, f"global_batch_size=0 {WHOLE}"),
    ({"global_batch_size": 4.0}, f"global_batch_size=4.0 {WHOLE}"),
    ({"global_batch_size": True}, f"global_batch_size=True {WHOLE}"),
    ({"host_count": 0}, f"host_count=0 {WHOLE}"),
    ({"host_index": -1}, "host_index=-1 must be a whole number, at least 0"),
    ({"epochs": 0}, f"epochs=0 {WHOLE}"),
    ({"host_index": 2, "host_count": 2},
     "host_index=2 must be below host_count=2: hosts are counted from 0"),
    ({"host_count": 3},
     "global_batch_size=4 must be a multiple of host_count=3: each host takes an equal part"),
    ({"epoch_size": 1000, "global_batch_size": 1024},
     "an epoch has 1,000 records, fewer than global_batch_size=1024, and remainder='drop' drops "
     "incomplete batches: use a smaller batch, or remainder='keep', 'pad' or 'carry'"),
])  # fmt: skip
def test_invalid_arguments(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Steps(**{"epoch_size": 10, "global_batch_size": 4, **given})  # type: ignore[arg-type]
    assert str(caught.value) == message
