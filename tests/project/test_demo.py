"""The examples of `make demo`: its images, the comparison with them, and a trainer."""

from __future__ import annotations

import re
import runpy
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from tests import ROOT
from tests.support import small_datasets as small

EXAMPLES = ROOT / "examples"
MAKERS = runpy.run_path(str(EXAMPLES / "demo_images.py"))
NUM_DIGITS = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
RunHere = Callable[..., int]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the demo's digits and the dataset built from them."""
    root = tmp_path_factory.mktemp("demo")
    assert MAKERS["make_digits"](root / "digits") == 1797
    options = ("--split=train=0.8,validation=0.1,test=0.1", "--records-per-shard=256")
    small.build(root / "digits", root / "dataset", *options)
    return root


@pytest.fixture
def run_here(monkeypatch: pytest.MonkeyPatch) -> RunHere:
    """A function that runs a script in this process, which imports TensorFlow once."""
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def run(script: str, *args: str | Path) -> int:
        monkeypatch.setattr(sys, "argv", [script, *map(str, args)])
        return int(runpy.run_path(str(EXAMPLES / script))["main"]())

    return run


@pytest.mark.long
def test_digits_are_png_files_in_class_folders(root: Path) -> None:
    files = sorted(path for path in (root / "digits").rglob("*") if path.is_file())
    found = Counter(path.parent.name for path in files)
    assert found == {str(digit): number for digit, number in enumerate(NUM_DIGITS)}
    for path in files[::200]:
        with Image.open(path) as image:
            assert (image.format, image.mode, image.size) == ("PNG", "L", (32, 32))


def test_images_that_are_there_stay_untouched(root: Path, tmp_path: Path) -> None:
    """A new time of change would make a finished dataset out of date."""
    digits = shutil.copytree(root / "digits", tmp_path / "digits")
    gone, half = digits / "0" / "0000.png", digits / "1" / "0001.part"
    expected = gone.read_bytes()
    gone.unlink()
    half.write_bytes(b"the rest of a killed run")
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


@pytest.mark.long
def test_read_back_counts_the_records_that_are_equal(
    root: Path, tmp_path: Path, run_here: RunHere, capsys: pytest.CaptureFixture[str]
) -> None:
    digits = shutil.copytree(root / "digits", tmp_path / "digits")
    assert run_here("read_back.py", root / "dataset", digits) == 0
    shutil.copy(digits / "0" / "0000.png", digits / "1" / "0001.png")
    assert run_here("read_back.py", root / "dataset", digits) == 1
    told = "of 1,797 records equal their image file and its folder's label\n"
    assert capsys.readouterr().out == f"1,797 {told}1,796 {told}"
    assert run_here("read_back.py") == 2
    assert "read_back.py DATASET IMAGES" in capsys.readouterr().err


@pytest.mark.long
def test_trainer_learns_the_digits_and_resumes_exactly(
    root: Path, tmp_path: Path, run_here: RunHere, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped in mid-epoch and run again, it ends with the weights of one that nobody stopped."""
    import keras

    def train(*options: str) -> tuple[int, str]:
        keras.backend.clear_session()  # layers get the names that they have in a new process
        code = run_here("train_keras.py", root / "dataset", "--epochs", "2", *options)
        return code, capsys.readouterr().out

    whole = train("--above", "0.5")
    save = ("--save", str(tmp_path / "saved"))
    stopped = train(*save, "--stop-after", "70")
    resumed = train(*save, "--above", "0.5")

    assert (whole[0], stopped[0], resumed[0]) == (0, 0, 0)
    found = re.search(r"^test accuracy (\d\.\d{4}) on 169 images$", whole[1], re.MULTILINE)
    assert found, whole[1]
    assert float(found[1]) > 0.5  # guessed: 0.1; `make demo` trains longer
    weights = [
        re.findall(r"^weights [0-9a-f]{64}$", printed, re.MULTILINE)
        for _, printed in (whole, stopped, resumed)
    ]
    assert [len(lines) for lines in weights] == [1, 1, 1]
    assert weights[0] == weights[2] != weights[1]
    epochs = [line for line in resumed[1].splitlines() if line.startswith("Epoch")]
    assert epochs == ["Epoch 2/2"]


@pytest.mark.long
def test_trainer_fails_below_the_accuracy_asked_for(
    root: Path, run_here: RunHere, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "--epochs 1 --stop-after 2 --above 0.999"
    assert run_here("train_keras.py", root / "dataset", *options.split()) == 1
    told = r"test accuracy 0\.\d{4} is not above the required 0\.999"
    assert re.search(told, capsys.readouterr().err)


@pytest.mark.long
def test_demo_stops_at_a_failed_step_and_names_it(
    tmp_path: Path,
    run_here: RunHere,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo" / "datasets" / "digits").mkdir(parents=True)
    (tmp_path / "demo" / "datasets" / "digits" / "notes.txt").write_text("someone's own")
    (tmp_path / "demo" / "datasets" / "digits" / "manifest.json").write_text("{}")

    assert run_here("demo.py") == 1

    told = capfd.readouterr()
    assert "$ shardwright build demo/images/digits demo/datasets/digits" in told.out
    assert "demo: failed: `build` failed with exit code 1" in told.err
    assert "Done in" not in told.out
    assert "Traceback" not in told.err
