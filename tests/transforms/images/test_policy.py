"""The policy: faults are found, kept, fixed or rejected; stored images decode in TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps

from shardwright.errors import ImageFault
from shardwright.transforms.images.checks import check_image, look_at
from shardwright.transforms.images.options import EncodeOptions
from shardwright.transforms.images.policy import (
    ImagePolicy,
    Look,
    PolicyFault,
    find_faults,
    named_format,
    policy_table,
)
from shardwright.transforms.images.storing import ImageToStore, store_image
from shardwright.transforms.rejects import RejectReason as R
from tests.support.encoded_images import rejected
from tests.support.image_corpus import BMP, GIF, JPEG, PNG, WEBP, Sample, all_samples
from tests.support.image_makers import opened, picture, png, saved
from tests.support.policy_images import FAULTY, Faulty, policy_of

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

each_faulty = pytest.mark.parametrize("image", FAULTY.values(), ids=FAULTY)
PLAIN = {"a.jpg": JPEG, "a.png": PNG, "a.gif": GIF, "a.webp": WEBP, "a.bmp": BMP}
# Of the faulty images, those that TensorFlow does not decode, so that they cannot be kept.
NEVER_KEPT = {
    "palette.bmp", "one-bit.bmp", "alpha.webp", "alpha-lossless.webp", "frames.webp",
    "frames-alpha.webp",
}  # fmt: skip


def options_of(action: str, *faults: PolicyFault) -> EncodeOptions:
    """Keep bytes, and give these faults, or all, this action."""
    return EncodeOptions(policy=policy_of(action, *faults))


def checked(image: Faulty, options: EncodeOptions) -> ImageToStore:
    return store_image(image.data, options, check="decode", name=image.name)


def fixed(name: str, *faults: PolicyFault) -> ImageToStore:
    """Fix the image's own fault, and these."""
    return checked(FAULTY[name], options_of("fix", FAULTY[name].fault, *faults))


def decoded(data: bytes) -> NDArray[np.uint8]:
    return np.asarray(tf.io.decode_image(data, channels=3, expand_animations=False))


def assert_decodes(stored: ImageToStore) -> None:
    """Check the promise of check 'decode'."""
    assert decoded(stored.data).shape == (stored.info.height, stored.info.width, 3)


@each_faulty
def test_rejected(image: Faulty) -> None:
    is_bomb = image.fault == PolicyFault.BOMB
    reason = R.TOO_MANY_PIXELS if is_bomb else R(f"policy_{image.fault}")
    with rejected(rf"^{reason}: .*\(--on {image.fault}=reject\)$"):
        checked(image, options_of("reject", image.fault))


@each_faulty
def test_kept(image: Faulty) -> None:
    options = options_of("keep")
    assert options == options_of("keep", image.fault)
    why = dict.fromkeys(NEVER_KEPT, "unsupported_format: .*TensorFlow does not decode")
    why["frames-no-trailer.gif"] = "truncated: the GIF lacks its end"
    if image.name in why:
        with rejected(f"^{why[image.name]}"):
            checked(image, options)
        return
    stored = checked(image, options)
    assert stored.data is image.data
    assert stored.fixes == (("exif_kept",) if "turned" in image.name else ())
    assert_decodes(stored)


@each_faulty
def test_fixed(image: Faulty) -> None:
    options = options_of("fix", image.fault)
    stored = checked(image, options)
    assert stored.fixes == (str(image.fault),)
    look = Look(stored.data, look_at(stored.data, "header"), image.name, options.policy)
    assert find_faults(look, options.watched) == {}
    assert stored.info == check_image(stored.data, "decode")
    assert_decodes(stored)


@each_faulty
@pytest.mark.parametrize("encode", ["jpeg", "png"])
def test_re_encoded_it_decodes_as_well(image: Faulty, encode: Any) -> None:
    policy = ImagePolicy({PolicyFault.ALPHA: "fix", PolicyFault.GRAYSCALE: "fix"})
    stored = checked(image, EncodeOptions(encode, policy=policy))
    # The header of a BMP of one bit does not tell that it is gray.
    channels = 1 if image.name == "one-bit.bmp" else 3
    assert (stored.info.format, stored.info.channels) == (encode, channels)
    assert_decodes(stored)


@pytest.mark.parametrize("action", ["keep", "fix", "reject"])
def test_an_image_without_faults_stays_as_it_is(action: str) -> None:
    for name, data in PLAIN.items():
        stored = store_image(data, options_of(action), check="decode", name=name)
        assert stored == (data, check_image(data, "decode"), ())
        assert stored.data is data


CAN_BE_ANYTHING = [sample for sample in all_samples() if sample.name != "png-7x5-text-bomb"]


@pytest.mark.parametrize("sample", CAN_BE_ANYTHING, ids=lambda sample: sample.name)
def test_every_stored_sample_decodes_in_tensorflow(sample: Sample) -> None:
    """All other samples of the corpus are typed faults, with one action for all faults."""
    name = "x.jpg" if sample.info and sample.info.format == "jpeg" else "x"
    limits: Any = {"max_aspect": 20, "min_side": 2, "max_pixels": 4_000_000}
    for action in ("keep", "fix", "reject"):
        options = EncodeOptions(policy=ImagePolicy(dict.fromkeys(PolicyFault, action), **limits))
        try:
            stored = store_image(sample.data, options, check="decode", name=name)
        except ImageFault as fault:
            assert action != "keep" or fault.reason == sample.decode  # noqa: PT017
            continue
        assert action != "keep" or sample.decode is None
        assert sample.reencode is None, "an image that does not open is stored"
        # TensorFlow shows the frame of a GIF without its canvas.
        if sample.name != "gif-frame-offset" or stored.fixes:
            assert_decodes(stored)


def test_a_turned_image_is_shown_upright_and_has_no_exif() -> None:
    for orientation in range(2, 9):
        name = f"turned-{orientation}.jpg"
        data, upright = fixed(name).data, ImageOps.exif_transpose(opened(FAULTY[name].data))
        assert np.abs(decoded(data) - np.asarray(upright).astype(int)).mean() < 2
        assert b"Exif" not in data


WHITE = Image.new("RGBA", (61, 47), "white")
# The pixels after a fix, from those that Pillow shows before it.
PIXELS_LEFT: dict[str, Callable[[Image.Image], Image.Image]] = {
    "turned.png": ImageOps.exif_transpose,
    "turned-palette.png": lambda image: image.transpose(Image.Transpose.ROTATE_180),
    "frames.gif": lambda image: image,
    "long.png": lambda image: image.crop((15, 0, 115, 25)),
    "alpha-RGBA.png": lambda image: Image.alpha_composite(WHITE, image),
    "alpha-lossless.webp": lambda image: Image.alpha_composite(WHITE, image),
}


@pytest.mark.parametrize("name", PIXELS_LEFT)
def test_a_fix_of_a_lossless_image_is_lossless(name: str) -> None:
    is_blended = name.startswith("alpha")
    expected = PIXELS_LEFT[name](opened(FAULTY[name].data)).convert("RGB")
    stored = fixed(name)
    assert stored.info.format == "png"
    assert np.abs(decoded(stored.data) - np.asarray(expected).astype(int)).max() <= is_blended


def test_transparent_pixels_become_white_and_sixteen_bits_their_upper_eight() -> None:
    clear = saved(Image.new("LA", (30, 25), (7, 0)), "PNG")
    clear = store_image(clear, options_of("fix", PolicyFault.ALPHA))
    assert (clear.info.channels, opened(clear.data).getpixel((0, 0))) == (1, 255)
    image = picture("I;16")
    deep = store_image(saved(image, "PNG"), options_of("fix", PolicyFault.DEEP))
    assert np.array_equal(np.asarray(opened(deep.data)), np.asarray(image) >> 8)


@pytest.mark.parametrize(("name", "size"), [
    ("large.png", (86, 57)), ("large-turned.jpg", (57, 86)), ("small.webp", (117, 20)),
    ("long.jpg", (100, 25)), ("tall.png", (21, 84)), ("long-turned.jpg", (25, 100)),
    ("dot.png", (20, 20)),
])  # fmt: skip
def test_sizes_after_a_fix(name: str, size: tuple[int, int]) -> None:
    info = fixed(name, PolicyFault.EXIF).info
    assert (info.width, info.height) == size


def test_a_name_of_a_format_that_is_not_written() -> None:
    for named in ("gif", "webp", "tiff"):
        message = f"the name says {named}, the content is jpeg; only JPEG and PNG are written"
        with rejected(f"^policy_extension: {message}"):
            store_image(JPEG, options_of("fix", PolicyFault.EXTENSION), name=f"a.{named}")


@pytest.mark.parametrize(("name", "named"), [
    ("a.JPG", "jpeg"), ("d/a.jpe", "jpeg"), ("a.b.png", "png"), ("a.dib", "bmp"), ("", ""),
    ("a.heif", "heic"), ("jpg", ""), ("a.jpg2", ""), ("a.", ""), ("x.tar", ""), ("a.jpg?x=1", ""),
])  # fmt: skip
def test_named_formats(name: str, named: str) -> None:
    assert named_format(name) == named


def test_check_none_does_not_reject_unchecked_bytes() -> None:
    options = options_of("reject")
    assert store_image(b"hello", options, check="none", name="x.jpg").data == b"hello"
    with rejected(r"^policy_grayscale: "):
        store_image(png((1, 1)), options, check="none", name="x.png")


def test_a_damaged_image_is_rejected_as_damaged_and_not_fixed() -> None:
    for data in (JPEG[:-100], PNG[: len(PNG) // 2], WEBP[:-30]):
        with rejected(r"^truncated: "):
            store_image(data, options_of("fix"), name="x")


@pytest.mark.parametrize(("values", "message"), [
    ({"actions": {"exifs": "fix"}}, "on exifs=fix: the faults are exif, cmyk, 16bit"),
    ({"actions": {"exif": "repair"}}, "on exif=repair: the actions are keep, fix, reject"),
    ({"max_pixels": 0}, "max-pixels must be from 1 to 178,956,970, got 0"),
    ({"max_pixels": 178_956_971}, "max-pixels must be from 1 to 178,956,970, got 178,956,971"),
    ({"max_aspect": 0.5},
     "max-aspect must be at least 1, the longer side over the shorter one, got 0.5"),
    ({"max_aspect": float("nan")}, "got nan"),
    ({"min_side": 0}, "min-side must be at least 1 pixel, got 0"),
    ({"actions": {"aspect": "fix"}}, "on aspect=fix needs a limit: give --max-aspect"),
    ({"actions": {"small": "reject"}}, "on small=reject needs a limit: give --min-side"),
])  # fmt: skip
def test_wrong_policies(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        ImagePolicy(**values)
    assert message in str(caught.value)


def test_actions_that_an_encoding_cannot_follow() -> None:
    alpha_kept = ImagePolicy({PolicyFault.ALPHA: "keep"})
    EncodeOptions("png", policy=alpha_kept)
    for encode in ("jpeg", "raw"):
        message = f"on alpha=keep: encode '{encode}' cannot hold that; choose fix or reject"
        with pytest.raises(ValueError, match=message):
            EncodeOptions(encode, (8, 8), policy=alpha_kept)  # type: ignore[arg-type]
    message = "on extension=fix stores a file as its name says, and encode 'png' stores all alike"
    with pytest.raises(ValueError, match=message):
        EncodeOptions("png", policy=ImagePolicy({PolicyFault.EXTENSION: "fix"}))
    with pytest.raises(ValueError, match="choose one"):
        EncodeOptions("png", grayscale=True, policy=ImagePolicy({PolicyFault.GRAYSCALE: "fix"}))


@pytest.mark.parametrize(("name", "encode", "fixes"), [
    ("cmyk.jpg", "png", ("cmyk",)), ("cmyk.jpg", "jpeg", ("cmyk",)),
    ("turned.webp", "jpeg", ("exif",)), ("frames.gif", "png", ("animation",)),
    ("gray-alpha.png", "png", ()), ("gray-alpha.png", "jpeg", ("alpha",)),
    ("16bit-gray-alpha.png", "raw", ("16bit", "alpha", "grayscale")),
])  # fmt: skip
def test_what_an_encoding_cannot_hold_is_fixed(name: str, encode: Any, fixes: Any) -> None:
    stored = store_image(FAULTY[name].data, EncodeOptions(encode, (8, 8)), name=name)
    assert stored.fixes == fixes


def test_re_encoding_can_keep_the_orientation() -> None:
    options = EncodeOptions("png", policy=ImagePolicy({PolicyFault.EXIF: "keep"}))
    stored = store_image(FAULTY["turned-6.jpg"].data, options)
    assert (stored.info.width, stored.info.height, stored.fixes) == (61, 47, ())


def test_only_what_the_policy_needs_is_looked_at() -> None:
    alpha, default = PolicyFault.ALPHA, EncodeOptions()
    rejecting, fixing = options_of("reject", alpha), options_of("fix", alpha)
    assert [options.watched for options in (default, rejecting)] == [(), (alpha,)]
    assert [options.decodes for options in (default, rejecting, fixing)] == [False, False, True]


def test_the_table_of_help_has_every_fault_once() -> None:
    rows = [row.split()[:2] for row in policy_table().splitlines()[1:]]
    actions = EncodeOptions().actions
    assert rows == [[fault, actions[fault]] for fault in PolicyFault]
