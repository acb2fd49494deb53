"""Check images, apply the image policy, and make the bytes to store in a shard.

Modules, each built on those before it and on the parsers in shardwright/images/formats/:
kinds       types, limits, other kinds of file      headers     format, size, channels, undecoded
gif, jpeg, png  as strict as TensorFlow's decoders  exif        orientation
policy      faults and actions                      options     EncodeOptions
faults      the policy's faults of one image        geometry    crop, scale, canvas
pixels      Pillow, and its memory budget           modes       Pillow's modes
profiles    color profiles                          metadata    stripping it, pixels untouched
checks      check_image                             encode      re-encoding
storing     store_image: all steps for one image    masks       the same for masks
arrays      pixels as arrays, for user code
"""

from __future__ import annotations

from shardwright.images.formats import MAX_PIXELS
from transforms.images.arrays import decode_rgb, encode_png
from transforms.images.checks import CHECKS, check_image
from transforms.images.kinds import MAX_GIF_PIXELS, ImageInfo, RejectedImage
from transforms.images.masks import encode_mask
from transforms.images.options import Encode, EncodeOptions
from transforms.images.policy import ImagePolicy, PolicyFault, policy_table
from transforms.images.storing import ImageToStore, store_image

__all__ = [
    "CHECKS",
    "MAX_GIF_PIXELS",
    "MAX_PIXELS",
    "Encode",
    "EncodeOptions",
    "ImageInfo",
    "ImagePolicy",
    "ImageToStore",
    "PolicyFault",
    "RejectedImage",
    "check_image",
    "decode_rgb",
    "encode_mask",
    "encode_png",
    "policy_table",
    "store_image",
]
