#!/usr/bin/env python
"""Decode JPEGs, resize them to 256 x 256, and write them as Parquet with Daft or Ray Data.

These are the peers in `peers.py`, each in an environment of its own (environments.py). OUT gets one
row per image: its path and the resized image as JPEG. Parallelism is each one's default.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from pathlib import Path
from typing import Any

SIDE, QUALITY = 256, 90


def run_daft(source: Path, out: Path) -> None:
    import daft

    col = daft.col
    files = daft.from_glob_path(f"{source}/*/*.jpg")
    image = col("path").download().decode_image(mode="RGB").resize(SIDE, SIDE)
    resized = files.select("path", image.encode_image("jpeg").alias("image"))
    resized.write_parquet(str(out))


def _encoded(row: dict[str, Any]) -> dict[str, Any]:
    from PIL import Image

    image = Image.open(io.BytesIO(row["bytes"])).convert("RGB")
    buffer = io.BytesIO()
    image.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=QUALITY)
    return {"path": row["path"], "image": buffer.getvalue()}


def run_ray(source: Path, out: Path) -> None:
    import ray

    with tempfile.TemporaryDirectory(prefix="ray-") as folder:
        ray.init(include_dashboard=False, log_to_driver=False, _temp_dir=folder)
        files = ray.data.read_binary_files(str(source), include_paths=True)
        files.map(_encoded).write_parquet(str(out))
        ray.shutdown()


SYSTEMS = {"daft": run_daft, "ray": run_ray}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=SYSTEMS, help="the system")
    parser.add_argument("source", type=Path, metavar="IN", help="a folder CLASS/NAME.jpg")
    parser.add_argument("out", type=Path, metavar="OUT", help="a new folder")
    args = parser.parse_args()
    SYSTEMS[args.name](args.source, args.out)


if __name__ == "__main__":
    main()
