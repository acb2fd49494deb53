"""Parse the structure of image files without decoding them: headers, segments, chunks and blocks.

The reader and the build share these parsers. Each decides for itself what to accept: a shard may
hold images that a build rejects. Parsers raise IndexError, ValueError or struct.error where a file
ends inside what they parse.
"""
