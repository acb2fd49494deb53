"""Train a small image classifier with torch, without TensorFlow.

    python examples/train_torch.py DATASET

With --checkpoint FILE a run can be stopped (with --stop-after STEPS, even in mid-epoch) and
started again: it resumes with the next batch, and ends with the same weights and order of records
as an uninterrupted run, with any number of workers.

The dataset needs labels and the splits train and test.
"""

import argparse
import hashlib
import os

import torch
from torch import nn
from torch.utils.data import DataLoader

import shardwright as sw


def make_model(num_classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, num_classes),
    )  # fmt: skip


def as_input(images: torch.Tensor) -> torch.Tensor:
    # The reader yields uint8 [b, 3, h, w], a quarter of the bytes to copy to a device.
    return images.float() / 255


def accuracy(model: nn.Module, dataset: str, side: int) -> tuple[float, int]:
    """Return the test accuracy, from 0 to 1, and the number of images."""
    test = sw.Reader(
        dataset,
        "test",
        global_batch_size=256,
        image=sw.DecodedImage(side),
        features=["image", "label"],
        epochs=1,
    )
    with torch.no_grad():
        right = sum(
            int((model(as_input(batch["image"])).argmax(1) == batch["label"]).sum())
            for batch in test.torch()
        )
    return right / test.num_records, test.num_records


def train(args: argparse.Namespace) -> nn.Module | None:
    """Return the trained model, or None if the run stopped before its end."""
    resumed = (
        torch.load(args.checkpoint) if args.checkpoint and os.path.exists(args.checkpoint) else None
    )
    reader = sw.Reader(
        args.dataset, "train", global_batch_size=args.batch_size, shuffle=True, seed=0,
        epochs=args.epochs, image=sw.TrainImage(args.image_size, scale=(0.8, 1.0), flip=False),
        features=["image", "label", "id"], state=resumed and resumed["reader"],
    )  # fmt: skip
    torch.manual_seed(0)
    model = make_model(reader.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    first_step, records = 0, ""
    if resumed:
        model.load_state_dict(resumed["model"])
        optimizer.load_state_dict(resumed["optimizer"])
        first_step, records = resumed["step"], resumed["records"]
    num_steps = first_step + len(reader)
    if resumed:
        print(f"resumed after step {first_step} of {num_steps}")
    batches = reader.torch()
    for step, batch in enumerate(
        DataLoader(batches, batch_size=None, num_workers=args.workers), first_step + 1
    ):
        loss = nn.functional.cross_entropy(model(as_input(batch["image"])), batch["label"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        records = hashlib.sha256("\n".join([records, *batch["id"]]).encode()).hexdigest()
        if step - first_step == args.stop_after:
            # The state after the batches taken, although workers have read further ahead.
            state = batches.state_after(step - first_step)
            saved = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "step": step,
                "records": records,
            }
            torch.save({**saved, "reader": state}, args.checkpoint)
            print(f"stopped after step {step} of {num_steps}, in epoch {state['epoch']}")
            return None
    print(f"records {records}")
    return model


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", metavar="DATASET", help="the OUTPUT of `shardwright build`")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument(
        "--image-size",
        type=int,
        default=32,
        metavar="SIDE",
        help="images are resized to SIDE x SIDE (default: 32)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=0,
        help="DataLoader processes (default: 0, the reader's own threads)",
    )
    parser.add_argument("--checkpoint", metavar="FILE", help="resume from this file if it exists")
    parser.add_argument(
        "--stop-after",
        type=int,
        metavar="STEPS",
        help="stop this run after STEPS steps; needs --checkpoint",
    )
    args = parser.parse_args()
    if args.stop_after and not args.checkpoint:
        parser.error("--stop-after needs --checkpoint, to save the run in")
    model = train(args)
    if model is not None:
        weights = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
        print(f"weights {hashlib.sha256(weights).hexdigest()}")
        print(
            "test accuracy {:.4f} on {} images".format(
                *accuracy(model, args.dataset, args.image_size)
            )
        )


if __name__ == "__main__":
    main()
