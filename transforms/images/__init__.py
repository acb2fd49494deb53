"""Images: is this file one, is it whole, and what goes into the shard.

Files, each on top of those before it:
kinds       types, limits, names of what is no image
gif         GIF block by block                      headers     formats, sizes and channels without a decoder
jpeg, png   as strict as libjpeg and libpng         exif        the orientation
policy      what images may be like, and what to do options     EncodeOptions
faults      which of these faults an image has      geometry    crop, scale, canvas
pixels      Pillow, and how much at a time          modes       Pillow's modes
profiles    colour profiles                         metadata    cutting it out, pixels untouched
checks      check_image                             encode      re-encoding
storing     store_image: all of it for one image    masks       the same for pixels that are numbers
arrays      pixels as arrays, for a user's own code
"""

from __future__ import annotations

from transforms.images.arrays import decode_rgb, encode_png
from transforms.images.checks import CHECKS, check_image
from transforms.images.kinds import MAX_GIF_PIXELS, MAX_PIXELS, ImageFault, ImageInfo
from transforms.images.masks import encode_mask
from transforms.images.options import Encode, EncodeOptions
from transforms.images.policy import ImagePolicy, PolicyFault, policy_table
from transforms.images.storing import ImageToStore, encode_image, store_image

__all__ = [
    "CHECKS",
    "MAX_GIF_PIXELS",
    "MAX_PIXELS",
    "Encode",
    "EncodeOptions",
    "ImageFault",
    "ImageInfo",
    "ImagePolicy",
    "ImageToStore",
    "PolicyFault",
    "check_image",
    "decode_rgb",
    "encode_image",
    "encode_mask",
    "encode_png",
    "policy_table",
    "store_image",
]
