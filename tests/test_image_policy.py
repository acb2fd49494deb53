"""The policy: every fault in every format is found, kept, fixed or rejected, and what is stored decodes in TensorFlow."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from tests.image_corpus import BMP, GIF, JPEG, PNG, WEBP, Sample, all_samples
from tests.image_makers import picture, png, saved
from tests.policy_images import Faulty, faulty_images, policy_of
from tests.test_image_encode import opened
from transforms.images import (
    EncodeOptions,
    ImageFault,
    ImagePolicy,
    ImageToStore,
    PolicyFault,
    check_image,
    policy_table,
    store_image,
)
from transforms.images.checks import look_at
from transforms.images.faults import find_faults, named_format
from transforms.rejects import RejectReason

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

FAULTY = faulty_images()
each_faulty = pytest.mark.parametrize(
    "image", FAULTY, ids=lambda image: f"{image.fault}-{image.name}"
)
PLAIN = {
    "plain.jpg": JPEG,
    "plain.png": PNG,
    "plain.gif": GIF,
    "plain.webp": WEBP,
    "plain.bmp": BMP,
}
# Of the faulty images, those that TensorFlow does not decode, so that they cannot be kept.
NEVER_KEPT = {
    "palette.bmp",
    "one-bit.bmp",
    "alpha.webp",
    "alpha-lossless.webp",
    "frames.webp",
    "frames-alpha.webp",
}


def keeping(policy: ImagePolicy, **changes: Any) -> EncodeOptions:
    return EncodeOptions(policy=policy, **changes)


def decoded(data: bytes) -> tf.Tensor:
    return tf.io.decode_image(data, channels=3, expand_animations=False)


def assert_decodes(stored: ImageToStore) -> None:
    """As check 'decode' promises for whatever it lets through."""
    assert tuple(decoded(stored.data).shape) == (stored.info.height, stored.info.width, 3)


def reason_of(fault: PolicyFault) -> RejectReason:
    return (
        RejectReason.TOO_MANY_PIXELS
        if fault == PolicyFault.BOMB
        else RejectReason(f"policy_{fault}")
    )


@each_faulty
def test_rejected(image: Faulty) -> None:
    with pytest.raises(ImageFault, match=f"--on {image.fault}=reject") as caught:
        store_image(
            image.data, keeping(policy_of("reject", image.fault)), check="decode", name=image.name
        )
    assert caught.value.reason == reason_of(image.fault)


@each_faulty
def test_kept(image: Faulty) -> None:
    options = keeping(policy_of("keep"))
    assert options == keeping(policy_of("keep", image.fault))
    if image.name in NEVER_KEPT:
        with pytest.raises(ImageFault, match="TensorFlow does not decode it") as caught:
            store_image(image.data, options, check="decode", name=image.name)
        assert caught.value.reason == RejectReason.UNSUPPORTED_FORMAT
        return
    stored = store_image(image.data, options, check="decode", name=image.name)
    assert stored.data is image.data
    assert stored.fixes == ()
    assert_decodes(stored)


@each_faulty
def test_fixed(image: Faulty) -> None:
    """Once fixed, the fault is not found any more, and TensorFlow decodes the image whatever it was before."""
    options = keeping(policy_of("fix", image.fault))
    stored = store_image(image.data, options, check="decode", name=image.name)
    assert stored.fixes == (str(image.fault),)
    assert find_faults(stored.data, look_at(stored.data, "header"), image.name, options) == {}
    assert stored.info == check_image(stored.data, "decode")
    assert_decodes(stored)


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("action", ["keep", "fix", "reject"])
def test_an_image_without_faults_is_left_alone(name: str, action: str) -> None:
    stored = store_image(PLAIN[name], keeping(policy_of(action)), check="decode", name=name)
    assert stored == (PLAIN[name], check_image(PLAIN[name], "decode"), ())
    assert stored.data is PLAIN[name]


CAN_BE_ANYTHING = [sample for sample in all_samples() if sample.name != "png-7x5-text-bomb"]


@pytest.mark.parametrize("action", ["keep", "fix", "reject"])
@pytest.mark.parametrize("sample", CAN_BE_ANYTHING, ids=lambda sample: sample.name)
def test_whatever_is_let_through_decodes_in_tensorflow(sample: Sample, action: str) -> None:
    """Over the whole corpus of odd images, with all faults treated alike; all that is said otherwise is a typed fault."""
    options = keeping(
        ImagePolicy(
            dict.fromkeys(PolicyFault, action), max_aspect=20, min_side=2, max_pixels=4_000_000
        )
    )  # type: ignore[arg-type]
    name = "x.jpg" if sample.info and sample.info.format == "jpeg" else "x"
    try:
        stored = store_image(sample.data, options, check="decode", name=name)
    except ImageFault as fault:
        found = fault.reason
    else:
        found = None
    assert action != "keep" or found == sample.decode
    if found is not None:
        return
    assert sample.reencode is None, "what does not open is not stored"
    if (
        sample.name != "gif-frame-offset" or stored.fixes
    ):  # TensorFlow shows a GIF's frame without its canvas
        assert_decodes(stored)


@each_faulty
@pytest.mark.parametrize("encode", ["jpeg", "png"])
def test_encoded_anew_it_decodes_as_well(image: Faulty, encode: Any) -> None:
    policy = ImagePolicy({PolicyFault.ALPHA: "fix", PolicyFault.GRAYSCALE: "fix"})
    stored = store_image(
        image.data, EncodeOptions(encode, policy=policy), check="decode", name=image.name
    )
    assert stored.info.format == encode
    assert stored.info.channels == (
        1 if image.name == "one-bit.bmp" else 3
    )  # whose header does not tell that it is gray
    assert_decodes(stored)


@pytest.mark.parametrize("orientation", range(2, 9))
def test_a_turned_image_is_shown_upright_and_has_no_exif(orientation: int) -> None:
    image = next(image for image in FAULTY if image.name == f"turned-{orientation}.jpg")
    stored = store_image(image.data, keeping(policy_of("fix", PolicyFault.EXIF)), name=image.name)
    expected = np.asarray(ImageOps.exif_transpose(opened(image.data))).astype(int)
    assert np.abs(np.asarray(decoded(stored.data)).astype(int) - expected).mean() < 2
    assert b"Exif" not in stored.data


def test_what_is_lossless_stays_so() -> None:
    for name in ("turned.png", "turned-palette.png", "large.png", "frames.gif"):
        image = next(image for image in FAULTY if image.name == name)
        options = keeping(policy_of("fix", image.fault))
        stored = store_image(image.data, options, name=name)
        assert stored.info.format == "png"
    turned = next(image for image in FAULTY if image.name == "turned-palette.png")
    stored = store_image(turned.data, keeping(policy_of("fix", PolicyFault.EXIF)), name="x")
    expected = opened(turned.data).convert("RGB").transpose(Image.Transpose.ROTATE_180)
    assert np.array_equal(np.asarray(decoded(stored.data)), np.asarray(expected))


def test_the_first_frame_is_the_one_that_is_stored() -> None:
    image = next(image for image in FAULTY if image.name == "frames.gif")
    stored = store_image(image.data, keeping(policy_of("fix", PolicyFault.ANIMATION)), name="x")
    assert np.array_equal(np.asarray(decoded(stored.data)), np.asarray(decoded(image.data)))


def test_what_is_transparent_shows_white() -> None:
    clear = saved(Image.new("RGBA", (30, 25), (255, 0, 0, 0)), "WEBP", lossless=True)
    stored = store_image(clear, keeping(policy_of("fix", PolicyFault.ALPHA)))
    assert np.asarray(decoded(stored.data)).min() == 255
    gray = saved(Image.new("LA", (30, 25), (7, 0)), "PNG")
    stored = store_image(gray, keeping(policy_of("fix", PolicyFault.ALPHA)))
    assert (stored.info.channels, opened(stored.data).getpixel((0, 0))) == (1, 255)


def test_sixteen_bits_become_their_upper_eight() -> None:
    stored = store_image(saved(picture("I;16"), "PNG"), keeping(policy_of("fix", PolicyFault.DEEP)))
    expected = np.frombuffer(picture("I;16").tobytes(), "<u2").reshape(47, 61) >> 8
    assert np.array_equal(np.asarray(opened(stored.data)), expected)


@pytest.mark.parametrize(
    ("fault", "name", "size"),
    [
        ("bomb", "large.png", (86, 57)),
        ("bomb", "large-turned.jpg", (57, 86)),
        ("aspect", "long.jpg", (100, 25)),
        ("aspect", "tall.png", (21, 84)),
        ("aspect", "long-turned.jpg", (25, 100)),
        ("small", "small.webp", (117, 20)),
        ("small", "dot.png", (20, 20)),
    ],
)
def test_sizes_after_a_fix(fault: str, name: str, size: tuple[int, int]) -> None:
    image = next(image for image in FAULTY if image.name == name)
    stored = store_image(
        image.data, keeping(policy_of("fix", PolicyFault(fault), PolicyFault.EXIF)), name=name
    )
    assert (stored.info.width, stored.info.height) == size


def test_an_aspect_is_cropped_in_the_middle_without_scaling() -> None:
    image = next(image for image in FAULTY if image.name == "long.png")
    stored = store_image(image.data, keeping(policy_of("fix", PolicyFault.ASPECT)))
    assert np.array_equal(
        np.asarray(decoded(stored.data)), np.asarray(opened(image.data))[:, 15:115]
    )


@pytest.mark.parametrize(
    ("name", "said"), [("a.gif", "gif"), ("a.webp", "webp"), ("a.tiff", "tiff")]
)
def test_a_name_of_a_format_that_is_not_written(name: str, said: str) -> None:
    with pytest.raises(
        ImageFault,
        match=f"the name says {said}, the content is jpeg; only JPEG and PNG are written",
    ) as caught:
        store_image(JPEG, keeping(policy_of("fix", PolicyFault.EXTENSION)), name=name)
    assert caught.value.reason == RejectReason.POLICY_EXTENSION


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a.JPG", "jpeg"), ("d/a.jpe", "jpeg"), ("a.b.png", "png"), ("a.dib", "bmp"), ("a.heif", "heic"),
        ("", ""), ("jpg", ""), ("a.jpg2", ""), ("a.", ""), ("archive.tar", ""), ("a.jpg?x=1", ""),
    ],
)  # fmt: skip
def test_names(name: str, said: str) -> None:
    assert named_format(name) == said


def test_check_none_does_not_reject_what_it_was_not_to_look_at() -> None:
    options = keeping(policy_of("reject"))
    assert store_image(b"hello", options, check="none", name="x.jpg").data == b"hello"
    with pytest.raises(ImageFault) as caught:
        store_image(png((1, 1)), options, check="none", name="x.png")
    assert caught.value.reason == RejectReason.POLICY_GRAYSCALE


def test_a_damaged_image_is_called_damaged_and_not_fixed() -> None:
    options = keeping(policy_of("fix"))
    for data in (JPEG[:-100], PNG[: len(PNG) // 2], WEBP[:-30]):
        with pytest.raises(ImageFault) as caught:
            store_image(data, options, name="x")
        assert caught.value.reason == RejectReason.TRUNCATED


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"actions": {"exifs": "fix"}}, "on exifs=fix: the faults are exif, cmyk, 16bit"),
        ({"actions": {"exif": "repair"}}, "on exif=repair: the actions are keep, fix, reject"),
        ({"max_pixels": 0}, "max-pixels must be from 1 to 178,956,970, got 0"),
        ({"max_pixels": 10**9}, "max-pixels must be from 1 to 178,956,970, got 1,000,000,000"),
        (
            {"max_aspect": 0.5},
            "max-aspect must be 1 or more, the longer side over the shorter one, got 0.5",
        ),
        ({"max_aspect": float("nan")}, "got nan"),
        ({"min_side": 0}, "min-side must be 1 pixel or more, got 0"),
        ({"actions": {"aspect": "fix"}}, "on aspect=fix needs a limit: give --max-aspect"),
        ({"actions": {"small": "reject"}}, "on small=reject needs a limit: give --min-side"),
    ],
)
def test_policies_say_what_is_wrong(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        ImagePolicy(**values)
    assert message in str(caught.value)


def test_actions_that_an_encoding_cannot_follow() -> None:
    for encode in ("jpeg", "raw", "tensor"):
        with pytest.raises(
            ValueError,
            match=f"on alpha=keep: encode '{encode}' cannot hold that; choose fix or reject",
        ):
            EncodeOptions(encode, (8, 8), policy=ImagePolicy({PolicyFault.ALPHA: "keep"}))  # type: ignore[arg-type]
    EncodeOptions("png", policy=ImagePolicy({PolicyFault.ALPHA: "keep"}))
    with pytest.raises(
        ValueError,
        match="on extension=fix stores a file as its name says, and encode 'png' stores all alike",
    ):
        EncodeOptions("png", policy=ImagePolicy({PolicyFault.EXTENSION: "fix"}))
    with pytest.raises(ValueError, match="choose one"):
        EncodeOptions("png", grayscale=True, policy=ImagePolicy({PolicyFault.GRAYSCALE: "fix"}))


def test_what_an_encoding_cannot_hold_is_counted_as_fixed() -> None:
    def fixes(name: str, encode: Any) -> tuple[str, ...]:
        image = next(image for image in FAULTY if image.name == name)
        return store_image(image.data, EncodeOptions(encode, (8, 8)), name=name).fixes

    assert fixes("cmyk.jpg", "png") == fixes("cmyk.jpg", "jpeg") == ("cmyk",)
    assert fixes("turned.webp", "jpeg") == ("exif",)
    assert (fixes("gray-alpha.png", "png"), fixes("gray-alpha.png", "jpeg")) == ((), ("alpha",))
    assert fixes("16bit-gray-alpha.png", "raw") == ("16bit", "alpha", "grayscale")
    assert fixes("frames.gif", "tensor") == ("animation",)


def test_orientation_may_be_left_alone_when_encoding() -> None:
    turned = next(image for image in FAULTY if image.name == "turned-6.jpg").data
    stored = store_image(
        turned, EncodeOptions("png", policy=ImagePolicy({PolicyFault.EXIF: "keep"}))
    )
    assert (stored.info.width, stored.info.height, stored.fixes) == (61, 47, ())


def test_the_default_looks_at_nothing() -> None:
    """So that a build which keeps bytes costs what it cost before there was a policy."""
    assert EncodeOptions().watched == ()
    assert not EncodeOptions().decodes
    assert keeping(ImagePolicy({PolicyFault.ALPHA: "reject"})).watched == (PolicyFault.ALPHA,)
    assert not keeping(ImagePolicy({PolicyFault.ALPHA: "reject"})).decodes
    assert keeping(ImagePolicy({PolicyFault.ALPHA: "fix"})).decodes


def test_the_table_of_help_names_every_fault_once() -> None:
    rows = policy_table().splitlines()[1:]
    assert [row.split()[0] for row in rows] == list(PolicyFault)
    assert [row.split()[1] for row in rows] == [
        EncodeOptions().actions[fault] for fault in PolicyFault
    ]
