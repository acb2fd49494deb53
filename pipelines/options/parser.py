"""Make the parser of a command from its declared options, and read them back."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, NoReturn, TypeVar, cast

from shardwright.errors import UsageError
from shardwright.pipelines.options.help_texts import DESCRIPTION, LONG, SHORT, USAGE
from shardwright.transforms.options import Option, option_of, options_of

_Options = TypeVar("_Options")


class OptionParser(argparse.ArgumentParser):
    """A parser with a short and a long help. The long one loads all input formats to list them.

    Args:
        command: "build" or "plan".
    """

    def __init__(self, command: str) -> None:
        super().__init__(
            prog=f"shardwright {command}",
            description=DESCRIPTION[command],
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,  # abbreviations would capture options of Beam
        )
        self.add_argument("--help-all", action=_HelpAll, nargs=0, help="show every option and exit")
        # argparse's own rule, and "-1..1", which is a value, too, not an option.
        self._negative_number_matcher = re.compile(r"-\d+$|-\d*\.\d+$|-\d+\.\.")
        self.rare: set[str] = set()  # options that `--help` leaves out, to fit two screens

    def error(self, message: str) -> NoReturn:
        """Raise UsageError in place of argparse's exit, which prints every option first."""
        _, _, missing = message.partition(" are required: ")
        if missing:
            raise UsageError(f"missing {missing}: {USAGE % {'prog': self.prog}}")
        raise UsageError(f"{message}; see `{self.prog} --help`")

    def add_options(self, declaring: type) -> None:
        """Add the options of a dataclass, group by group."""
        options = list(options_of(declaring))
        self.rare |= {option.name for option in options if not option.usual}
        for group in dict.fromkeys(option.group for option in options):
            title = group.title
            target = self.add_argument_group(title, group.description) if title else self
            for option in options:
                if option.group == group:
                    _add_option(target, option)

    def format_help(self) -> str:
        """Return the help of the usual options."""
        formatter = self._get_formatter()
        formatter.add_usage(USAGE, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        for group in self._action_groups:
            formatter.start_section(group.title)
            formatter.add_arguments(
                [one for one in group._group_actions if one.dest not in self.rare]
            )
            formatter.end_section()
        formatter.add_text(SHORT)
        return formatter.format_help()

    def format_all(self) -> str:
        """Return the help of every option, and the installed input formats."""
        # Imported here, because `--help` lists no formats, and they need many modules.
        from shardwright.transforms.inputs.detection import known_formats

        formats = known_formats()
        width = max(map(len, formats))
        listed = "".join(f"  {name:{width}}  {known.summary}\n" for name, known in formats.items())
        self.epilog = LONG
        return f"{super().format_help()}\ninput formats, in the order of detection\n{listed}"


class _HelpAll(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        del namespace, values, option_string
        assert isinstance(parser, OptionParser)
        print(parser.format_all(), end="")
        parser.exit()


def _add_option(target: argparse._ActionsContainer, option: Option) -> None:
    flag = "--" + option.name.replace("_", "-")
    if option.default is MISSING:
        target.add_argument(option.name, **option.argument)
    elif option.default is False:
        target.add_argument(flag, action="store_true", **option.argument)
    else:
        default = [] if "action" in option.argument else option.default
        target.add_argument(flag, default=default, **option.argument)


def read_options(declaring: type[_Options], known: argparse.Namespace, **others: Any) -> _Options:
    """Return a dataclass of the parsed options.

    Args:
        declaring: A dataclass that was given to `add_options`.
        known: The parsed arguments.
        others: Values of the fields that are no options.

    Raises:
        UsageError: A value is invalid, or two options contradict each other.
    """
    for each in fields(cast(Any, declaring)):
        option = option_of(each)
        if option:
            value = getattr(known, option.name)
            others[each.name] = None if value is None else option.parse(value)
        elif is_dataclass(each.default_factory):
            others[each.name] = read_options(cast(Any, each.default_factory), known)
    try:
        return declaring(**others)
    except UsageError:
        raise
    except ValueError as error:  # from image options, whose messages begin with a field's name
        raise UsageError(f"--{error}") from error
