"""`Reader.jax()`: the reader's batches on one device, on eight, and on two processes of four devices each."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import shardwright as sw
from shardwright.errors import BadRecordError, UsageError
from shardwright.reader.encodings import Text
from tests import trainer_datasets
from tests.bad_records import copy_with_bad_record
from tests.servers.processes import free_port

EXAMPLE = trainer_datasets.EXAMPLES / "train_jax.py"
CPU = {"JAX_PLATFORMS": "cpu"}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(trainer_datasets.pictures(tmp_path_factory))


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(trainer_datasets.digits(tmp_path_factory))


def read(dataset: str, **options: Any) -> sw.Reader:
    return sw.Reader(
        dataset,
        **{
            "global_batch_size": 8,
            "image": sw.TrainImage(8),
            "features": ["image", "label", "id"],
            **options,
        },
    )


def run(*args: str | Path, devices: int = 1) -> subprocess.CompletedProcess[str]:
    """Run a script on so many fake devices, which JAX must be told of before it starts."""
    env = {**os.environ, **CPU, "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    command = [sys.executable, *map(str, args)]
    return subprocess.run(
        command, env=env, capture_output=True, text=True, check=False, timeout=200
    )


def test_batches_are_those_of_the_reader(pictures: str) -> None:
    options: dict[str, Any] = {"shuffle": True, "epochs": 2, "remainder": "keep"}
    batches = read(pictures, **options).jax()

    given = list(batches)

    assert len(given) == len(batches) == 16
    for batch, arrays in zip(given, read(pictures, **options), strict=True):
        assert isinstance(batch["image"], jax.Array)
        assert (batch["image"].dtype, batch["label"].dtype) == (np.uint8, np.int32)
        np.testing.assert_array_equal(batch["image"], arrays["image"])
        np.testing.assert_array_equal(batch["label"], arrays["label"])
        np.testing.assert_array_equal(batch["id"], arrays["id"])


def test_what_jax_has_no_type_for_stays_on_the_host(pictures: str) -> None:
    features = {
        "image": None,
        "caption": Text(),
        "ratio": None,
        "boxes": sw.Sparse(),
        "tags": None,
        "label": sw.OneHot(),
    }
    reader = read(
        pictures,
        features=features,
        image=sw.EvalImage(8, dtype="bfloat16"),
        remainder="pad",
        epochs=1,
    )

    batch = list(reader.jax())[-1]

    on_device = {name for name, column in batch.items() if isinstance(column, jax.Array)}
    assert on_device == {"image", "ratio", "label", "mask"}
    assert (batch["image"].dtype, batch["mask"].sum()) == (ml_dtypes.bfloat16, 5)
    assert isinstance(batch["boxes"], sw.SparseColumn)
    assert isinstance(batch["caption"], np.ndarray)
    assert {type(text) for text in batch["caption"]} == {str}


def test_numbers_that_do_not_fit_are_refused(pictures: str) -> None:
    """JAX alone would cut them."""
    reader = read(pictures, features=["count", "image"], epochs=1)

    with pytest.raises(
        UsageError,
        match=r"feature 'count' holds 1099511627\d\d\d to 1099511627\d\d\d, which int32 cannot.*jax_enable_x64",
    ):
        next(iter(reader.jax()))


def test_64_bits_where_they_are_enabled(pictures: str) -> None:
    with jax.enable_x64(True):
        batch = next(iter(read(pictures, features=["count", "image"]).jax()))

    assert batch["count"].dtype == np.int64
    assert np.asarray(batch["count"]).min() >= 2**40


@pytest.mark.parametrize("ahead", [0, 1, 3, 100])
@pytest.mark.parametrize("num_taken", [1, 4, 14, 15])
def test_the_state_is_that_of_the_batches_given(pictures: str, ahead: int, num_taken: int) -> None:
    options: dict[str, Any] = {"shuffle": True, "epochs": 2}
    whole = [list(batch["id"]) for batch in read(pictures, **options)]
    reader = read(pictures, **options)
    batches = reader.jax(ahead=ahead)

    taken = [list(batch["id"]) for batch in islice(batches, num_taken)]

    assert batches.state() == reader.state()
    assert num_taken < len(whole) + 2
    rest = (
        []
        if num_taken >= len(whole)
        else [list(batch["id"]) for batch in read(pictures, state=reader.state(), **options).jax()]
    )
    assert taken + rest == whole
    if num_taken < len(whole):
        assert [list(batch["id"]) for batch in batches] == rest, "the same iterable goes on, too"


def test_a_batch_is_on_its_way_before_the_one_before_it_is_used(pictures: str) -> None:
    """Double buffering, seen from outside: when a batch is given, the reader has been asked for the next one."""
    for ahead in (0, 1, 2):
        reader = read(pictures, epochs=1)
        asked: list[int] = []
        batches = reader.jax(ahead=ahead)
        put = batches._put
        batches._put = lambda batch, put=put, asked=asked: (asked.append(1), put(batch))[1]
        iterator = iter(batches)
        next(iterator)
        assert len(asked) == ahead + 1
        next(iterator)
        assert len(asked) == ahead + 2


@pytest.mark.parametrize("ahead", [-1, 1.5, True])
def test_ahead_is_a_number_of_batches(pictures: str, ahead: Any) -> None:
    with pytest.raises(UsageError, match="ahead="):
        read(pictures).jax(ahead=ahead)


def test_what_was_read_before_an_error_comes_first(pictures: str, tmp_path: Path) -> None:
    damaged, name = copy_with_bad_record(pictures, tmp_path, row=5)
    whole = [list(batch["id"]) for batch in read(pictures, global_batch_size=2, epochs=1)]
    reader = read(damaged, global_batch_size=2)
    iterator = iter(reader.jax(ahead=4))

    taken = [list(next(iterator)["id"]) for _ in range(2)]
    with pytest.raises(BadRecordError, match="record 5"):
        next(iterator)

    assert taken == whole[:2]
    assert name in whole[2]
    assert reader.state()["position"] == 4


SHARDED = """
import json, sys
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import shardwright as sw
from shardwright.errors import UsageError

dataset = sys.argv[1]
devices = np.array(jax.devices())
assert len(devices) == 8
image = sw.TrainImage(8)
meshes = {
    "data": NamedSharding(Mesh(devices, ("data",)), P("data")),
    "data and model": NamedSharding(Mesh(devices.reshape(4, 2), ("data", "model")), P("data")),
    "both": NamedSharding(Mesh(devices.reshape(4, 2), ("data", "model")), P(("data", "model"))),
    "copies": NamedSharding(Mesh(devices, ("data",)), P()),
    "reversed": NamedSharding(Mesh(devices[::-1], ("data",)), P("data")),
}
for name, sharding in meshes.items():
    options = dict(global_batch_size=16, shuffle=True, epochs=1, remainder="pad", image=image, features=["image", "label", "id"])
    batches = list(sw.Reader(dataset, **options).jax(sharding))
    for batch, arrays in zip(batches, sw.Reader(dataset, **options), strict=True):
        for key in ("image", "label", "mask"):
            assert batch[key].shape == arrays[key].shape, (name, key)
            assert batch[key].sharding.is_equivalent_to(sharding, batch[key].ndim), (name, key)
            np.testing.assert_array_equal(np.asarray(batch[key]), arrays[key])
            for shard in batch[key].addressable_shards:
                np.testing.assert_array_equal(np.asarray(shard.data), arrays[key][shard.index])
    print(name, len(batches), len(batches[0]["image"].addressable_shards), batches[0]["image"].addressable_shards[0].data.shape)

def refused(sharding, **options):
    try:
        sw.Reader(dataset, **{"global_batch_size": 16, "image": image, **options}).jax(sharding)
    except UsageError as error:
        print(error)
    else:
        print("taken")

refused(meshes["data"], remainder="keep")
refused(meshes["data"], remainder="drop", max_bad_records=3)
refused(meshes["data"], remainder="pad", max_bad_records=3)
refused(meshes["data"], remainder="drop", global_batch_size=12)
refused(meshes["data"], remainder="drop", host_index=1, host_count=2)
refused(NamedSharding(Mesh(devices[4:], ("data",)), P("data")), remainder="drop", host_count=2)
"""


def test_a_batch_is_divided_among_eight_devices(pictures: str) -> None:
    done = run("-c", SHARDED, pictures, devices=8)

    assert done.returncode == 0, done.stderr
    *meshes, keep, bad, pad, twelve, second, first = done.stdout.splitlines()
    assert meshes == [
        "data 4 8 (2, 8, 8, 3)",
        "data and model 4 8 (4, 8, 8, 3)",
        "both 4 8 (2, 8, 8, 3)",
        "copies 4 8 (16, 8, 8, 3)",
        "reversed 4 8 (2, 8, 8, 3)",
    ]
    assert re.search(
        r"remainder='keep' .* fewer than 16 rows, which a sharding cannot divide: give remainder='pad'",
        keep,
    )
    assert re.search(r"max_bad_records=3 a batch may have fewer than 16 rows.*remainder='pad'", bad)
    assert pad == "taken"
    assert re.search(
        r"cannot divide a batch of global_batch_size=12 rows along its first axis", twelve
    )
    assert re.search(
        r"takes rows 0 to 2 of each global batch, .* host_index=1 of host_count=2, has rows 8 to 16: .*process_index",
        second,
    )
    assert re.search(r"has rows 0 to 8", first)


TWO_PROCESSES = """
import json, sys
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import shardwright as sw

dataset, address, process = sys.argv[1], sys.argv[2], int(sys.argv[3])
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(address, num_processes=2, process_id=process)
sharding = NamedSharding(Mesh(jax.devices(), ("data",)), P("data"))
reader = sw.Reader(
    dataset, global_batch_size=16, shuffle=True, epochs=1, remainder="pad", image=sw.TrainImage(8), features=["image", "label", "id"],
    host_index=jax.process_index(), host_count=jax.process_count(),
)
total = jax.jit(lambda images: jnp.sum(images.astype(jnp.int32), axis=(1, 2, 3)), out_shardings=NamedSharding(sharding.mesh, P()))
for batch in reader.jax(sharding):
    rows = [int(value) for value in total(batch["image"])]
    print("batch", json.dumps([batch["image"].shape[0], list(batch["id"]), rows]), flush=True)
"""


def test_two_processes_hold_one_global_batch(pictures: str) -> None:
    """Each reads its half of the rows; what JAX sums over all devices is the reader's whole batch, in its order."""
    address = f"127.0.0.1:{free_port()}"
    env = {**os.environ, **CPU, "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    command = [sys.executable, "-c", TWO_PROCESSES, pictures, address]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen([*command, str(process)], env=env, **pipes) for process in range(2)]
    try:
        outputs = [process.communicate(timeout=120) for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0, 0], outputs[0][1] + outputs[1][1]
    first, second = (
        [json.loads(line[6:]) for line in output.splitlines() if line.startswith("batch ")]
        for output, _ in outputs
    )

    options: dict[str, Any] = {
        "global_batch_size": 16,
        "shuffle": True,
        "epochs": 1,
        "remainder": "pad",
    }
    expected = [
        [16, list(batch["id"]), batch["image"].astype(np.int64).sum(axis=(1, 2, 3)).tolist()]
        for batch in read(pictures, **options)
    ]
    assert [
        [rows, ids + more, sums]
        for (rows, ids, sums), (_, more, _) in zip(first, second, strict=True)
    ] == expected
    assert [batch[2] for batch in first] == [batch[2] for batch in second]


def output_of(*args: str | Path) -> list[str]:
    done = run(EXAMPLE, *args, devices=4)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_stopped_training_ends_as_one_that_never_stopped(digits: str, tmp_path: Path) -> None:
    """On four devices."""
    checkpoint = ("--checkpoint", tmp_path / "run.pickle")
    undisturbed = output_of(digits)

    first = output_of(digits, *checkpoint, "--stop-after", "100")
    second = output_of(digits, *checkpoint)

    assert first == ["stopped after step 100 of 220, in epoch 2"]
    assert second == ["goes on after step 100 of 220", *undisturbed]
    records, weights, accuracy = undisturbed
    assert re.fullmatch(r"records [0-9a-f]{64}", records)
    assert re.fullmatch(r"weights [0-9a-f]{64}", weights)
    found = re.fullmatch(r"test accuracy (0\.\d{4}) on 169 images", accuracy)
    assert found
    assert float(found[1]) > 0.8


def test_stopping_needs_a_place_for_the_run(digits: str) -> None:
    done = run(EXAMPLE, digits, "--stop-after", "3")

    assert done.returncode == 2
    assert "--stop-after needs --checkpoint" in done.stderr
