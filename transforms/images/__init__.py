"""Check images, apply the image policy, and make the bytes to store in a shard.

Modules, each built on those before it and on the parsers and faults in shardwright/images/:
metadata    orientation, stripping                  policy      faults of images, and actions
options     EncodeOptions                           geometry    crop, scale, canvas
colors      Pillow's modes                          pixels      Pillow, and its memory budget
checks      check_image                             encode      re-encoding
masks       store_mask: all steps for a mask        storing     store_image: all steps for one image
"""
