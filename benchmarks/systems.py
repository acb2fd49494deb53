#!/usr/bin/env python
"""The systems that `build.py` compares, each one command on a folder of CLASS/NAME.jpg.

Each reads every image of IN once and writes it, with an id and a label, below OUT:

  tar          `tar cf`: no format work at all, the limit to aim at
  webdataset   webdataset.ShardWriter, shards of 150 MB
  tf-loop      a plain loop: read, tf.train.Example, tf.io.TFRecordWriter, shards of 150 MB
  beam-stock   Beam's transforms: MatchFiles | ReadMatches | Map(to tf.train.Example) |
               WriteToTFRecord, on the in-memory runner, with the shard count for 150 MB
  shardwright  `shardwright build IN OUT --shard-size 150MB`, its defaults, the local runner
  two-processes  the same with two worker processes of that runner (`multi_processing`)

webdataset, tf-loop and beam-stock run in environments of their own (environments.py).
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import environments

SHARD_BYTES = 150_000_000
# Our systems, with their options for Beam.
_OPTIONS = {
    "shardwright": (),
    "two-processes": ("--direct_running_mode=multi_processing", "--direct_num_workers=2"),
}
HERE = Path(__file__).resolve().parent


def shardwright_command(*arguments: str) -> list[str]:
    """Return the installed command beside this Python, else the equivalent module."""
    script = Path(sys.executable).with_name("shardwright")
    if script.exists():
        return [str(script), *arguments]
    module = f"shardwright.pipelines.commands.{arguments[0]}"
    return [sys.executable, "-m", module, *arguments[1:]]


def command(name: str, source: Path, out: Path, extra: Sequence[str] = ()) -> list[str]:
    """Return the command of a system; programs are started directly, without Python around them."""
    if name == "tar":
        # Without --hard-dereference tar would store the other names of a photo as links.
        return ["tar", "cf", str(out / "images.tar"), "--hard-dereference", "-C", str(source), "."]
    if name in _OPTIONS:
        options = ("--shard-size", "150MB", *_OPTIONS[name], *extra)
        return shardwright_command("build", str(source), str(out), *options)
    python = environments.python_of("build", name)
    return [python, str(HERE / "systems.py"), name, str(source), str(out)]


def _classes(source: Path) -> list[str]:
    return sorted(entry.name for entry in os.scandir(source) if entry.is_dir())


def _list_images(source: Path) -> Iterator[tuple[str, str, int]]:
    """Yield (path, id, label) in name order."""
    for label, class_name in enumerate(_classes(source)):
        for name in sorted(os.listdir(source / class_name)):
            yield f"{source}/{class_name}/{name}", f"{class_name}/{name}", label


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _example(image: bytes, key: str, label: int) -> bytes:
    """Return a serialized example, made as in TensorFlow's tutorials."""
    import tensorflow as tf  # here, so that systems without TensorFlow do not pay for it

    feature = {
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
        "id": tf.train.Feature(bytes_list=tf.train.BytesList(value=[key.encode()])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    return bytes(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())


def run_webdataset(source: Path, out: Path) -> None:
    from webdataset import ShardWriter

    with ShardWriter(f"{out}/%06d.tar", maxcount=10**9, maxsize=SHARD_BYTES, verbose=0) as writer:
        for path, key, label in _list_images(source):
            writer.write(
                {"__key__": key.removesuffix(".jpg"), "jpg": _read(path), "cls": str(label)}
            )


def run_tf_loop(source: Path, out: Path) -> None:
    import tensorflow as tf

    writer, shard, used = None, 0, 0
    for path, key, label in _list_images(source):
        record = _example(_read(path), key, label)
        if writer is None or used + len(record) > SHARD_BYTES:
            if writer is not None:
                writer.close()
            writer = tf.io.TFRecordWriter(f"{out}/images-{shard:05d}.tfrecord")
            shard, used = shard + 1, 0
        writer.write(record)
        used += len(record)
    if writer is not None:
        writer.close()


def _num_shards(source: Path) -> int:
    num_bytes = sum(os.stat(path).st_size for path, _, _ in _list_images(source))
    return -(-num_bytes // SHARD_BYTES)


def run_beam_stock(source: Path, out: Path) -> None:
    import apache_beam as beam
    from apache_beam.io import fileio
    from apache_beam.options.pipeline_options import PipelineOptions

    labels = {name: label for label, name in enumerate(_classes(source))}

    def to_example(file: fileio.ReadableFile) -> bytes:
        class_name, name = file.metadata.path.split("/")[-2:]
        return _example(file.read(), f"{class_name}/{name}", labels[class_name])

    # By name, because DirectRunner would first try to download Prism.
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        (
            pipeline
            | fileio.MatchFiles(f"{source}/*/*.jpg")
            | fileio.ReadMatches()
            | beam.Map(to_example)
            | beam.io.WriteToTFRecord(
                f"{out}/images", file_name_suffix=".tfrecord", num_shards=_num_shards(source)
            )
        )


_LOOPS: dict[str, Callable[[Path, Path], None]] = {
    "webdataset": run_webdataset,
    "tf-loop": run_tf_loop,
    "beam-stock": run_beam_stock,
}
NAMES = ("tar", "webdataset", "tf-loop", "beam-stock", "shardwright", "two-processes")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=NAMES, help="the system")
    parser.add_argument(
        "source", type=Path, metavar="IN", help="a folder CLASS/NAME.jpg (see photos.py)"
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="an empty or new folder")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.name in _LOOPS:
        _LOOPS[args.name](args.source, args.out)
        return
    words = command(args.name, args.source, args.out)
    os.execv(shutil.which(words[0]) or words[0], words)


if __name__ == "__main__":
    main()
