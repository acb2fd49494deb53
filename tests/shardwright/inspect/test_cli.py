"""The command: help, commands, exit codes, and looks at a dataset that need nothing heavy."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from shardwright.inspect.cli import main
from tests.support.build_helpers import png_of

COMMANDS = ("build", "plan", "repair", "watch", "inspect", "verify", "show")
MAX_MODULES = 650  # of those Python has imported at the end; it takes 300 to 450, with Beam 2,300
# The console script's own work, and at its end a look at the imports.
RUN = """
import sys
from shardwright.inspect.cli import main
from tests.support.build_helpers import png_of
code = main(sys.argv[1:])
heavy = {"apache_beam", "tensorflow", "pipelines", "transforms", "schemas", "pandas"}
print(len(sys.modules), "modules", sorted(heavy.intersection(sys.modules)), file=sys.stderr)
sys.exit(code)
"""


def run_command(
    *args: str, path: Path | None = None, before: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, with `path` on Python's path, after other code."""
    env = os.environ | ({} if path is None else {"PYTHONPATH": str(path)})
    command = [sys.executable, "-c", before + RUN, *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)


@pytest.mark.parametrize(("word", "code"), [("--version", 0), ("bild", 2), ("verify", 2)])
def test_a_command_ends_without_the_interpreters_teardown(word: str, code: int) -> None:
    """The teardown ends pyarrow's threads, which may abort the process after all is printed."""
    program = """
import sys, threading
from shardwright.inspect.cli import main
class Last:
    def __del__(self):
        print("torn down")
last = Last()
thread = threading.Timer(0.1, print, ("threads are joined",))
thread.start()
sys.exit(main())
"""
    command = [sys.executable, "-c", program, word]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "threads are joined" in done.stdout
    assert "torn down" not in done.stdout


@pytest.mark.parametrize("word", ["--help", "-h", "help"])
def test_help_lists_every_command(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    for command in COMMANDS:
        [line] = [line for line in told.out.splitlines() if line.startswith(f"  {command} ")]
        assert len(line) > 30
    assert "examples\n  shardwright build photos/ dataset/" in told.out
    assert max(map(len, told.out.splitlines())) <= 100


@pytest.mark.parametrize("word", ["--version", "-V"])
def test_the_version(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 0
    assert capsys.readouterr().out == f"shardwright {version('shardwright')}\n"


def test_no_command_is_wrong_usage_and_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("usage: shardwright COMMAND")


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("verfy", "did you mean 'verify'?"),
        ("biuld", "did you mean 'build'?"),
        (
            "xyz",
            "the commands are build, append, plan, watch, inspect, show, stats, report, diff, "
            "verify, doctor, log, pin, compact, gc, erase, repair",
        ),
    ],
)
def test_an_unknown_command(given: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([given, "--help"]) == 2
    told = f"shardwright: error: unknown command {given!r}; {hint} (see `shardwright --help`)\n"
    assert capsys.readouterr().err == told


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_own_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    assert left.value.code == 0
    told = capsys.readouterr().out
    assert told.startswith(f"usage: shardwright {command} ")
    assert "xit codes:" in told or command == "inspect"


@pytest.mark.parametrize(
    "args", ["verify", "inspect a b", "show x", "verify x --nosuch", "verify x --threads 0"]
)
def test_wrong_usage_of_a_command(args: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(args.split())
    assert left.value.code == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("shardwright: error: ")
    assert line.endswith(f"; see `shardwright {args.split()[0]} --help`")


@pytest.mark.parametrize("command", ["inspect", "verify", "show"])
def test_places_that_are_no_dataset(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def error(place: object, *options: str) -> str:
        record = ["1"] if command == "show" else []
        assert main([command, str(place), *record, *options]) == 2
        return capsys.readouterr().err

    (tmp_path / "file").write_text("x")
    for place in (tmp_path, tmp_path / "nowhere", tmp_path / "file"):
        told = f"{place} is not a shardwright dataset: it has no manifest.json"
        assert error(place) == f"shardwright: error: {told}\n"
    told = "'ftp://host/x': ftp:// addresses are not supported"
    assert f"{told}; use a local path or one of s3://" in error("ftp://host/x")
    told = "--storage-option 'regoin' is unknown; did you mean 'region'?"
    assert told in error(tmp_path, "--storage-option", "regoin=x")


@pytest.mark.long
def test_looking_at_a_dataset_is_light(zoo: Path) -> None:
    """Neither Beam nor TensorFlow, nor pandas, which some of Arrow's calls import; few others."""
    for args in (["--help"], ["inspect", str(zoo)], ["verify", str(zoo), "--json"]):
        done = run_command(*args)
        assert done.returncode == 0, done.stderr
        number, _, heavy = done.stderr.splitlines()[-1].partition(" ")
        assert heavy == "modules []", args
        assert int(number) < MAX_MODULES, args


@pytest.mark.long
def test_an_application_that_is_missing_or_broken(tmp_path: Path) -> None:
    """Beam is imported once the options are valid and INPUT is found."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.png").write_bytes(png_of(1))
    given = "build", str(tmp_path / "in"), str(tmp_path / "out")
    missing = "import sys; sys.modules['apache_beam'] = None\n"
    done = run_command(*given, before=missing)
    line = done.stderr.splitlines()[-2]
    told = "`shardwright build` needs a package that is not installed ("
    assert line.startswith(f"shardwright: error: {told}")
    advice = "apache_beam halted; None in sys.modules): pip install 'shardwright[build]'"
    assert line.endswith(advice)
    assert (done.returncode, "Traceback" in done.stderr) == (1, False)

    fault = "libbeam.so: cannot open shared object file"
    (tmp_path / "apache_beam.py").write_text(f"raise ImportError({fault!r})")
    done = run_command(*given, path=tmp_path)
    told = f"`shardwright build` cannot start: a package that it needs is broken: {fault}"
    assert done.stderr.splitlines()[-2] == f"shardwright: error: {told}"
    assert done.returncode == 1


def test_commands_of_other_packages_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The application is found by its entry points alone, so anyone's are; built in wins."""
    metadata = tmp_path / "stranger-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    points = "[shardwright.commands]\ncount = stranger:count\nverify = stranger:count\n"
    (metadata / "entry_points.txt").write_text(points)
    code = "def count(argv):\n    print('counting', argv)\n    return 7\n"
    (tmp_path / "stranger.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["count", "a", "--b"]) == 7
    assert capsys.readouterr().out == "counting ['a', '--b']\n"
    assert main(["--help"]) == 0
    assert "  count    from stranger:count\n" in capsys.readouterr().out
    assert main(["verify", "/nowhere"]) == 2


def test_a_reader_that_leaves_early_is_no_error(zoo: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "shardwright.inspect.cli", "inspect", str(zoo)]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("words", [[], ["--json"]])
@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii", "L\\xf6we"), ("latin-1", "Löwe"), ("utf-8", "Löwe")]
)
def test_names_a_terminal_cannot_show(
    encoding: str, shown: str, words: list[str], zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding))
    assert main(["inspect", str(zoo), *words]) == 0
    assert shown in printed.getvalue().decode(encoding)


@pytest.mark.parametrize("words", [["inspect"], ["verify"], ["show", "0"]])
def test_json_goes_alone_to_stdout(
    words: list[str], zoo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *record = words
    assert main([command, str(zoo), *record, "--json"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out), dict)
