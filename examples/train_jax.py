"""Train a small image classifier with JAX on all its devices.

    python examples/train_jax.py DATASET

With --checkpoint FILE a run can be stopped (with --stop-after STEPS, even in mid-epoch) and
started again: it resumes with the next batch, and ends with the same weights and order of records
as an uninterrupted run.

The dataset needs labels and the splits train and test. --batch-size must be a multiple of the
number of devices.
"""

import argparse
import hashlib
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import shardwright as sw

LEARNING_RATE, MOMENTUM = 0.02, 0.9


def make_params(num_classes: int) -> dict[str, Any]:
    shapes = {"conv1": (3, 3, 3, 16), "conv2": (3, 3, 16, 32), "dense": (512, num_classes)}
    rng = np.random.default_rng(0)
    return {
        name: rng.normal(0, np.prod(shape[:-1]) ** -0.5, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def predict(params: Any, images: jax.Array) -> jax.Array:
    """Compute class scores: uint8 [b, side, side, 3] -> float32 [b, classes]."""
    values = images / 255.0  # on the device: uint8 is a quarter of the bytes to transfer
    for name in ("conv1", "conv2"):
        values = jax.nn.relu(
            jax.lax.conv_general_dilated(
                values, params[name], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
        )
    pooled = jax.image.resize(values, (len(values), 4, 4, 32), "linear")
    return pooled.reshape(len(values), -1) @ params["dense"]


@partial(jax.jit, donate_argnums=(0, 1))
def train_step(params: Any, momenta: Any, images: jax.Array, labels: jax.Array) -> tuple[Any, Any]:
    def loss(params: Any) -> jax.Array:
        return -jnp.mean(
            jnp.take_along_axis(
                jax.nn.log_softmax(predict(params, images)), labels[:, None], axis=1
            )
        )

    momenta = jax.tree.map(
        lambda momentum, slope: MOMENTUM * momentum + slope, momenta, jax.grad(loss)(params)
    )
    return jax.tree.map(
        lambda param, momentum: param - LEARNING_RATE * momentum, params, momenta
    ), momenta


def accuracy(params: Any, dataset: str, side: int) -> tuple[float, int]:
    """Return the test accuracy, from 0 to 1, and the number of images."""
    test = sw.Reader(
        dataset,
        "test",
        global_batch_size=256,
        image=sw.DecodedImage(side),
        epochs=1,
        remainder="pad",
    )
    right = sum(
        int(((predict(params, batch["image"]).argmax(1) == batch["label"]) & batch["mask"]).sum())
        for batch in test.jax()
    )
    return right / test.num_records, test.num_records


def train(args: argparse.Namespace) -> Any:
    """Return the trained parameters, or None if the run stopped before its end."""
    resumed = (
        pickle.loads(args.checkpoint.read_bytes())
        if args.checkpoint and args.checkpoint.exists()
        else None
    )
    reader = sw.Reader(
        args.dataset, "train", global_batch_size=args.batch_size, shuffle=True, seed=0,
        epochs=args.epochs, image=sw.TrainImage(args.image_size, scale=(0.8, 1.0), flip=False),
        features=["image", "label", "id"], host_index=jax.process_index(),
        host_count=jax.process_count(), state=resumed and resumed["reader"],
    )  # fmt: skip
    params = make_params(reader.num_classes)
    momenta, step, records = jax.tree.map(np.zeros_like, params), 0, ""
    if resumed:
        params, momenta, step, records = (
            resumed[name] for name in ("params", "momenta", "step", "records")
        )
    num_steps = step + len(reader)
    if resumed:
        print(f"resumed after step {step} of {num_steps}")
    mesh = Mesh(jax.devices(), ("batch",))
    # The same weights on all devices; each takes its part of a batch.
    params, momenta = jax.device_put((params, momenta), NamedSharding(mesh, PartitionSpec()))
    last_step = step + args.stop_after if args.stop_after else None
    for batch in reader.jax(NamedSharding(mesh, PartitionSpec("batch"))):
        params, momenta = train_step(params, momenta, batch["image"], batch["label"])
        step, records = (
            step + 1,
            hashlib.sha256("\n".join([records, *batch["id"]]).encode()).hexdigest(),
        )
        if step == last_step:
            saved = {
                "params": params,
                "momenta": momenta,
                "step": step,
                "records": records,
                "reader": reader.state(),
            }
            args.checkpoint.write_bytes(pickle.dumps(jax.device_get(saved)))
            print(f"stopped after step {step} of {num_steps}, in epoch {saved['reader']['epoch']}")
            return None
    print(f"records {records}")
    return params


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", metavar="DATASET", help="the OUTPUT of `shardwright build`")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument(
        "--image-size",
        type=int,
        default=32,
        metavar="SIDE",
        help="images are resized to SIDE x SIDE (default: 32)",
    )
    parser.add_argument(
        "--checkpoint", metavar="FILE", type=Path, help="resume from this file if it exists"
    )
    parser.add_argument(
        "--stop-after",
        type=int,
        metavar="STEPS",
        help="stop this run after STEPS steps; needs --checkpoint",
    )
    args = parser.parse_args()
    if args.stop_after and not args.checkpoint:
        parser.error("--stop-after needs --checkpoint, to save the run in")
    params = train(args)
    if params is not None:
        print(
            f"""weights {
                hashlib.sha256(
                    b"".join(jax.device_get(params[name]).tobytes() for name in sorted(params))
                ).hexdigest()
            }"""
        )
        print(
            "test accuracy {:.4f} on {} images".format(
                *accuracy(params, args.dataset, args.image_size)
            )
        )


if __name__ == "__main__":
    main()
