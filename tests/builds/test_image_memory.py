"""Memory: large images wait for one another, and small ones do not."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from shardwright.transforms.images.budget import PixelBudget
from tests import ROOT
from tests.support.image_makers import exif_block, picture
from tests.support.random_tests import examples


@examples(25)
@given(sizes=st.lists(st.integers(0, 150), min_size=1, max_size=12))
def test_no_more_is_held_than_there_is(sizes: list[int]) -> None:
    budget, lock = PixelBudget(100), threading.Lock()
    held: list[int] = []
    sums: list[int] = []

    def work(size: int) -> None:
        with budget.hold(size):
            with lock:
                held.append(min(size, 100))
                sums.append(sum(held))
            time.sleep(0.0005)  # lets other threads in
            with lock:
                held.remove(min(size, 100))

    with ThreadPoolExecutor(len(sizes)) as pool:
        for done in [pool.submit(work, size) for size in sizes]:
            done.result()
    assert max(sums) <= 100


class WaitedFor(threading.Condition):
    """A condition that notes that a thread begins to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        self.begun.set()
        return super().wait_for(predicate, timeout)


def watched_budget() -> tuple[PixelBudget, threading.Event]:
    """Return a budget of 100 pixels, and the event that a thread waits for some."""
    budget = PixelBudget(100)
    budget._changed = changed = WaitedFor()
    return budget, changed.begun


def test_small_ones_pass_while_there_is_room_and_room_comes_back_after_an_error() -> None:
    (budget, begun), passed = watched_budget(), threading.Event()
    waited: list[float] = []

    def wait() -> None:
        with budget.hold(1):
            waited.append(budget.seconds_waited())
            passed.set()

    waiting = threading.Thread(target=wait)
    with budget.hold(60), budget.hold(40):
        waiting.start()
        assert begun.wait(60)
        assert not passed.is_set()
    assert passed.wait(60)
    waiting.join()
    assert waited[0] > 0 == budget.seconds_waited()
    with pytest.raises(ZeroDivisionError), budget.hold(99):
        _ = 1 / 0
    with budget.hold(100):
        pass


def test_a_bound_that_changes_lets_those_in_that_fit_now() -> None:
    (budget, begun), passed = watched_budget(), threading.Event()

    def wait() -> None:
        with budget.hold(90):
            passed.set()

    waiting = threading.Thread(target=wait)
    with budget.hold(30):
        waiting.start()
        assert begun.wait(60)
        budget.set_bound(60)  # the waiting one is larger than that: it is decoded alone
        assert not passed.wait(0.05)
        budget.set_bound(120)
        assert passed.wait(60)
    waiting.join()
    budget.set_bound(60)
    with budget.hold(90):
        pass


PROGRAM = """
import re, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.images.storing import store_image

def kilobytes(key):  # getrusage includes the peak of the process that started this one
    return int(re.search(key + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

def store(data):
    return len(store_image(data, EncodeOptions(sys.argv[1]), check="decode").data)

files = [Path(name).read_bytes() for name in sys.argv[2:]]
store_image(files[0], EncodeOptions("jpeg", (8, 8)))
before = kilobytes("VmRSS")
with ThreadPoolExecutor(8) as pool:
    stored = list(pool.map(store, files))
print((kilobytes("VmHWM") - before) / 1000)
"""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Small images among JPEGs of 50 million pixels, one of them turned, and a PNG with alpha."""
    folder = tmp_path_factory.mktemp("mixed")
    soft = picture().resize((1000, 625)).resize((8000, 6250), Image.Resampling.BILINEAR)
    clear = soft.reduce(2).convert("RGBA")
    clear.putalpha(77)
    picture().save(folder / "small.jpg")
    soft.save(folder / "large.jpg")
    soft.save(folder / "turned.jpg", exif=exif_block(6))
    clear.save(folder / "clear.png", compress_level=1)
    order = ("small.jpg", "large.jpg", "turned.jpg", "small.jpg", "clear.png", "large.jpg")
    return [str(folder / name) for name in order]


@pytest.mark.long
@pytest.mark.parametrize(
    ("encode", "limit_mb"), [("keep", 500), pytest.param("jpeg", 600, marks=pytest.mark.long)]
)
def test_memory_of_50_megapixels(mixed: list[str], encode: str, limit_mb: int) -> None:
    """Eight threads stay below 1 GB, of which a build takes 250 MB before its first image."""
    root = ROOT
    done = subprocess.check_output([sys.executable, "-c", PROGRAM, encode, *mixed], cwd=root)
    assert float(done) < limit_mb
