"""The benchmark of writing from Python: its verdicts."""

from __future__ import annotations

from typing import Any

from tests.support.benchmark_scripts import load

WALLS = {"sw.write": 1.0, "sw.Writer": 2.0, "tf.io.TFRecordWriter": 1.5}


def results_of(fixed_s: float) -> Any:
    """Return results of 100 and 200 records; `fixed_s` is what each call of ours costs."""
    script = load("write_python")
    found = {
        (form, name, size): [
            script.Cost(size / 100 * WALLS.get(name, 4.0) + fixed_s * (name in script.OURS), 1.0)
        ]
        for form in (script.BYTES, script.ARRAYS)
        for name in script.SYSTEMS
        for size in (100, 200)
    }
    return script.unpack(load("raw_results").pack(found))


def test_the_slower_one_of_ours_is_judged_with_and_without_its_start() -> None:
    script = load("write_python")
    found = results_of(8.0)

    verdicts = [(check.found, check.passed) for check in script.targets(found)]

    whole, slope = [("0.25x", False), ("0.67x", False)], [("0.75x", False), ("2.00x", True)]
    assert verdicts == [*whole, *slope] * 2
    assert "| bytes: sw.write | 200 | 20 | 100 | 5,000 |" in script.render(found, [])


def test_noise_is_no_verdict() -> None:
    script = load("write_python")
    found = results_of(0.0)
    for name in script.OURS:
        found[script.BYTES, name, 100] = found[script.BYTES, name, 200]

    assert [check.passed for check in script.targets(found)][2:4] == [None, None]
