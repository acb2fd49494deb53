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
