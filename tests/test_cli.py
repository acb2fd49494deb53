"""The command: what it lists, how it finds its commands, its exit codes, and that looking at a dataset stays light."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from shardwright.cli import main

COMMANDS = ("build", "plan", "inspect", "verify", "show")
MAX_CPU_SECONDS = 1.5
# The console script's own work, and at its end a look at what was imported.
RUN = """
import sys
from shardwright.cli import main
code = main(sys.argv[1:])
heavy = sorted(name for name in sys.modules if name in ("apache_beam", "tensorflow", "pipelines", "transforms", "schemas", "pandas"))
print("imported", heavy, file=sys.stderr)
sys.exit(code)
"""


def run_command(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RUN, *args], capture_output=True, text=True, check=False
    )


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for args in (["--help"], ["-h"], ["help"]):
        assert main(args) == 0
        told = capsys.readouterr()
        assert told.err == ""
        for command in COMMANDS:
            [line] = [line for line in told.out.splitlines() if line.startswith(f"  {command} ")]
            assert len(line) > 30
        assert "examples\n  shardwright build photos/ dataset/" in told.out
        assert max(map(len, told.out.splitlines())) <= 100


def test_no_command_is_wrong_usage_and_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("usage: shardwright COMMAND")


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"shardwright {version('shardwright')}\n"


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("verfy", "did you mean 'verify'?"),
        ("biuld", "did you mean 'build'?"),
        ("xyz", "the commands are build, plan, inspect, verify, show, doctor"),
    ],
)
def test_an_unknown_command(given: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([given, "--help"]) == 2
    assert (
        capsys.readouterr().err
        == f"shardwright: error: {given!r} is no command; {hint} (see `shardwright --help`)\n"
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_own_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    told = capsys.readouterr().out
    assert told.startswith(f"usage: shardwright {command} ")
    assert "xit codes:" in told or command == "inspect"


@pytest.mark.parametrize(
    "args",
    [
        ["verify"],
        ["inspect", "a", "b"],
        ["show", "x"],
        ["verify", "x", "--nosuch"],
        ["verify", "x", "--threads", "0"],
    ],
)
def test_wrong_usage_of_a_command(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(args)
    assert left.value.code == 2
    assert f"usage: shardwright {args[0]}" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["inspect", "verify", "show"])
def test_places_that_are_no_dataset(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("x")
    more = ["1"] if command == "show" else []
    for place in (tmp_path, tmp_path / "nowhere", tmp_path / "file"):
        assert main([command, str(place), *more]) == 2
        assert (
            capsys.readouterr().err
            == f"shardwright: error: {place} is not a shardwright dataset: it has no manifest.json\n"
        )
    assert main([command, "ftp://host/x", *more]) == 2
    assert (
        "'ftp://host/x': ftp:// addresses are not read or written; give a local path or one of s3://"
        in capsys.readouterr().err
    )
    assert main([command, str(tmp_path), *more, "--storage-option", "regoin=x"]) == 2
    assert (
        "--storage-option 'regoin' is no option of a store; did you mean 'region'?"
        in capsys.readouterr().err
    )


def test_looking_at_a_dataset_is_light(zoo: Path) -> None:
    """Neither Beam nor TensorFlow (nor pandas, which some of Arrow's calls import), and little CPU."""
    for args in (
        ["--help"],
        ["inspect", str(zoo)],
        ["verify", str(zoo)],
        ["verify", str(zoo), "--json"],
    ):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = run_command(*args)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert done.returncode == 0, done.stderr
        assert done.stderr.splitlines()[-1] == "imported []", args
        assert (
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < MAX_CPU_SECONDS
        ), args


def test_an_application_that_is_not_installed() -> None:
    code = "import sys; sys.modules['apache_beam'] = None\n" + RUN
    done = subprocess.run(
        [sys.executable, "-c", code, "build", "a", "b"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    line = done.stderr.splitlines()[0]
    assert line.startswith(
        "shardwright: error: `shardwright build` needs a package that is not installed ("
    )
    assert line.endswith(
        "apache_beam halted; None in sys.modules): pip install 'shardwright[build]'"
    )
    assert "Traceback" not in done.stderr


def test_a_package_that_is_broken(tmp_path: Path) -> None:
    (tmp_path / "apache_beam.py").write_text(
        "raise ImportError('libbeam.so: cannot open shared object file')"
    )
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", RUN, "build", "a", "b"],
        capture_output=True,
        text=True,
        check=False,
        env=env,
    )
    assert done.returncode == 1
    told = "`shardwright build` cannot start, a package it needs is broken: libbeam.so: cannot open shared object file"
    assert done.stderr.splitlines()[0] == f"shardwright: error: {told}"


def test_commands_of_other_packages_are_found(tmp_path: Path) -> None:
    """The application is found by its entry points alone, so anyone's are."""
    (tmp_path / "stranger-1.0.dist-info").mkdir()
    (tmp_path / "stranger-1.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n"
    )
    (tmp_path / "stranger-1.0.dist-info" / "entry_points.txt").write_text(
        "[shardwright.commands]\ncount = stranger:count\nverify = stranger:count\n"
    )
    (tmp_path / "stranger.py").write_text(
        "def count(argv):\n    print('counting', argv)\n    return 7\n"
    )
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    run = [sys.executable, "-c", RUN]
    done = subprocess.run(
        [*run, "count", "a", "--b"], capture_output=True, text=True, check=False, env=env
    )
    assert (done.returncode, done.stdout) == (7, "counting ['a', '--b']\n")
    told = subprocess.run(
        [*run, "--help"], capture_output=True, text=True, check=True, env=env
    ).stdout
    assert "  count    from stranger:count\n" in told
    assert (
        subprocess.run(
            [*run, "verify", "/nowhere"], capture_output=True, check=False, env=env
        ).returncode
        == 2
    ), "built in wins"


def test_a_reader_that_leaves_early_is_no_error(zoo: Path) -> None:
    for args in (["inspect", str(zoo)], ["--help"]):
        process = subprocess.Popen(
            [sys.executable, "-m", "shardwright.cli", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait() == 141


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_names_a_terminal_cannot_show(encoding: str, zoo: Path) -> None:
    env = os.environ | {"PYTHONIOENCODING": encoding}
    for args in (["inspect"], ["inspect", "--json"]):
        done = subprocess.run(
            [sys.executable, "-m", "shardwright.cli", args[0], str(zoo), *args[1:]],
            capture_output=True,
            check=True,
            env=env,
        )
        shown = "L\\xf6we" if encoding == "ascii" else "Löwe"
        assert shown in done.stdout.decode(encoding)


def test_json_goes_alone_to_stdout(zoo: Path) -> None:
    for args in (["inspect", str(zoo)], ["verify", str(zoo)], ["show", str(zoo), "0"]):
        assert isinstance(json.loads(run_command(*args, "--json").stdout), dict)
