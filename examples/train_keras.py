"""Train a small image classifier on a dataset: python examples/train_keras.py DATASET

The dataset needs labels and the splits train, validation and test.
"""

import argparse
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read when TensorFlow is imported

import keras
from keras import layers

import shardwright as sw


def make_model(num_classes: int) -> keras.Model:
    return keras.Sequential(
        [
            layers.Rescaling(1 / 255),  # the reader gives uint8
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dropout(0.25),
            layers.Dense(num_classes, activation="softmax"),
        ]
    )


def train(dataset: str, *, epochs: int, batch_size: int, image_size: tuple[int, int]) -> float:
    """Train on `train`, watch `validation`, and return the accuracy on `test`, from 0 to 1."""
    keras.utils.set_random_seed(0)
    reading = {"batch_size": batch_size, "image_size": image_size, "as_supervised": True}
    train_images = sw.load(dataset, "train", shuffle=True, **reading)  # shuffled anew for every epoch
    model = make_model(num_classes=len(sw.open(dataset).schema.class_names))
    model.compile("adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(train_images, validation_data=sw.load(dataset, "validation", **reading), epochs=epochs, shuffle=False, verbose=2)
    return float(model.evaluate(sw.load(dataset, "test", **reading), verbose=0, return_dict=True)["accuracy"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", metavar="DATASET", help="the OUTPUT of `shardwright build`")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--image-size", type=int, default=32, metavar="SIDE", help="images are resized to SIDE x SIDE (default: 32)")
    parser.add_argument("--above", type=float, default=0.0, metavar="ACCURACY", help="exit with 1 unless the test accuracy is above this")
    args = parser.parse_args()
    side = (args.image_size, args.image_size)
    accuracy = train(args.dataset, epochs=args.epochs, batch_size=args.batch_size, image_size=side)
    num_images = sw.open(args.dataset).splits["test"].num_records
    print(f"test accuracy {accuracy:.4f} on {num_images} images")
    if accuracy <= args.above:
        print(f"the test accuracy {accuracy:.4f} is not above the {args.above:g} asked for", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
