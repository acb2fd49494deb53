"""The examples of `make demo`: its images, the comparison with them, and a trainer that learns from what is built."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

from tests import small_datasets as small

EXAMPLES = Path(__file__).parents[1] / "examples"
MAKERS = runpy.run_path(str(EXAMPLES / "demo_images.py"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the demo's digits and the dataset built from them."""
    root = tmp_path_factory.mktemp("demo")
    assert MAKERS["make_digits"](root / "digits") == 1797
    small.build(
        root / "digits",
        root / "dataset",
        "--split=train=0.8,validation=0.1,test=0.1",
        "--records-per-shard=256",
    )
    return root


def run_example(script: str, *args: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a script as a user would, from any folder."""
    command = [sys.executable, str(EXAMPLES / script), *map(str, args)]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, timeout=120
    )


class RunHere:
    """Runs scripts in this process, which has imported TensorFlow already."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, script: str, *args: str | Path) -> int:
        self._monkeypatch.setattr(sys, "argv", [script, *map(str, args)])
        return int(runpy.run_path(str(EXAMPLES / script))["main"]())


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch) -> RunHere:
    return RunHere(monkeypatch)


def test_digits_are_png_files_in_class_folders(root: Path) -> None:
    paths = sorted((root / "digits").rglob("*"))
    files = [path for path in paths if path.is_file()]

    assert len(files) == 1797
    assert Counter(path.parent.name for path in files) == Counter(
        {
            "0": 178,
            "1": 182,
            "2": 177,
            "3": 183,
            "4": 181,
            "5": 182,
            "6": 181,
            "7": 179,
            "8": 174,
            "9": 180,
        }
    )
    for path in files[::200]:
        with Image.open(path) as image:
            assert (image.format, image.mode, image.size) == ("PNG", "L", (32, 32))


def test_images_that_are_there_stay_untouched(root: Path, tmp_path: Path) -> None:
    """A new time of change would make a finished dataset out of date."""
    digits = shutil.copytree(root / "digits", tmp_path / "digits")
    gone, half = digits / "0" / "0000.png", digits / "1" / "0001.part"
    expected = gone.read_bytes()
    gone.unlink()
    half.write_bytes(b"what a killed run leaves")
    (digits / "1" / "0001.png").unlink()
    before = {path: path.stat().st_mtime_ns for path in digits.rglob("*.png")}

    MAKERS["make_digits"](digits)

    assert gone.read_bytes() == expected
    assert not half.exists()
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_photo_crops_are_jpeg_files_in_class_folders(tmp_path: Path) -> None:
    assert MAKERS["make_photo_crops"](tmp_path) == 500

    files = list(tmp_path.glob("*/*.jpg"))
    assert Counter(path.parent.name for path in files) == {"china": 250, "flower": 250}
    assert len({path.read_bytes() for path in files}) == 500
    with Image.open(files[0]) as image:
        assert (image.format, image.mode, image.size) == ("JPEG", "RGB", (224, 224))


def test_read_back_finds_every_record_equal(
    root: Path, run_here: RunHere, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_here("read_back.py", root / "dataset", root / "digits") == 0

    assert (
        capsys.readouterr().out
        == "1,797 of 1,797 records equal their image file and its folder's label\n"
    )


def test_read_back_tells_of_a_changed_image(
    root: Path, tmp_path: Path, run_here: RunHere, capsys: pytest.CaptureFixture[str]
) -> None:
    digits = shutil.copytree(root / "digits", tmp_path / "digits")
    shutil.copy(digits / "0" / "0000.png", digits / "1" / "0001.png")

    assert run_here("read_back.py", root / "dataset", digits) == 1

    assert (
        capsys.readouterr().out
        == "1,796 of 1,797 records equal their image file and its folder's label\n"
    )


def test_read_back_states_its_usage(run_here: RunHere, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here("read_back.py") == 2

    assert "read_back.py DATASET IMAGES" in capsys.readouterr().err


def test_trainer_learns_the_digits_and_resumes_exactly(root: Path, tmp_path: Path) -> None:
    """Stopped in mid-epoch and started again, it ends with the weights of a training that nobody stopped."""
    options = ("--epochs", "4", "--above", "0.9")
    whole = run_example("train_keras.py", root / "dataset", *options, cwd=tmp_path)
    stopped = run_example(
        "train_keras.py",
        root / "dataset",
        "--epochs",
        "4",
        "--save",
        "saved",
        "--stop-after",
        "70",
        cwd=tmp_path,
    )
    resumed = run_example(
        "train_keras.py", root / "dataset", *options, "--save", "saved", cwd=tmp_path
    )

    assert (whole.returncode, stopped.returncode, resumed.returncode) == (0, 0, 0), (
        whole.stderr + stopped.stderr + resumed.stderr
    )
    found = re.search(r"^test accuracy (\d\.\d{4}) on 169 images$", whole.stdout, re.MULTILINE)
    assert found, whole.stdout
    assert float(found[1]) > 0.9
    lines = [
        re.search(r"^weights [0-9a-f]{64}$", run.stdout, re.MULTILINE)
        for run in (whole, stopped, resumed)
    ]
    weights = [line[0] if line else "" for line in lines]
    assert weights[0] == weights[2] != weights[1] != ""
    assert [line for line in resumed.stdout.splitlines() if line.startswith("Epoch")] == [
        "Epoch 2/4",
        "Epoch 3/4",
        "Epoch 4/4",
    ]


def test_trainer_fails_below_the_accuracy_asked_for(
    root: Path, run_here: RunHere, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run_here(
            "train_keras.py",
            root / "dataset",
            "--epochs",
            "1",
            "--batch-size",
            "256",
            "--above",
            "0.999",
        )
        == 1
    )

    assert re.search(
        r"the test accuracy 0\.\d{4} is not above the 0\.999 asked for", capsys.readouterr().err
    )


def test_demo_stops_at_a_failed_step_and_names_it(tmp_path: Path) -> None:
    (tmp_path / "demo" / "datasets" / "digits").mkdir(parents=True)
    (tmp_path / "demo" / "datasets" / "digits" / "notes.txt").write_text("someone's own")
    (tmp_path / "demo" / "datasets" / "digits" / "manifest.json").write_text("{}")

    done = run_example("demo.py", cwd=tmp_path)

    assert done.returncode == 1
    assert "$ shardwright build demo/images/digits demo/datasets/digits" in done.stdout
    assert "demo: failed: `build` ended with exit code 1" in done.stderr
    assert "Done in" not in done.stdout
    assert "Traceback" not in done.stderr
