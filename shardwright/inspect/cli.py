"""The `shardwright` command: its own sub-commands, and others that packages add as entry points."""

from __future__ import annotations

import atexit
import difflib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, version

from shardwright.terminal import say, set_up_log

_GROUP = "shardwright.commands"
_EXIT_FAILED, _EXIT_USAGE, _EXIT_INTERRUPTED, _EXIT_BROKEN_PIPE = 1, 2, 130, 141
_GROUPS = {
    "build": {
        "build": "INPUT OUTPUT [options]    turn a folder or table of images into TFRecord shards",
        "append": "INPUT OUTPUT [options]    add what is new or changed: build --if-exists append",
        "plan": "INPUT OUTPUT [options]    show what build would write; reads no image",
        "watch": "OUTPUT [--once] [--json]  follow a build on any runner: rate, time left",
    },
    "look": {
        "inspect": "DATASET [--json]          splits, records, features, classes, shard sizes",
        "show": "DATASET ID|N [options]    one record: its place, image and features; --save FILE",
        "stats": "DATASET [--json]          distributions of features, sizes, quality signals",
        "report": "DATASET [-o FILE]         a page with pictures, classes, sizes, rejects",
        "diff": "DATASET NEWER [options]   records, classes and schema that changed, and drift",
        "verify": "DATASET [--json]          check every shard, record, checksum and index row",
        "doctor": "DATASET [--target RATE]   training read speed, and what limits it",
    },
    "versions and repair": {
        "log": "DATASET [--json]          the versions of a dataset that has grown",
        "pin": "DATASET [NAME] [options]  keep a version from gc; without NAME, list the pins",
        "compact": "DATASET [options]         full shards of a dataset that has grown, by copying",
        "gc": "DATASET --keep N [--yes]  remove old versions that nobody has pinned, and leftovers",
        "erase": "DATASET --ids FILE        remove records from every version, with a receipt",
        "repair": "DATASET                   make the broken files again from the sources",
    },
}
# Of this package's commands.
_MODULES = {
    "watch": "inspect.watch",
    "inspect": "inspect.describe",
    "verify": "inspect.verify",
    "show": "inspect.show",
    "stats": "inspect.stats",
    "report": "report.command",
    "diff": "inspect.diff",
    "log": "inspect.versions",
    "pin": "inspect.versions",
    "doctor": "inspect.doctor",
}
_USAGE = """\
usage: shardwright COMMAND ...

Build, inspect and verify fixed-size, globally shuffled TFRecord shards of images.

{commands}

examples
  shardwright build photos/ dataset/ --split train=0.8,validation=0.1,test=0.1
  shardwright inspect dataset/
  shardwright verify dataset/
  shardwright show dataset/ cats/0001.jpg --save cat.jpg

`shardwright COMMAND --help` lists a command's options; `shardwright --version` prints the version.
"""

Command = Callable[[Sequence[str]], int]


def run_to_end(main: Callable[[], int]) -> int:
    """Return the exit code of a command, and make it that of the process.

    A thread of pyarrow 25.0.1 may free a buffer of Python's while the interpreter is torn down.
    It then waits for the GIL, Python ends the thread, and C++ aborts the process: exit code 134
    and "terminate called without an active exception" after complete output, in up to 4 of 190
    commands on a loaded machine (https://github.com/apache/arrow/issues/49942). Python joins
    threads and calls exit handlers before the teardown, so nothing of ours is left out.
    """
    code, pid = 1, os.getpid()  # the code of an exception

    def end() -> None:
        if os.getpid() != pid:  # a forked child has an exit code of its own
            return
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)

    atexit.register(end)  # the first to be registered is the last to be called
    try:
        code = main()
    except SystemExit as stop:  # of argparse
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        raise
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Returns:
        0 on success, 1 if the command failed or found faults, 2 for wrong usage, 130 if
        interrupted, 141 if stdout was closed.
    """
    if argv is None:  # the console script
        return run_to_end(lambda: main(sys.argv[1:]))
    try:
        code = _run(list(argv))
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes stdout at exit, which would print this error again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        say("interrupted")
        return _EXIT_INTERRUPTED
    return code


def _run(args: list[str]) -> int:
    if args and args[0] in ("-h", "--help", "help"):
        print(_usage(_find_commands()), end="")
        return 0
    if args and args[0] in ("-V", "--version"):
        try:
            print(f"shardwright {version('shardwright')}")
        except PackageNotFoundError:
            print("shardwright (not installed, running from source)")
        return 0
    commands = _find_commands()
    if not args:
        print(_usage(commands), end="", file=sys.stderr)
        return _EXIT_USAGE
    if args[0] not in commands:
        guess = difflib.get_close_matches(args[0], commands, 1)
        hint = f"did you mean {guess[0]!r}?" if guess else f"the commands are {', '.join(commands)}"
        text = f"unknown command {args[0]!r}; {hint} (see `shardwright --help`)"
        return _fail(text, _EXIT_USAGE)
    try:
        set_up_log()
        command: Command = commands[args[0]].load()
        return command(args[1:])  # which may import more, such as Beam
    except ModuleNotFoundError as error:
        text = f"needs a package that is not installed ({error}): pip install 'shardwright[build]'"
    except ImportError as error:
        text = f"cannot start: a package that it needs is broken: {error}"
    return _fail(f"`shardwright {args[0]}` {text}", _EXIT_FAILED)


def _find_commands() -> dict[str, EntryPoint]:
    """Return commands by name, those of other packages first; imports none of them."""
    own = {
        name: EntryPoint(name, f"shardwright.{module}:{name}_command", _GROUP)
        for name, module in _MODULES.items()
    }
    others = {point.name: point for point in entry_points(group=_GROUP) if point.name not in own}
    found = dict(sorted(others.items())) | own
    known = [name for group in _GROUPS.values() for name in group if name in found]
    return {name: found[name] for name in known} | found


def _usage(commands: Mapping[str, EntryPoint]) -> str:
    own = {name for group in _GROUPS.values() for name in group}
    others = {name: f"from {commands[name].value}" for name in commands if name not in own}
    lines = []
    for title, group in {**_GROUPS, "others": others}.items():
        shown = [f"  {name:<8} {text}" for name, text in group.items() if name in commands]
        lines += ["", title, *shown] if shown else []
    return _USAGE.format(commands="\n".join(lines[1:]))


def _fail(text: str, code: int) -> int:
    say(f"error: {text}")
    return code


if __name__ == "__main__":
    sys.exit(main())
