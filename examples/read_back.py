"""Compare a dataset with the files it was built from.

Usage: python examples/read_back.py DATASET IMAGES
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow is imported

import shardwright as sw


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    dataset, images = sys.argv[1], Path(sys.argv[2])
    class_names = sw.open(dataset).schema.class_names
    num_equal = num_read = 0
    for example in sw.load(dataset, "all", decode=False).as_numpy_iterator():
        path = images / example["id"].decode()
        num_read += 1
        num_equal += (
            example["image"] == path.read_bytes()
            and class_names[example["label"]] == path.parent.name
        )
    print(f"{num_equal:,} of {num_read:,} records equal their image file and its folder's label")
    return 0 if num_equal == num_read else 1


if __name__ == "__main__":
    sys.exit(main())
