#!/usr/bin/env python
"""The torch loaders that `read.py` compares, without TensorFlow and shardwright.

  torch       torchvision.datasets.ImageFolder on the JPEG files, in a DataLoader
  webdataset  its own tar shards, decoded by Pillow, in its WebLoader, a shuffle buffer of 1,000
  streaming   MosaicML Streaming: its own MDS shards, StreamingDataset in a DataLoader
  litdata     LitData: its own binary chunks, StreamingDataset in its StreamingDataLoader
  lancedb     LanceDB: a Lance table, StreamingDataset in its StreamingDataLoader, which decodes in
              a thread per core, without worker processes

Each runs in an environment of its own (environments.py). All use torchvision's random-resized crop
with bilinear resizing and a flip, as uint8; all but lancedb with one worker per core that assembles
batches. `make` writes the formats of webdataset, streaming, litdata and lancedb.
"""

from __future__ import annotations

import io
import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from read_feeds import (
    RATIO,
    SCALE,
    SIDE,
    Feed,
    Loader,
    check_images,
    feed_of,
    forever,
    labelled,
    parser,
    run_feed,
    tell,
)

PREFETCH_BATCHES = 4


def _transform() -> Any:
    from torchvision import transforms

    return transforms.Compose(
        [
            transforms.RandomResizedCrop(SIDE, SCALE, RATIO),
            transforms.RandomHorizontalFlip(),
            transforms.PILToTensor(),
        ]
    )


def _images(loader: Iterable[Any]) -> Iterator[Any]:
    for batch in forever(loader):
        yield batch[0]


def _workers(feed: Feed) -> dict[str, Any]:
    return {
        "num_workers": feed.cores,
        "persistent_workers": True,
        "prefetch_factor": PREFETCH_BATCHES,
    }


def open_files(feed: Feed) -> Iterator[Any]:
    from torch.utils.data import DataLoader
    from torchvision.datasets import ImageFolder

    files = ImageFolder(str(feed.data / "photos"), _transform())
    return _images(DataLoader(files, feed.batch_size, shuffle=feed.shuffle, **_workers(feed)))


def open_webdataset(feed: Feed) -> Iterator[Any]:
    import webdataset as wds

    shards = feed.files("tars/*.tar")
    dataset = wds.WebDataset(
        shards, shardshuffle=len(shards) if feed.shuffle else False, nodesplitter=wds.split_by_node
    )
    if feed.shuffle:
        dataset = dataset.shuffle(1000)
    dataset = (
        dataset.decode("pil")
        .to_tuple("jpg", "cls")
        .map_tuple(_transform(), None)
        .batched(feed.batch_size)
    )
    return _images(wds.WebLoader(dataset.repeat(), batch_size=None, **_workers(feed)))


def open_streaming(feed: Feed) -> Iterator[Any]:
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory
    from torch.utils.data import DataLoader

    transform = _transform()

    class Photos(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, at: Any) -> Any:
            sample = super().__getitem__(at)
            return transform(sample["image"]), sample["label"]

    clean_stale_shared_memory()
    dataset = Photos(local=str(feed.data / "mds"), shuffle=feed.shuffle, batch_size=feed.batch_size)
    return _images(DataLoader(dataset, feed.batch_size, **_workers(feed)))


def open_litdata(feed: Feed) -> Iterator[Any]:
    from litdata import StreamingDataLoader, StreamingDataset
    from PIL import Image

    transform = _transform()

    class Photos(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, at: Any) -> Any:
            sample = super().__getitem__(at)
            return transform(Image.open(io.BytesIO(sample["image"]))), sample["label"]

    dataset = Photos(str(feed.data / "litdata"), shuffle=feed.shuffle)
    return _images(StreamingDataLoader(dataset, batch_size=feed.batch_size, **_workers(feed)))


def open_lancedb(feed: Feed) -> Iterator[Any]:
    import lancedb
    from lancedb.streaming import StreamingDataLoader, StreamingDataset
    from PIL import Image

    transform = _transform()

    def decoded(batch: Any) -> list[tuple[Any, int]]:
        images = (Image.open(io.BytesIO(image.as_py())) for image in batch.column("image"))
        return [*zip(map(transform, images), batch.column("label").to_pylist(), strict=True)]

    # A second iteration of the same dataset never gives a batch (0.40.0).
    for epoch in itertools.count():
        dataset = StreamingDataset(
            lancedb.connect(feed.data / "lancedb").open_table("photos"),
            shuffle=feed.shuffle,
            epoch=epoch,
            transform=decoded,
            transform_parallelism=feed.cores,
        )
        for batch in StreamingDataLoader(dataset, batch_size=feed.batch_size):
            yield batch[0]


_TORCH = ("torch", "torchvision", "torch.utils.data", "torchvision.transforms", "PIL.Image")
LOADERS = {
    "torch": Loader(open_files, (*_TORCH, "torchvision.datasets")),
    "webdataset": Loader(open_webdataset, (*_TORCH, "webdataset")),
    "streaming": Loader(open_streaming, (*_TORCH, "streaming")),
    "litdata": Loader(open_litdata, (*_TORCH, "litdata")),
    "lancedb": Loader(open_lancedb, (*_TORCH, "lancedb.streaming")),
}


def _jpeg_bytes(sample: tuple[str, int]) -> dict[str, Any]:
    return {"image": Path(sample[0]).read_bytes(), "label": sample[1]}


def _make_webdataset(data: Path, shard_bytes: int) -> None:
    from webdataset import ShardWriter

    (data / "tars").mkdir()
    with ShardWriter(
        f"{data}/tars/%06d.tar", maxcount=10**9, maxsize=shard_bytes, verbose=0
    ) as writer:
        # Not in the order of the files, so that no shard holds only one class.
        for number, (path, label) in enumerate(
            sorted(labelled(data / "photos"), key=lambda pair: pair[0].name)
        ):
            writer.write({"__key__": f"{number:08d}", "jpg": path.read_bytes(), "cls": str(label)})


def _make_litdata(data: Path, shard_bytes: int) -> None:
    import litdata

    litdata.optimize(
        _jpeg_bytes,
        [(str(path), label) for path, label in labelled(data / "photos")],
        output_dir=str(data / "litdata"),
        chunk_bytes=shard_bytes,
        num_workers=1,
        start_method="fork",
    )


def _make_streaming(data: Path, shard_bytes: int) -> None:
    from PIL import Image
    from streaming import MDSWriter

    with MDSWriter(
        out=str(data / "mds"), columns={"image": "jpeg", "label": "int"}, size_limit=shard_bytes
    ) as writer:
        for path, label in labelled(data / "photos"):
            with Image.open(path) as image:  # an opened JPEG is copied, not re-encoded
                writer.write({"image": image, "label": label})


def _make_lancedb(data: Path, shard_bytes: int) -> None:
    import lancedb
    import pyarrow as pa

    schema = pa.schema([("image", pa.large_binary()), ("label", pa.int64())])
    table = lancedb.connect(data / "lancedb").create_table("photos", schema=schema)
    # A call of `add` makes a file, as a shard.
    rows = [_jpeg_bytes((str(path), label)) for path, label in labelled(data / "photos")]
    per_file = max(1, shard_bytes * len(rows) // sum(len(row["image"]) for row in rows))
    for start in range(0, len(rows), per_file):
        table.add(rows[start : start + per_file])


# They write a format from DATA/photos, with the unchanged bytes of the files.
MAKERS = {
    "webdataset": _make_webdataset,
    "litdata": _make_litdata,
    "streaming": _make_streaming,
    "lancedb": _make_lancedb,
}


def main() -> int:
    args = parser(__doc__, ("feed", "make")).parse_args()
    if args.task == "make":
        MAKERS[args.name](args.data, args.shard_bytes)
        return 0
    tell(run_feed(LOADERS[args.name], feed_of(args), args, check_images))
    return 0


if __name__ == "__main__":
    sys.exit(main())
