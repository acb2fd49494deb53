"""Train a small image classifier with Keras, and resume it after a stop.

    python examples/train_keras.py DATASET

The dataset needs labels and the splits train, validation and test. With --save DIR a run that was
stopped resumes after its last whole epoch when the same command runs again, and ends with exactly
the weights of an uninterrupted run.
"""

import argparse
import hashlib
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow is imported

import keras
import tensorflow as tf
from keras import layers

import shardwright as sw


def make_model(num_classes: int, image_size: int) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((image_size, image_size, 3)),
            layers.Rescaling(1 / 255),  # the reader yields uint8
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(num_classes, activation="softmax"),
        ]
    )


class StopAfter(keras.callbacks.Callback):
    """A callback that stops training, as a preempted machine would."""

    def __init__(self, num_steps: int) -> None:
        super().__init__()
        self.steps_left = num_steps

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        del batch, logs
        self.steps_left -= 1
        if self.steps_left == 0:
            self.model.stop_training = True


def read(args: argparse.Namespace, split: str, **options: object) -> sw.Reader:
    image = sw.DecodedImage((args.image_size, args.image_size))
    return sw.Reader(args.dataset, split, global_batch_size=args.batch_size, image=image, **options)


def train(args: argparse.Namespace) -> keras.Model:
    """Train on `train`, with validation on `validation`."""
    keras.utils.set_random_seed(0)
    tf.config.experimental.enable_op_determinism()
    # Without end, in a new order in each epoch.
    images = read(args, "train", shuffle=True, seed=0)
    model = make_model(images.num_classes, args.image_size)
    model.compile("adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    callbacks = [images.keras_callback(args.save)] if args.save else []
    callbacks += [StopAfter(args.stop_after)] if args.stop_after else []
    model.fit(
        images.tf_data(as_supervised=True),
        steps_per_epoch=images.steps_per_epoch,
        epochs=args.epochs,
        validation_data=read(args, "validation", epochs=1).tf_data(as_supervised=True),
        callbacks=callbacks,
        shuffle=False,  # the reader shuffles
        verbose=2,
    )
    return model


def test(model: keras.Model, args: argparse.Namespace) -> float:
    """Return the accuracy on `test`, from 0 to 1."""
    images = read(args, "test", epochs=1)
    accuracy = float(
        model.evaluate(images.tf_data(as_supervised=True), verbose=0, return_dict=True)["accuracy"]
    )
    print(f"test accuracy {accuracy:.4f} on {images.num_records} images")
    return accuracy


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", metavar="DATASET", help="the OUTPUT of `shardwright build`")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument(
        "--image-size",
        type=int,
        default=32,
        metavar="SIDE",
        help="images are resized to SIDE x SIDE (default: 32)",
    )
    parser.add_argument(
        "--save", metavar="DIR", help="save the run to this folder, and resume from it"
    )
    parser.add_argument(
        "--stop-after",
        type=int,
        metavar="STEPS",
        help="stop after STEPS steps, as if interrupted",
    )
    parser.add_argument(
        "--above",
        type=float,
        default=0.0,
        metavar="ACCURACY",
        help="exit with code 1 unless the test accuracy is above this",
    )
    args = parser.parse_args()
    model = train(args)
    print(
        "weights",
        hashlib.sha256(b"".join(weight.tobytes() for weight in model.get_weights())).hexdigest(),
    )
    accuracy = test(model, args)
    if accuracy <= args.above:
        print(
            f"test accuracy {accuracy:.4f} is not above the required {args.above:g}",
            file=sys.stderr,
        )
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
