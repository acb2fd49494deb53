"""`Reader.jax()`: the reader's batches on one device, on eight, and on two processes of four."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jax
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import shardwright as sw
from shardwright.errors import BadRecordError, UsageError
from shardwright.reader.encodings import Text
from tests.servers.processes import free_port
from tests.support.bad_records import copy_with_bad_record
from tests.support.trainer_datasets import EXAMPLES, digits_fixture, pictures_fixture, read  # noqa: F401

jax.config.update("jax_num_cpu_devices", 8)  # before anything uses JAX: at import
SIXTEEN: dict[str, Any] = {"global_batch_size": 16, "remainder": "pad"}
SHUFFLED: dict[str, Any] = {"shuffle": True, "epochs": 2}


def ids_of(batches: Any) -> list[list[str]]:
    return [list(batch["id"]) for batch in batches]


def test_batches_are_those_of_the_reader(pictures: str) -> None:
    options = {**SHUFFLED, "remainder": "keep"}
    batches = read(pictures, **options).jax()
    given = list(batches)
    assert len(given) == len(batches) == 16
    for batch, arrays in zip(given, read(pictures, **options), strict=True):
        assert isinstance(batch["image"], jax.Array)
        assert (batch["image"].dtype, batch["label"].dtype) == (np.uint8, np.int32)
        for name in ("image", "label", "id"):
            np.testing.assert_array_equal(batch[name], arrays[name])


def test_columns_of_types_unknown_to_jax_stay_on_the_host(pictures: str) -> None:
    encodings = {"caption": Text(), "label": sw.OneHot()}
    features = {"image": None, "ratio": None, "tags": None, **encodings}
    image = sw.EvalImage(8, dtype="bfloat16")
    reader = read(pictures, features=features, image=image, remainder="pad", epochs=1)
    batch = list(reader.jax())[-1]

    on_device = {name for name, column in batch.items() if isinstance(column, jax.Array)}
    assert on_device == {"image", "ratio", "label", "mask"}
    assert (batch["image"].dtype, batch["mask"].sum()) == (ml_dtypes.bfloat16, 5)
    assert isinstance(batch["caption"], np.ndarray)
    assert {type(text) for text in batch["caption"]} == {str}


def test_64_bits(pictures: str) -> None:
    """JAX alone would cut numbers that do not fit."""
    number = r"1099511627\d\d\d"
    message = rf"feature 'count' holds {number} to {number}, out of range for int32.*jax_enable_x64"
    with pytest.raises(UsageError, match=message):
        next(iter(read(pictures, features=["count", "image"]).jax()))
    with jax.enable_x64(True):
        batch = next(iter(read(pictures, features=["count", "image"]).jax()))
    assert batch["count"].dtype == np.int64
    assert np.asarray(batch["count"]).min() >= 2**40


@pytest.mark.long_but_first
@pytest.mark.parametrize(
    ("ahead", "num_taken"), [(0, 1), (0, 14), (1, 4), (1, 15), (3, 1), (3, 14), (100, 4)]
)
def test_the_state_is_that_of_the_batches_given(pictures: str, ahead: int, num_taken: int) -> None:
    whole = ids_of(read(pictures, **SHUFFLED))
    reader = read(pictures, **SHUFFLED)
    batches = reader.jax(ahead=ahead)
    taken = ids_of(islice(batches, num_taken))

    assert len(whole) == 14
    assert taken == whole[:num_taken]
    assert batches.state() == reader.state()
    if rest := whole[num_taken:]:
        assert ids_of(read(pictures, state=reader.state(), **SHUFFLED).jax()) == rest


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_batches_are_on_their_way_before_the_one_given_is_used(
    pictures: str, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    """Double buffering, seen from outside."""
    put = Mock(side_effect=jax.device_put)
    monkeypatch.setattr(jax, "device_put", put)
    iterator = iter(read(pictures, features=["label"], image=None).jax(ahead=ahead))
    for num_taken in (1, 2):
        next(iterator)
        assert put.call_count == ahead + num_taken


@pytest.mark.parametrize("ahead", [-1, 1.5, True])
def test_ahead_is_a_number_of_batches(pictures: str, ahead: Any) -> None:
    with pytest.raises(UsageError, match=f"ahead={ahead} must be a whole number, at least 0"):
        read(pictures).jax(ahead=ahead)


def test_batches_before_an_error_come_first(pictures: str, tmp_path: Path) -> None:
    damaged, name = copy_with_bad_record(pictures, tmp_path, row=5)
    whole = ids_of(read(pictures, global_batch_size=2, epochs=1))
    reader = read(damaged, global_batch_size=2)
    iterator = iter(reader.jax(ahead=4))
    assert ids_of(islice(iterator, 2)) == whole[:2]
    with pytest.raises(BadRecordError, match="record 5"):
        next(iterator)
    assert name in whole[2]
    assert reader.state()["position"] == 4


def sharding(shape: Any = 8, axes: Any = "data", order: int = 1) -> NamedSharding:
    devices = np.array(jax.devices())[::order].reshape(shape)
    return NamedSharding(Mesh(devices, ("data", "model")[: devices.ndim]), PartitionSpec(axes))


@pytest.mark.parametrize(
    ("arguments", "num_rows"),  # on each device
    [
        ({}, 2),
        ({"shape": (4, 2)}, 4),
        ({"shape": (4, 2), "axes": ("data", "model")}, 2),
        ({"axes": None}, 16),
        ({"order": -1}, 2),
    ],
)
def test_a_batch_is_divided_by_eight(pictures: str, arguments: Any, num_rows: int) -> None:
    options = {**SIXTEEN, "shuffle": True, "epochs": 1, "max_bad_records": 3}
    wanted = sharding(**arguments)
    batches = list(read(pictures, **options).jax(wanted))

    assert len(batches) == 4
    for batch, arrays in zip(batches, read(pictures, **options), strict=True):
        for key in ("image", "label", "mask"):
            assert batch[key].sharding.is_equivalent_to(wanted, batch[key].ndim)
            np.testing.assert_array_equal(batch[key], arrays[key], strict=key != "label")
            shards = batch[key].addressable_shards
            assert [len(shard.data) for shard in shards] == [num_rows] * 8
            for shard in shards:
                np.testing.assert_array_equal(shard.data, arrays[key][shard.index])


TOO_FEW = "fewer than 16 rows, which a sharding cannot divide: set remainder='pad'"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"remainder": "keep"}, f"remainder='keep' .* {TOO_FEW}"),
        ({"remainder": "drop", "max_bad_records": 3}, f"max_bad_records=3 may give .* {TOO_FEW}"),
        ({"global_batch_size": 12}, "cannot divide .*_batch_size=12 rows along its first axis"),
        (
            {"host_index": 1, "host_count": 2},
            "takes rows 0 to 2 of each global batch, .* host_index=1 of host_count=2, "
            "has rows 8 to 16: .*process_index",
        ),
        ({"host_count": 2}, "takes rows 8 to 10 .* host_index=0 .* has rows 0 to 8"),
    ],
    ids=str,
)
def test_shardings_that_do_not_fit_are_refused(pictures: str, options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(pictures, **{**SIXTEEN, **options}).jax(sharding())


TWO_PROCESSES = """
import json, sys
import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import shardwright as sw

dataset, address, process, options = *sys.argv[1:3], int(sys.argv[3]), json.loads(sys.argv[4])
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.config.update("jax_num_cpu_devices", 4)
jax.distributed.initialize(address, num_processes=2, process_id=process)
sharding = NamedSharding(Mesh(jax.devices(), ("data",)), P("data"))
reader = sw.Reader(
    dataset, image=sw.TrainImage(8), features=["image", "label", "id"],
    host_index=jax.process_index(), host_count=jax.process_count(), **options,
)
replicated = NamedSharding(sharding.mesh, P())
total = jax.jit(lambda images: images.astype(int).sum((1, 2, 3)), out_shardings=replicated)
batches = list(reader.jax(sharding))
found = [[list(batch["id"]), total(batch["image"]).tolist()] for batch in batches]
print(json.dumps(found))
"""


@pytest.mark.long
def test_two_processes_hold_one_global_batch(pictures: str) -> None:
    """Each reads its half of the rows; JAX's sums over all devices are those of the whole batch."""
    options = {**SIXTEEN, "shuffle": True, "epochs": 1}
    arguments = ["-c", TWO_PROCESSES, pictures, f"127.0.0.1:{free_port()}"]
    commands = [[sys.executable, *arguments, str(host), json.dumps(options)] for host in (0, 1)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    running = [subprocess.Popen(command, env=env, **pipes) for command in commands]
    try:
        outputs = [process.communicate(timeout=280) for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0, 0], outputs
    first, second = (json.loads(output.splitlines()[-1]) for output, _ in outputs)

    whole = list(read(pictures, **options))
    sums = [batch["image"].astype(int).sum(axis=(1, 2, 3)).tolist() for batch in whole]
    halves = zip(first, second, strict=True)
    assert [ids + more for (ids, _), (more, _) in halves] == ids_of(whole)
    assert [batch[1] for batch in first] == [batch[1] for batch in second] == sums


RUN_EXAMPLE = """
import contextlib, io, json, runpy, sys
main = runpy.run_path(sys.argv[1])["main"]
outputs = []
for args in json.loads(sys.argv[2]):
    sys.argv = ["train_jax.py", *args]
    with contextlib.redirect_stdout(io.StringIO()) as output:
        main()
    outputs.append(output.getvalue())
print(json.dumps(outputs))
"""


@pytest.mark.long
def test_the_example_resumes_exactly(digits: str, tmp_path: Path) -> None:
    """Trains in a process with one device: XLA ends one whose eight wait too long for a core."""
    checkpoint = f"--checkpoint={tmp_path / 'run.pickle'}"
    more = ([], [checkpoint, "--stop-after=70"], [checkpoint])
    runs = [[digits, "--epochs=3", *args] for args in more]
    command = [sys.executable, "-c", RUN_EXAMPLE, EXAMPLES / "train_jax.py", json.dumps(runs)]
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=280)
    undisturbed, stopped, resumed = json.loads(done.stdout)
    assert stopped == "stopped after step 70 of 132, in epoch 1\n"
    assert resumed == f"resumed after step 70 of 132\n{undisturbed}"
    digest, accuracy = "[0-9a-f]{64}", r"test accuracy 0\.[89]\d{3} on 169 images"
    assert re.fullmatch(rf"records {digest}\nweights {digest}\n{accuracy}\n", undisturbed)


@pytest.mark.long
def test_the_example_needs_a_checkpoint_to_stop(
    digits: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["train_jax.py", digits, "--stop-after=3"])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(str(EXAMPLES / "train_jax.py"))["main"]()
    assert "--stop-after needs --checkpoint" in capsys.readouterr().err


@pytest.mark.long
def test_the_detection_example_learns_the_shapes(tmp_path: Path) -> None:
    """In a process with one device, as above; the default of ten epochs reaches 0.95."""
    script = [sys.executable, EXAMPLES / "train_detection.py", tmp_path / "shapes"]
    options = ("--scenes=1000", "--epochs=5", "--above=0.4")
    done = subprocess.run(
        [*script, *options],
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^test average precision 0\.\d{4} at IoU 0\.5$", done.stdout, re.MULTILINE)


@pytest.mark.long
def test_the_detection_example_fails_below_the_required_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--scenes=60", "--epochs=1", "--above=0.5")
    monkeypatch.setattr(sys, "argv", ["train_detection.py", str(tmp_path / "shapes"), *options])
    assert runpy.run_path(str(EXAMPLES / "train_detection.py"))["main"]() == 1
    assert re.search(r"0\.[0-2]\d{3} is not above the required 0\.5", capsys.readouterr().err)
