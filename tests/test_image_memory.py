"""Memory: large images wait for one another, and small ones do not."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transforms.images.pixels import PixelBudget


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(0, 150), min_size=1, max_size=12))
def test_no_more_is_held_than_there_is(sizes: list[int]) -> None:
    budget, lock = PixelBudget(100), threading.Lock()
    held, most = 0, 0

    def work(size: int) -> None:
        nonlocal held, most
        with budget.hold(size):
            with lock:
                held += min(size, 100)
                most = max(most, held)
            time.sleep(0.0005)
            with lock:
                held -= min(size, 100)

    threads = [threading.Thread(target=work, args=(size,)) for size in sizes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert most <= 100


def test_small_ones_pass_while_there_is_room_and_room_comes_back_after_an_error() -> None:
    budget = PixelBudget(100)
    with budget.hold(60), budget.hold(40):
        passed = threading.Event()
        waiting = threading.Thread(
            target=lambda: [passed.set() for _ in [None] if budget.hold(1).__enter__() is None]
        )
        waiting.start()
        assert not passed.wait(0.05)
    assert passed.wait(5)
    waiting.join()
    with pytest.raises(ZeroDivisionError), budget.hold(99):
        _ = 1 / 0
    with budget.hold(99):
        pass


PROGRAM = """
import re, sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from transforms.images import EncodeOptions, ImagePolicy, PolicyFault, store_image

def kilobytes(key):  # getrusage would tell the peak of the process that started this one, too
    return int(re.search(key + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

files = [Path(name).read_bytes() for name in sys.argv[2:]]
options = {
    "full": EncodeOptions("jpeg"),
    "decode": EncodeOptions(),
    "upright": EncodeOptions(policy=ImagePolicy({PolicyFault.EXIF: "fix"})),
}[sys.argv[1]]
store_image(files[0], EncodeOptions("jpeg", (8, 8)))
before = kilobytes("VmRSS")
with ThreadPoolExecutor(8) as pool:
    stored = list(pool.map(lambda data: len(store_image(data, options, check="decode").data), files))
print((kilobytes("VmHWM") - before) / 1000)
"""


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Small images and, among them, JPEGs of 50 million pixels, one of them to be turned, and a PNG with alpha."""
    from PIL import Image

    from tests.image_makers import exif_block, picture, saved

    folder = tmp_path_factory.mktemp("mixed")
    soft = picture().resize((1000, 625)).resize((8000, 6250), Image.Resampling.BILINEAR)
    clear = soft.reduce(2).convert("RGBA")
    clear.putalpha(77)
    made = {
        "small.jpg": saved(picture(), "JPEG"),
        "large.jpg": saved(soft, "JPEG"),
        "turned.jpg": saved(soft, "JPEG", exif=exif_block(6)),
        "clear.png": saved(clear, "PNG", compress_level=1),
    }
    for name, data in made.items():
        (folder / name).write_bytes(data)
    order = ("small.jpg", "large.jpg", "turned.jpg", "small.jpg", "clear.png", "large.jpg")
    return [str(folder / name) for name in order]


@pytest.mark.parametrize(("work", "limit_mb"), [("decode", 500), ("full", 600), ("upright", 600)])
def test_images_of_50_megapixels_stay_below_1_gb(
    mixed: list[str], work: str, limit_mb: int
) -> None:
    """Eight threads, and no more at a time than the budget allows; a build has some 250 MB of its own before its first image."""
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, work, *mixed],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
    )
    assert float(done.stdout) < limit_mb
