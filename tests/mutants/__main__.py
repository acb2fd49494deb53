"""Run a fixed list of mutants: `python -m tests.mutants COVERAGE JUNIT RESULT` (`make mutants`).

Each mutant is put into a copy of the tree, and the tests that run its line are run until one fails
that passes without the mutant.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from tests import ROOT
from tests.mutants.sites import Site, find_sites, line_of, mutate

NUM_MUTANTS = 300
# Of each list: the seed it was drawn with, and how the paths begin that it was drawn from.
LISTS = {
    "mutants": (13, ("",)),
    "guards": (
        34,
        (
            "shardwright/cache/",
            "shardwright/format/",
            "shardwright/reader/",
            "shardwright/storage/",
            "transforms/changes/",
            "transforms/erasure/",
            "transforms/publish/",
            "transforms/versions/",
            "transforms/write/",
            "pipelines/repairs/",
        ),
    ),
}
MOST_SECONDS, MOST_FILES = 40.0, 12  # of the tests of one mutant, as they took without it
TIMEOUT_S = 240
PROCESSES = 2
ARGS = ("-x", "-q", "-p", "no:cacheprovider", "--timeout", "100")
# 2: a test file cannot be imported.
OUTCOMES = {0: "survived", 1: "killed", 2: "killed"}
LINKED = (".venv", ".servers", ".torch")
# Imported once, before each mutant's process is forked: seconds less a mutant.
PRELOADED = (
    "numpy",
    "pyarrow.parquet",
    "PIL.Image",
    "hypothesis",
    "apache_beam",
    "tfx_bsl.coders.example_coder",
    "tensorflow",
)


def path_of(name: str) -> Path:
    return Path(__file__).with_name(f"{name}.csv")


def choose(name: str) -> None:
    """Write a list anew, drawn at random from all places in its part of the source."""
    seed, prefixes = LISTS[name]
    sites = [site for site in find_sites(ROOT) if site.path.startswith(prefixes)]
    drawn = sorted(random.Random(seed).sample(range(len(sites)), NUM_MUTANTS))
    with path_of(name).open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [("path", "scope", "before", "after", "number"), *(sites[n].key for n in drawn)]
        )
    print(f"{NUM_MUTANTS} of {len(sites)} places")


def listed(name: str) -> list[Site]:
    with path_of(name).open() as file:
        return [
            Site(**{**row, "number": int(row["number"]), "line": 0}) for row in csv.DictReader(file)
        ]


class Tests:
    """The tests that run each line, by coverage's contexts, and how long they take, by JUnit."""

    def __init__(self, coverage: str, junit: str) -> None:
        self._lines: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        with sqlite3.connect(coverage) as database:
            arcs = database.execute(
                "SELECT file.path, context.context, arc.fromno, arc.tono FROM arc"
                " JOIN file ON file.id = arc.file_id JOIN context ON context.id = arc.context_id"
                " WHERE context.context != ''"
            )
            for path, context, start, end in arcs:
                for line in {abs(start), abs(end)}:
                    self._lines[path][line].add(context.rpartition("|")[0])
        self._seconds: Counter[str] = Counter()
        self._unsound: set[str] = set()  # failed or skipped without a mutant: they show nothing
        for case in ET.parse(junit).iter("testcase"):
            module = (case.get("classname") or "").replace(".", "/")
            test = f"{module}.py::{case.get('name')}"
            self._seconds[test] += float(case.get("time") or 0)
            if any(child.tag in ("failure", "error", "skipped") for child in case):
                self._unsound.add(test)

    def of(self, path: str, line: int) -> list[str]:
        """Return the tests to run: quickest first, of the files that run the line most often."""
        lines = next(
            (lines for name, lines in self._lines.items() if name.endswith("/" + path)), {}
        )
        found = lines.get(line) or set().union(*lines.values())
        found = found - self._unsound
        by_file = Counter(test.partition("::")[0] for test in found)
        own = f"test_{Path(path).stem}"
        files = sorted(by_file, key=lambda name: (Path(name).stem != own, -by_file[name]))[
            :MOST_FILES
        ]
        chosen, total = [], 0.0
        for test in sorted(
            (t for t in found if t.partition("::")[0] in files), key=self._seconds.__getitem__
        ):
            total += self._seconds[test]
            if chosen and total > MOST_SECONDS:
                break
            chosen.append(test)
        return chosen


class Tree:
    """A copy of the source, in which mutants are put and tests run."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / ROOT.name
        self._failed = folder / "failed"
        self._sound: dict[str, bool] = {}  # of a test that failed: whether it passes without mutant
        # With its links: `shardwright/transforms` is one, and the tests import by it.
        left_out = shutil.ignore_patterns(*LINKED, ".git", "__pycache__", "demo")
        shutil.copytree(ROOT, self.path, symlinks=True, ignore=left_out)
        for name in LINKED:
            (self.path / name).symlink_to(ROOT / name)

    def outcome_of(self, site: Site, tests: list[str]) -> str:
        """Return 'killed', 'timeout' or 'survived'."""
        target = self.path / site.path
        whole, changed = target.read_text(), mutate(self.path, site)
        while True:
            target.write_text(changed)
            try:
                outcome, failed = self._run(tests)
            finally:
                target.write_text(whole)
            if failed is None or self._passes(failed):
                return outcome
            tests = [test for test in tests if test != failed]

    def _passes(self, test: str) -> bool:
        if test not in self._sound:
            self._sound[test] = self._run([test])[0] == "survived"
        return self._sound[test]

    def _run(self, tests: list[str]) -> tuple[str, str | None]:
        """Return the outcome, and the test that failed, where it was one."""
        self._failed.unlink(missing_ok=True)
        child = os.fork()
        if not child:
            run_here(self.path, tests, self._failed)
        outcome = wait_for(child)
        return outcome, self._failed.read_text() if self._failed.exists() else None


class Chosen:
    """Pytest plugin: of the files given, run just these tests, in this order; name what failed."""

    def __init__(self, tests: list[str], failed: Path) -> None:
        self._ranks = {test: rank for rank, test in enumerate(tests)}
        self._failed = failed

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self._ranks]
        items[:] = sorted(chosen, key=lambda item: self._ranks[item.nodeid])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.write_text(report.nodeid)


def run_here(tree: Path, tests: list[str], failed: Path) -> NoReturn:
    """Run tests of a copy of the source in this process, which a fork began, and end it."""
    os.setsid()
    os.chdir(tree)
    os.environ["PYTHONPATH"] = sys.path[0] = str(tree)
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in range(3):
        os.dup2(nothing, descriptor)
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]  # these are the copy's from here on
    files = sorted({test.partition("::")[0] for test in tests})
    os._exit(int(pytest.main([*ARGS, *files], [Chosen(tests, failed)])))


def wait_for(child: int) -> str:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            end_group(child)
            code = os.waitstatus_to_exitcode(status)
            return OUTCOMES.get(code, f"exit code {code}")
        time.sleep(0.05)
    end_group(child)
    os.waitpid(child, 0)
    return "timeout"


def end_group(leader: int) -> None:
    """Kill what a mutant's tests have left running."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def work(
    number: int, jobs: list[tuple[int, Site, list[str]]], results: multiprocessing.SimpleQueue
) -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    sys.dont_write_bytecode = True  # two mutants of one second and one size would share it
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    with tempfile.TemporaryDirectory(prefix="shardwright-mutants-") as folder:
        tree = Tree(Path(folder))
        tempfile.tempdir = os.environ["TMPDIR"] = str(Path(folder, "temporary"))
        os.mkdir(tempfile.tempdir)
        for index, site, tests in jobs[number::PROCESSES]:
            results.put((index, tree.outcome_of(site, tests)))


def run(
    name: str, coverage: str, junit: str, wanted: list[int] | None
) -> Iterator[tuple[int, Site, int, str]]:
    """Yield (number, mutant, tests, outcome) of each mutant of the list."""
    covering = Tests(coverage, junit)
    jobs, sites = [], listed(name)
    for index, site in enumerate(sites):
        if wanted is not None and index not in wanted:
            continue
        try:
            tests = covering.of(site.path, line_of(ROOT, site))
        except (LookupError, FileNotFoundError):
            yield index, site, 0, "gone"
            continue
        if tests:
            jobs.append((index, site, tests))
        else:
            yield index, site, 0, "not covered"
    results: multiprocessing.SimpleQueue = multiprocessing.SimpleQueue()
    workers = [
        multiprocessing.Process(target=work, args=(number, jobs, results))
        for number in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    num_tests = {index: len(tests) for index, _, tests in jobs}
    for _ in jobs:
        index, outcome = results.get()
        yield index, sites[index], num_tests[index], outcome
    for worker in workers:
        worker.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("coverage", nargs="?", help="coverage's data file, with a context a test")
    parser.add_argument("junit", nargs="?", help="JUnit file of the same run")
    parser.add_argument("result", nargs="?", help="JSON file to write")
    parser.add_argument("--list", choices=LISTS, default="mutants", help="(default %(default)s)")
    parser.add_argument("--choose", action="store_true", help="draw the list anew")
    parser.add_argument("--only", help="numbers of mutants, with commas")
    args = parser.parse_args()
    if args.choose:
        choose(args.list)
        return
    wanted = [int(number) for number in args.only.split(",")] if args.only else None
    outcomes = {}
    for index, site, tests, outcome in run(args.list, args.coverage, args.junit, wanted):
        outcomes[index] = outcome
        place = f"{site.path} {site.scope}"
        print(f"{index:3} {outcome:11} {tests:4} tests  {place}: {site.before} -> {site.after}")
        sys.stdout.flush()
        Path(args.result).write_text(json.dumps(dict(sorted(outcomes.items()))))
    print(
        ", ".join(
            f"{count} {outcome}" for outcome, count in Counter(outcomes.values()).most_common()
        )
    )


if __name__ == "__main__":
    main()
