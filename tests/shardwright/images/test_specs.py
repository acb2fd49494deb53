"""Values of `image=` of a reader: their checks, shapes and types, and the pixels they give."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cv2
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image

from shardwright.errors import ImageFault, UsageError
from shardwright.images import decode, specs
from shardwright.images.crops import draw_crop, draw_flip, draw_of_crop
from shardwright.images.decode import StoredImage, open_image
from shardwright.images.libraries import load_library
from shardwright.images.specs import (
    CropImage,
    DecodedImage,
    EvalImage,
    MultiCrop,
    TrainImage,
)
from tests.support.image_makers import HEIGHT, WIDTH, drawn, picture, saved

FILES = StoredImage()
PNG, PIXELS = drawn("PNG"), np.asarray(picture())
LARGE = picture(size=(640, 480))
LARGE_PNG, LARGE_JPEG = saved(LARGE, "PNG"), saved(LARGE, "JPEG", quality=92)


def applied(spec: CropImage, pixels: NDArray[np.uint8], draw: int) -> NDArray[Any]:
    """Apply a spec to raw pixels."""
    return spec.apply(pixels.tobytes(), StoredImage("raw", pixels.shape), draw, None)


@pytest.mark.parametrize(("make", "message"), [
    (lambda: TrainImage(0), "size must be a number of pixels from 1 to 16384, or a pair"),
    (lambda: TrainImage(-1), "got -1"),
    (lambda: TrainImage(16385), "got 16385"),
    (lambda: TrainImage(True), "size must be"),
    (lambda: TrainImage((224, 0)), r"got \(224, 0\)"),
    (lambda: TrainImage((224, 224, 3)), "size must be"),  # type: ignore[arg-type]
    (lambda: TrainImage("224"), "size must be"),  # type: ignore[arg-type]
    (lambda: TrainImage(22.5), "size must be"),  # type: ignore[arg-type]
    (lambda: TrainImage(None), "size must be"),  # type: ignore[arg-type]
    (lambda: TrainImage(224, scale=(0, 1)),
     r"scale must be a pair \(minimum, maximum\) of numbers above 0 and at most 1, got \(0, 1\)"),
    (lambda: TrainImage(224, scale=(0.5, 1.5)), "at most 1"),
    (lambda: TrainImage(224, scale=(0.9, 0.1)), "scale must be"),
    (lambda: TrainImage(224, scale=(float("nan"), 1)), "scale must be"),
    (lambda: TrainImage(224, scale=0.5), "scale must be"),  # type: ignore[arg-type]
    (lambda: TrainImage(224, scale=("a", "b")), "scale must be"),  # type: ignore[arg-type]
    (lambda: TrainImage(224, ratio=(2, 1)), "ratio must be"),
    (lambda: TrainImage(224, ratio=(1, float("inf"))), "ratio must be"),
    (lambda: TrainImage(224, dtype="int8"),
     "dtype must be one of uint8, bfloat16, float32, uint16, got 'int8'"),
    (lambda: EvalImage(224, resize=0),
     "resize must be a number of pixels from 1 to 16384, or 'letterbox', got 0"),
    (lambda: EvalImage(224, resize="cover"), "resize must be .*'letterbox', got 'cover'"),
    (lambda: EvalImage(224, resize=2.5), "resize must be"),  # type: ignore[arg-type]
    (lambda: EvalImage(224, dtype="float64"), "float64"),
    (lambda: EvalImage(0), "size must be"),
    (lambda: DecodedImage(0), "size must be"),
    (lambda: DecodedImage(dtype=np.int32), "int32"),
    (lambda: MultiCrop(), "needs crops such as .* one or more, got None"),
    (lambda: MultiCrop(TrainImage(8), 224), "got 224"),  # type: ignore[arg-type]
    (lambda: MultiCrop(TrainImage(8, boxes="objects/bbox")), "leave boxes= and masks= out"),
    (lambda: MultiCrop(TrainImage(8), EvalImage(8, masks="mask")), "EvalImage.* moves boxes or"),
])  # fmt: skip
def test_wrong_values_are_errors(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


@pytest.mark.parametrize(("spec", "sides"), [
    (TrainImage(16384), (16384, 16384)), (TrainImage((160, 320)), (160, 320)),
    (EvalImage(224), (224, 224)), (DecodedImage(), (None, None)), (DecodedImage((7, 9)), (7, 9)),
])  # fmt: skip
def test_the_interface_of_readers(spec: CropImage, sides: Any) -> None:
    assert isinstance(spec, CropImage)
    assert (spec.shape, spec.dtype) == ((*sides, 3), np.uint8)


def test_names_of_a_dtype_and_the_default_resize() -> None:
    for dtype in ("bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)):
        assert TrainImage(8, dtype=dtype) == TrainImage((8, 8), dtype="bfloat16")
        assert TrainImage(8, dtype=dtype).dtype == ml_dtypes.bfloat16
    specs = EvalImage(224), EvalImage((64, 128)), EvalImage(224, resize=232)
    assert [spec.resize for spec in specs] == [256, 73, 232]


def test_images_of_16_bits_keep_them_if_the_dtype_can(caplog: pytest.LogCaptureFixture) -> None:
    """Values that are one in 8 bits stay apart; of 8 bits, uint16 has the whole range, too."""
    pixels = np.arange(64, dtype=np.uint16).reshape(4, 16, 1).repeat(3, 2) * 100
    deep, plain = (cv2.imencode(".png", each)[1].tobytes() for each in (pixels, pixels >> 8))
    flat = cv2.imencode(".png", (pixels >> 8).astype(np.uint8))[1].tobytes()
    decode._tell_of_16_bits.cache_clear()

    def read(data: bytes, dtype: str, spec: Any = DecodedImage) -> Any:
        return spec(dtype=dtype).apply(data, StoredImage(), 0, None)

    assert (read(deep, "uint16") == pixels).all()
    assert (read(plain, "uint16") == pixels >> 8).all()
    np.testing.assert_allclose(read(deep, "float32"), pixels / 257, rtol=1e-6)
    assert (read(flat, "uint16") == (pixels >> 8) * 257).all()
    outs = MultiCrop(DecodedImage(), DecodedImage(dtype="uint16")).apply(
        deep, StoredImage(), 0, [None, None]
    )
    assert [(out == wanted).all() for out, wanted in zip(outs, (pixels >> 8, pixels), strict=True)]
    assert caplog.messages == []
    for _ in range(2):
        assert (read(deep, "uint8") == pixels >> 8).all()
    assert [text[:46] for text in caplog.messages] == [
        "images of 16 bits a channel are read as 8 bits"
    ]
    small = DecodedImage((2, 8), dtype="uint16").apply(deep, StoredImage(), 0, None)
    assert abs(float(small.mean()) - float(pixels.mean())) < 1


@pytest.mark.parametrize("spec", [
    TrainImage(9, flip=False), TrainImage(9, dtype="bfloat16"), EvalImage((3, 4)), DecodedImage(),
    EvalImage((3, 4), resize="letterbox"),
])  # fmt: skip
def test_specs_are_values(spec: CropImage) -> None:
    for other in (pickle.loads(pickle.dumps(spec)), copy.deepcopy(spec)):
        assert other == spec
        assert hash(other) == hash(spec)
        assert (other.apply(PNG, FILES, 5, None) == spec.apply(PNG, FILES, 5, None)).all()


CROPS = MultiCrop(
    TrainImage(40), TrainImage((20, 30), dtype="float32"), TrainImage(40), EvalImage(16),
    DecodedImage(),
)  # fmt: skip


def test_several_crops_are_those_of_each_alone() -> None:
    """Of one decode, with a draw each, into slots or new arrays."""
    first, _, third, *_ = CROPS.crops
    for data in (LARGE_PNG, LARGE_JPEG):
        for draw in range(8):
            slots = [np.empty(crop.shape, crop.dtype) for crop in CROPS.crops[:-1]]
            found = CROPS.apply(data, FILES, draw, [*slots, None])
            for number, (crop, pixels) in enumerate(zip(CROPS.crops, found, strict=True)):
                alone = TrainImage(**vars(crop) | {"fast": False}) if crop.fast else crop
                wanted = alone.apply(data, FILES, draw_of_crop(draw, number), None)
                assert pixels.dtype == wanted.dtype
                np.testing.assert_array_equal(pixels, wanted)
            assert all(pixels is slot for pixels, slot in zip(found, slots, strict=False))
            assert not np.array_equal(found[0], found[2])
            assert first == third
    for other in (pickle.loads(pickle.dumps(CROPS)), copy.deepcopy(CROPS)):
        assert (other, hash(other)) == (CROPS, hash(CROPS))


def test_draws_of_crops_are_independent() -> None:
    draws = [[draw_of_crop(draw, number) for number in range(9)] for draw in (0, 1, 2**64 - 1)]
    assert [each[0] for each in draws] == [0, 1, 2**64 - 1]
    assert len({draw for each in draws for draw in each}) == 27
    assert all(0 <= draw < 2**64 for each in draws for draw in each)
    flips = [[draw_flip(draw_of_crop(draw, number)) for number in (0, 1)] for draw in range(999)]
    assert 200 < sum(first and second for first, second in flips) < 300


def test_several_crops_decode_once_in_the_size_that_the_largest_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decoded = []

    def opened(*arguments: Any, **options: Any) -> Any:
        image = open_image(*arguments, **options)

        def decode(reduction: int, *area: Any) -> Any:
            decoded.append((reduction, image.max_reduction))
            return image.decode_part(reduction, *area) if area else image.decode(reduction)

        return image._replace(decode=decode, decode_part=image.decode_part and decode)

    monkeypatch.setattr(specs, "open_image", opened)
    whole: dict[str, Any] = {"scale": (1, 1), "ratio": (4 / 3, 4 / 3), "flip": False}
    large, small = TrainImage((240, 320), **whole), TrainImage((60, 80), **whole)
    both = MultiCrop(small, large).apply(LARGE_JPEG, FILES, 0, [None, None])
    alone = [crop.apply(LARGE_JPEG, FILES, 0, None) for crop in (small, large)]
    assert decoded == [(2, 8), (8, 8), (2, 8)]
    np.testing.assert_array_equal(both[1], alone[1])
    assert np.abs(both[0].astype(int) - alone[0]).mean() < 3
    exact = MultiCrop(small, EvalImage(8)).apply(LARGE_JPEG, FILES, 0, [None, None])
    assert decoded[3:] == [(1, 1)]
    assert np.abs(exact[0].astype(int) - alone[0]).mean() < 3


FLIPS = [2, 3]  # two draws, one without and one with a flip


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16", "float32"])
@pytest.mark.parametrize("draw", FLIPS)
@pytest.mark.parametrize("spec_class", [TrainImage, EvalImage, DecodedImage])
def test_a_slot_gets_the_pixels_of_a_new_array(spec_class: Any, draw: int, dtype: str) -> None:
    assert {draw_flip(each) for each in FLIPS} == {False, True}
    spec, as_bytes = spec_class((20, 30), dtype=dtype), spec_class((20, 30))
    new = spec.apply(PNG, FILES, draw, None)
    assert new.dtype == spec.dtype
    assert (new.astype(int) == as_bytes.apply(PNG, FILES, draw, None)).all()
    for margin in (0, 5):  # a slot may have gaps
        batch = np.full((3, 20, 30 + 2 * margin, 3), 7, spec.dtype)
        expected = batch.copy()
        expected[1, :, margin : margin + 30] = new
        assert spec.apply(PNG, FILES, draw, batch[1, :, margin : margin + 30]).base is batch
        assert (batch == expected).all()


@pytest.mark.parametrize(("size", "frame"), [
    ((HEIGHT, WIDTH), (0, 0, HEIGHT, WIDTH)),
    ((2 * HEIGHT, 4 * WIDTH), (0, WIDTH, 2 * HEIGHT, 2 * WIDTH)),
    ((47, 30), (12, 0, 23, 30)),  # of 47 x 61
    ((1, 8 * WIDTH), (0, 4 * WIDTH - 1, 1, round(WIDTH / HEIGHT))),
])  # fmt: skip
def test_a_letterbox_shows_the_whole_image_between_bars(
    size: tuple[int, int], frame: tuple[int, int, int, int]
) -> None:
    top, left, height, width = frame
    expected = np.zeros((*size, 3), np.uint8)
    expected[top : top + height, left : left + width] = DecodedImage((height, width)).apply(
        PNG, FILES, 0, None
    )
    used = np.full((*size, 3), 7, np.uint8)  # of an earlier batch
    assert (EvalImage(size, resize="letterbox").apply(PNG, FILES, 0, used) == expected).all()


@given(draw=st.integers(0, 2**64 - 1), flip=st.booleans())
def test_at_a_size_that_needs_no_resize_a_crop_is_a_crop(draw: int, flip: bool) -> None:
    ratio = (WIDTH / HEIGHT, WIDTH / HEIGHT)
    spec = TrainImage((HEIGHT, WIDTH), scale=(1, 1), ratio=ratio, flip=flip)
    expected = PIXELS[:, ::-1] if flip and draw_flip(draw) else PIXELS
    assert (spec.apply(PNG, FILES, draw, None) == expected).all()


def ramp(height: int, width: int) -> NDArray[np.uint8]:
    """Grow red to the right and green downward, so that a result shows its part of the image."""
    made = np.zeros((height, width, 3), np.uint8)
    made[..., 0] = np.linspace(0, 255, width)
    made[..., 1] = np.linspace(0, 255, height)[:, None]
    return made


def expected_ramp(start: int, part: int, size: int, length: int) -> tuple[NDArray[Any], float]:
    """Values along one axis of a resized crop, and the tolerance.

    That is rounding, and half a pixel of the result where it is reduced in two steps.
    """
    places = start + (np.arange(size) + 0.5) * part / size - 0.5
    return places / (length - 1) * 255, 2 + part / size / 2 / (length - 1) * 255


@pytest.mark.parametrize("size", [32, (40, 100), (300, 200)])
@pytest.mark.parametrize("draw", range(6))
def test_a_result_shows_the_drawn_rectangle(draw: int, size: int | tuple[int, int]) -> None:
    """It is enlarged, reduced a little, or reduced in two steps."""
    height, width = 900, 1200
    spec = TrainImage(size)
    made = applied(spec, ramp(height, width), draw).astype(float)
    if draw_flip(draw):
        made = made[:, ::-1]
    crop = draw_crop(draw, height, width, scale=spec.scale, ratio=spec.ratio)
    rows, most_down = expected_ramp(crop.top, crop.height, spec.shape[0], height)
    columns, most_across = expected_ramp(crop.left, crop.width, spec.shape[1], width)
    assert np.abs(made[..., 0] - columns).max() <= most_across
    assert np.abs(made[..., 1] - rows[:, None]).max() <= most_down


@pytest.mark.parametrize("spec", [TrainImage(50), EvalImage(50, fast=True)])
@pytest.mark.parametrize("size", [(200, 200), (401, 399), (803, 1607)])
def test_a_jpeg_decoded_small_shows_the_same_part(spec: CropImage, size: Any) -> None:
    data = saved(Image.fromarray(ramp(*size)), "JPEG", quality=95)
    for draw in range(6 if isinstance(spec, TrainImage) else 1):
        fast = spec.apply(data, FILES, draw, None).astype(int)
        assert np.abs(fast - applied(spec, ramp(*size), draw))[..., :2].max() <= 6, draw


def test_a_strong_reduction_averages_all_pixels() -> None:
    """Stripes of one pixel become gray, without moire."""
    stripes = np.zeros((512, 512, 3), np.uint8)
    stripes[:, ::2] = 255
    for spec in (EvalImage(32, resize=32), DecodedImage(32), TrainImage(32, scale=(0.9, 1))):
        assert np.abs(applied(spec, stripes, 1).astype(int) - 128).max() <= 16


@pytest.mark.parametrize("size", [(1, 1), (1, 5000), (5000, 1), (2, 3), (3, 70_000)])
def test_hostile_sizes(size: tuple[int, int]) -> None:
    pixels = np.full((*size, 3), 100, np.uint8)
    for spec in (TrainImage(224), TrainImage(1), EvalImage(224), EvalImage(1), DecodedImage(8)):
        for draw in range(20 if isinstance(spec, TrainImage) else 1):
            assert (applied(spec, pixels, draw) == 100).all()


def test_raw_pixels() -> None:
    for channels, expected in ((1, [9, 9, 9]), (3, [9, 8, 7]), (4, [9, 8, 7])):
        data = bytes([9, 8, 7, 6][:channels]) * 12
        made = DecodedImage().apply(memoryview(data), StoredImage("raw", (3, 4, channels)), 0, None)
        assert np.array_equal(made, np.broadcast_to(np.array(expected), (3, 4, 3)))
        assert made.flags.writeable


@pytest.mark.parametrize(("shape", "num_bytes", "message"), [
    ((3, 4, 3), 35, "raw pixels of 35 bytes, but the dataset's shape needs 3 x 4 x 3 = 36"),
    ((3, 4, 3), 37, "37 bytes"),
    ((3, 4, 3), 0, "0 bytes"),
    ((None, 4, 3), 36, r"must have shape \(height, width, channels\)"),
    ((3, 4), 12, "must have shape"),
    ((3, 4, 2), 24, "1, 3 or 4 channels"),
])  # fmt: skip
def test_raw_pixels_that_do_not_fit(shape: Any, num_bytes: int, message: str) -> None:
    with pytest.raises(ImageFault, match=message):
        TrainImage(8).apply(bytes(num_bytes), StoredImage("raw", shape), 0, None)


def test_many_threads_give_the_results_of_one() -> None:
    """Also at sizes at which OpenCV may use threads of its own."""
    spec = TrainImage(300)
    jobs = [(data, draw) for draw in range(10) for data in (LARGE_JPEG, LARGE_PNG)]
    batch = np.empty((len(jobs), *spec.shape), np.uint8)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda job, slot: spec.apply(job[0], FILES, job[1], slot), jobs, batch))
    for (data, draw), slot in zip(jobs, batch, strict=True):
        assert (spec.apply(data, FILES, draw, None) == slot).all()


def test_opencv_keeps_its_settings() -> None:
    load_library.cache_clear()
    before = cv2.getNumThreads()
    cv2.setNumThreads(3)
    try:
        TrainImage(64).apply(LARGE_JPEG, FILES, 0, None)
        assert (cv2.getNumThreads(), cv2.useOptimized()) == (3, True)
    finally:
        cv2.setNumThreads(before)


def test_heavy_libraries_are_imported_with_the_first_image() -> None:
    code = """if True:
        import sys
        from shardwright.images.decode import StoredImage
        from shardwright.images.specs import DecodedImage, EvalImage, TrainImage
        specs = TrainImage(8), EvalImage(8), DecodedImage()
        others = {"PIL", "tensorflow", "keras", "jax", "torch"}
        assert not ({"cv2", "simplejpeg", "ml_dtypes"} | others) & set(sys.modules)
        specs[0].apply(sys.stdin.buffer.read(), StoredImage(), 0, None)
        assert not others & set(sys.modules)"""
    subprocess.run([sys.executable, "-c", code], input=LARGE_JPEG, check=True)


@pytest.mark.parametrize("module", ["cv2", "simplejpeg"])
def test_a_missing_library_is_named(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    load_library.cache_clear()
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError) as caught:
        TrainImage(8).apply(LARGE_JPEG, FILES, 0, None)
    message = str(caught.value)
    assert message.startswith(
        f"decoding images needs the module {module}, which cannot be imported"
    )
    assert message.endswith(": pip install 'shardwright[reader]'")
