"""What `image=` of a reader takes: checked values, shapes and types of the results, and where they are written."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from shardwright.errors import ImageFault, UsageError
from shardwright.images import DecodedImage, EvalImage, ImageTransform, StoredImage, TrainImage
from shardwright.images.crops import draw_crop, draw_flip
from tests.image_makers import HEIGHT, WIDTH, picture, saved

FILES = StoredImage()
PNG = saved(picture(), "PNG")
PIXELS = np.asarray(picture())
LARGE = picture(size=(640, 480))
LARGE_PIXELS = np.asarray(LARGE)
LARGE_PNG, LARGE_JPEG = saved(LARGE, "PNG"), saved(LARGE, "JPEG", quality=92)
ALL_DRAWS = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize(("make", "said"), [
    (lambda: TrainImage(0), "size must be a number of pixels from 1 to 16384, or a pair"),
    (lambda: TrainImage(-1), "got -1"),
    (lambda: TrainImage(1 << 20), "got 1048576"),
    (lambda: TrainImage(True), "size must be"),
    (lambda: TrainImage((224, 0)), r"got \(224, 0\)"),
    (lambda: TrainImage((224, 224, 3)), "size must be"),  # type: ignore[arg-type]
    (lambda: TrainImage("224"), "size must be"),  # type: ignore[arg-type]
    (lambda: TrainImage(22.5), "size must be"),  # type: ignore[arg-type]
    (lambda: TrainImage(None), "size must be"),  # type: ignore[arg-type]
    (lambda: TrainImage(224, scale=(0, 1)), r"scale must be a pair \(least, greatest\) of numbers above 0, up to 1, got \(0, 1\)"),
    (lambda: TrainImage(224, scale=(0.5, 1.5)), "up to 1"),
    (lambda: TrainImage(224, scale=(0.9, 0.1)), "scale must be"),
    (lambda: TrainImage(224, scale=(float("nan"), 1)), "scale must be"),
    (lambda: TrainImage(224, scale=0.5), "scale must be"),  # type: ignore[arg-type]
    (lambda: TrainImage(224, scale=("a", "b")), "scale must be"),  # type: ignore[arg-type]
    (lambda: TrainImage(224, ratio=(2, 1)), "ratio must be"),
    (lambda: TrainImage(224, ratio=(1, float("inf"))), "ratio must be"),
    (lambda: TrainImage(224, dtype="int8"), "dtype must be one of uint8, bfloat16, float32, got 'int8'"),
    (lambda: EvalImage(224, resize=0), "resize must be a number of pixels from 1 to 16384, got 0"),
    (lambda: EvalImage(224, resize=2.5), "resize must be"),  # type: ignore[arg-type]
    (lambda: EvalImage(224, dtype="float64"), "float64"),
    (lambda: EvalImage(0), "size must be"),
    (lambda: DecodedImage(0), "size must be"),
    (lambda: DecodedImage(dtype=np.int32), "int32"),
])  # fmt: skip
def test_wrong_values_are_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make()


@pytest.mark.parametrize(("spec", "shape", "is_random"), [
    (TrainImage(224), (224, 224, 3), True),
    (TrainImage((160, 320)), (160, 320, 3), True),
    (EvalImage(224), (224, 224, 3), False),
    (DecodedImage(), (None, None, 3), False),
    (DecodedImage((7, 9)), (7, 9, 3), False),
])  # fmt: skip
def test_what_a_reader_asks(
    spec: ImageTransform, shape: tuple[int | None, ...], is_random: bool
) -> None:
    assert isinstance(spec, ImageTransform)
    assert (spec.shape, spec.dtype, spec.is_random) == (shape, np.uint8, is_random)


@pytest.mark.parametrize("dtype", ["bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)])
def test_a_dtype_has_many_names(dtype: object) -> None:
    assert TrainImage(8, dtype=dtype) == TrainImage((8, 8), dtype="bfloat16")
    assert TrainImage(8, dtype=dtype).dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize(
    ("spec", "resize"),
    [(EvalImage(224), 256), (EvalImage((64, 128)), 73), (EvalImage(224, resize=232), 232)],
)
def test_the_default_resize(spec: EvalImage, resize: int) -> None:
    assert spec.resize == resize


@pytest.mark.parametrize(
    "spec",
    [TrainImage(9, flip=False), TrainImage(9, dtype="bfloat16"), EvalImage((3, 4)), DecodedImage()],
)
def test_specs_are_values(spec: ImageTransform) -> None:
    for other in (pickle.loads(pickle.dumps(spec)), copy.deepcopy(spec)):
        assert other == spec
        assert hash(other) == hash(spec)
        assert (other.apply(PNG, FILES, 5, None) == spec.apply(PNG, FILES, 5, None)).all()


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16", "float32"])
@pytest.mark.parametrize("draw", [2, 3])
@pytest.mark.parametrize("spec_class", [TrainImage, EvalImage, DecodedImage])
def test_a_slot_gets_what_a_new_array_has(
    spec_class: type[TrainImage | EvalImage | DecodedImage], draw: int, dtype: str
) -> None:
    spec, as_bytes = spec_class((20, 30), dtype=dtype), spec_class((20, 30))
    new = spec.apply(PNG, FILES, draw, None)
    batch = np.full((3, 20, 30, 3), 7, spec.dtype)
    assert spec.apply(PNG, FILES, draw, batch[1]).base is batch
    assert (batch[1] == new).all()
    assert (batch[[0, 2]] == 7).all()
    assert new.dtype == spec.dtype
    assert (new.astype(int) == as_bytes.apply(PNG, FILES, draw, None)).all()


@pytest.mark.parametrize("draw", [2, 3])
def test_a_slot_may_have_gaps(draw: int) -> None:
    spec = TrainImage(16)
    wide = np.zeros((16, 40, 3), np.uint8)
    spec.apply(PNG, FILES, draw, wide[:, 8:24])
    assert (wide[:, 8:24] == spec.apply(PNG, FILES, draw, None)).all()
    assert not wide[:, :8].any()
    assert not wide[:, 24:].any()


def test_both_draws_of_these_tests_differ_in_the_flip() -> None:
    assert draw_flip(2) != draw_flip(3)


@given(ALL_DRAWS)
def test_at_a_size_that_needs_no_resize_a_crop_is_a_crop(draw: int) -> None:
    spec = TrainImage((HEIGHT, WIDTH), scale=(1, 1), ratio=(WIDTH / HEIGHT, WIDTH / HEIGHT))
    expected = PIXELS[:, ::-1] if draw_flip(draw) else PIXELS
    assert (spec.apply(PNG, FILES, draw, None) == expected).all()


def test_flip_can_be_left_out() -> None:
    spec = TrainImage(
        (HEIGHT, WIDTH), scale=(1, 1), ratio=(WIDTH / HEIGHT, WIDTH / HEIGHT), flip=False
    )
    assert all((spec.apply(PNG, FILES, draw, None) == PIXELS).all() for draw in range(8))


def ramp(height: int, width: int) -> NDArray[np.uint8]:
    """Red grows to the right and green downwards, so that a result tells which part of the image it shows."""
    made = np.zeros((height, width, 3), np.uint8)
    made[..., 0], made[..., 1] = (
        np.linspace(0, 255, width)[None],
        np.linspace(0, 255, height)[:, None],
    )
    return made


@pytest.mark.parametrize("size", [32, (40, 100), (300, 200)])
@pytest.mark.parametrize("draw", range(12))
def test_a_result_shows_the_drawn_rectangle(draw: int, size: int | tuple[int, int]) -> None:
    """Whether it is enlarged, reduced a little, or reduced in two steps."""
    height, width = 900, 1200
    stored = StoredImage("raw", (height, width, 3))
    spec = TrainImage(size)
    made = spec.apply(ramp(height, width).tobytes(), stored, draw, None).astype(float)
    if draw_flip(draw):
        made = made[:, ::-1]
    crop = draw_crop(draw, height, width, scale=spec.scale, ratio=spec.ratio)
    rows = (
        (crop.top + (np.arange(spec.shape[0]) + 0.5) * crop.height / spec.shape[0] - 0.5)
        / (height - 1)
        * 255
    )
    columns = (
        (crop.left + (np.arange(spec.shape[1]) + 0.5) * crop.width / spec.shape[1] - 0.5)
        / (width - 1)
        * 255
    )
    # Half a pixel of the result, where it is reduced in two steps, and rounding.
    assert (
        np.abs(made[..., 0] - columns[None]).max()
        <= 2 + crop.width / spec.shape[1] / 2 / (width - 1) * 255
    )
    assert (
        np.abs(made[..., 1] - rows[:, None]).max()
        <= 2 + crop.height / spec.shape[0] / 2 / (height - 1) * 255
    )


@pytest.mark.parametrize("spec", [TrainImage(50), EvalImage(50, fast=True)])
@pytest.mark.parametrize("size", [(200, 200), (401, 399), (803, 1607)])
def test_a_large_jpeg_decoded_small_shows_the_same_rectangle(
    spec: ImageTransform, size: tuple[int, int]
) -> None:
    from PIL import Image

    data = saved(Image.fromarray(ramp(*size)), "JPEG", quality=95)
    for draw in range(6):
        fast = spec.apply(data, FILES, draw, None).astype(int)
        exact = spec.apply(ramp(*size).tobytes(), StoredImage("raw", (*size, 3)), draw, None)
        assert np.abs(fast - exact)[..., :2].max() <= 6, draw


def test_a_strong_reduction_looks_at_every_pixel() -> None:
    """Stripes of one pixel become gray, and no moire of black and white."""
    stripes = np.zeros((512, 512, 3), np.uint8)
    stripes[:, ::2] = 255
    for spec in (EvalImage(32, resize=32), DecodedImage(32), TrainImage(32, scale=(0.9, 1))):
        made = spec.apply(stripes.tobytes(), StoredImage("raw", (512, 512, 3)), 1, None)
        assert np.abs(made.astype(int) - 128).max() <= 16, spec


@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (5000, 1), (2, 3), (3, 70_000)])
@pytest.mark.parametrize(
    "spec", [TrainImage(224), TrainImage(1), EvalImage(224), EvalImage(1), DecodedImage(8)]
)
def test_hostile_sizes(spec: ImageTransform, size: tuple[int, int]) -> None:
    data = np.full((*size, 3), 100, np.uint8).tobytes()
    for draw in range(20):
        assert (spec.apply(data, StoredImage("raw", (*size, 3)), draw, None) == 100).all()


@pytest.mark.parametrize(("channels", "expected"), [(1, [9, 9, 9]), (3, [9, 8, 7]), (4, [9, 8, 7])])
def test_raw_pixels(channels: int, expected: list[int]) -> None:
    data = bytes([9, 8, 7, 6][:channels]) * 12
    made = DecodedImage().apply(memoryview(data), StoredImage("raw", (3, 4, channels)), 0, None)
    assert made.shape == (3, 4, 3)
    assert (made == expected).all()
    assert made.flags.writeable


@pytest.mark.parametrize(("shape", "num_bytes", "said"), [
    ((3, 4, 3), 35, r"raw pixels of 35 bytes, where the dataset's shape asks for 3 x 4 x 3 = 36"),
    ((3, 4, 3), 37, "37 bytes"),
    ((3, 4, 3), 0, "0 bytes"),
    ((None, 4, 3), 36, "they need a height, a width"),
    ((3, 4), 12, "they need"),
    ((3, 4, 2), 24, "1, 3 or 4 channels"),
])  # fmt: skip
def test_raw_pixels_that_do_not_fit(
    shape: tuple[int | None, ...], num_bytes: int, said: str
) -> None:
    with pytest.raises(ImageFault, match=said):
        TrainImage(8).apply(bytes(num_bytes), StoredImage("raw", shape), 0, None)


def test_threads_do_not_disturb_one_another() -> None:
    """The results of many threads, at sizes where OpenCV may use threads of its own, are those of one."""
    spec = TrainImage(300)
    jobs = [(data, draw) for draw in range(20) for data in (LARGE_JPEG, LARGE_PNG)]
    alone = [spec.apply(data, FILES, draw, None) for data, draw in jobs]
    batch = np.empty((len(jobs), *spec.shape), np.uint8)
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda i: spec.apply(jobs[i][0], FILES, jobs[i][1], batch[i]), range(len(jobs))
            )
        )
    assert all((one == other).all() for one, other in zip(alone, batch, strict=True))


def test_the_users_opencv_settings_stay() -> None:
    code = (
        "import cv2\n"
        "cv2.setNumThreads(3); cv2.setUseOptimized(True)\n"
        "from shardwright.images import TrainImage, StoredImage\n"
        "import sys; data = sys.stdin.buffer.read()\n"
        "TrainImage(64).apply(data, StoredImage(), 0, None)\n"
        "print(cv2.getNumThreads(), cv2.useOptimized())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=LARGE_JPEG, capture_output=True, check=True
    )
    assert done.stdout == b"3 True\n"


def test_nothing_heavy_is_imported_before_it_is_asked_for() -> None:
    code = (
        "import sys, shardwright.images as images\n"
        "specs = images.TrainImage(8), images.EvalImage(8), images.DecodedImage()\n"
        "heavy = {'cv2', 'simplejpeg', 'ml_dtypes', 'PIL', 'tensorflow', 'keras', 'jax', 'torch'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "specs[0].apply(sys.stdin.buffer.read(), images.StoredImage(), 0, None)\n"
        "assert not {'PIL', 'tensorflow', 'keras', 'jax', 'torch'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], input=LARGE_JPEG, check=True)


@pytest.mark.parametrize("module", ["cv2", "simplejpeg"])
def test_a_missing_library_is_named(module: str) -> None:
    code = (
        "import sys\n"
        f"sys.modules[{module!r}] = None\n"
        "from shardwright.images import TrainImage, StoredImage\n"
        "try:\n    TrainImage(8).apply(sys.stdin.buffer.read(), StoredImage(), 0, None)\n"
        "except ValueError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=LARGE_JPEG, capture_output=True, check=True
    )
    assert f"needs the module {module}, which cannot be imported" in done.stdout.decode()
    assert "pip install 'shardwright[reader]'" in done.stdout.decode()
