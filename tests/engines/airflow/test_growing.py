"""A dataset that grows by runs of the DAGs: any order of days ends as one build."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.engines.airflow.airflow_runs import COMMAND, Airflow, files_of, verify
from tests.engines.engine_builds import ROOT
from tests.support.image_makers import picture, saved

DAYS = ("2026-03-04", "2026-03-05", "2026-03-06")
SPLIT = "train=0.7,test=0.3"
OPTIONS: dict[str, Any] = {"records-per-shard": 4}
CONF = {"split": SPLIT, "shard_size": None, "options": OPTIONS}
# Prints id -> (split, class name, the image's bytes) of the newest version.
READ = """
import json, sys
import shardwright as sw
dataset, found = sw.open(sys.argv[1]), {}
for split in dataset.splits:
    with sw.Reader(sys.argv[1], split, global_batch_size=4, epochs=1, remainder="keep") as reader:
        for batch in reader:
            for name, label, image in zip(batch["id"], batch["label"], batch["image"]):
                assert str(name) not in found
                found[str(name)] = (split, dataset.class_names[label], bytes(image).hex())
print(json.dumps(found))
"""


def records_of(dataset: Path) -> dict[str, list[str]]:
    """Return id -> (split, class name, bytes) of every record, after checking every byte."""
    verify(dataset)
    command = [ROOT / ".venv" / "bin" / "python", "-c", READ, dataset]
    output = subprocess.run(command, capture_output=True, timeout=60, check=True, cwd=ROOT).stdout
    found: dict[str, list[str]] = json.loads(output)
    return found


def build_all(source: str, dataset: Path, *options: str) -> dict[str, list[str]]:
    """Build everything at once, and return the records."""
    words = [f"--{name}={value}" for name, value in OPTIONS.items()]
    command = [COMMAND, "build", source, dataset, "--name=photos", f"--split={SPLIT}", *words]
    subprocess.run([*command, *options], capture_output=True, timeout=120, check=True)
    return records_of(dataset)


def put_images(folder: Path, names: Sequence[str], seed: int) -> None:
    """Write an image by each name; no two are equal."""
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(saved(picture(size=(20 + number, 20 + seed)), "PNG"))


def put_day(folder: Path, number: int) -> str:
    """Write the images and the table of a day, which has a class of its own; return the day."""
    day, rows = DAYS[number], [("cat", 0), ("cat", 1), ("dog", 0), (f"new{number}", 0)]
    names = [f"{day}/{label}/{index}.png" for label, index in rows]
    put_images(folder, names, number)
    table = [f"{name},{label}" for name, (label, _) in zip(names, rows, strict=True)]
    (folder / f"{day}.csv").write_text("\n".join(["image,label", *table]))
    return day


def test_a_backfill_in_any_order_with_a_day_run_again_is_one_build(
    airflow: Airflow, tmp_path: Path
) -> None:
    """Two days run at the same time. Of new classes, the second one learns by its retry."""
    photos, output = tmp_path / "photos", tmp_path / "dataset"
    days = [put_day(photos, number) for number in range(3)]
    conf = {**CONF, "input": f"{photos}/{{date}}.csv", "output": str(output)}
    airflow.run("shardwright_bash", conf, days[2])
    runs = [airflow.start("shardwright_bash", conf, day) for day in (days[1], days[0])]
    for run in runs:
        ended = run.wait()
        assert ended.code == 0, ended.log[-8000:]
    before = files_of(output)
    assert "nothing has changed" in airflow.run("shardwright_bash", conf, days[2])
    assert files_of(output) == before
    found = records_of(output)
    assert len(found) == 12
    assert found == build_all(f"{photos}/*.csv", tmp_path / "all")


def test_a_folder_that_changes(airflow: Airflow, tmp_path: Path) -> None:
    photos, output = tmp_path / "photos", tmp_path / "dataset"
    put_images(photos, [f"{label}/{day}/0.png" for label in ("a", "b") for day in DAYS], 0)
    conf = {**CONF, "input": str(photos), "output": str(output)}
    log = airflow.run("shardwright_beam", conf, DAYS[1])
    assert f"report: {output}/report.html" in log
    put_images(photos, ["a/new/0.png", "c/new/0.png", f"b/{DAYS[0]}/0.png"], 9)
    (photos / "a" / DAYS[1] / "0.png").unlink()
    log = airflow.run("shardwright_beam", conf, DAYS[0])
    assert "version 2: 3 added, 2 removed" in log
    assert records_of(output) == build_all(str(photos), tmp_path / "all")
    before = files_of(output)
    assert "nothing has changed" in airflow.run("shardwright_beam", conf, DAYS[0])
    assert files_of(output) == before
