"""Declare options of the command line as fields of dataclasses: default, help and rule in one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import Field, dataclass, field, fields, is_dataclass
from typing import Any, NamedTuple

Rule = tuple[str, Callable[[Any], bool]]


class Option(NamedTuple):
    """The command line's view of a field.

    Attributes:
        name: Name of the argument, with underscores.
        default: `MISSING` for a positional argument; False for a flag without a value.
        group: Its group in the help.
        parse: Makes the field's value from that of argparse; not called for None.
        rule: What a value must be, and the test of it; the default is not tested.
        usual: Shown by `--help`; the others only by `--help-all`.
        argument: More arguments of `argparse.ArgumentParser.add_argument`.
    """

    name: str
    default: Any
    group: OptionGroup
    parse: Callable[[Any], Any]
    rule: Rule | None
    usual: bool
    argument: dict[str, Any]

    def check(self, value: Any) -> None:
        """Raise ValueError for an invalid value; the message begins with the option's name."""
        choices = self.argument.get("choices")
        rule = (f"one of {', '.join(choices)}", choices.__contains__) if choices else self.rule
        if rule and value != self.default and not rule[1](value):
            shown = f"{value:g}" if isinstance(value, float) else repr(value)
            raise ValueError(f"{self.name.replace('_', '-')} must be {rule[0]}, got {shown}")


@dataclass(frozen=True)
class OptionGroup:
    """A group of options in the help; without a title, that of the positional arguments."""

    title: str
    description: str | None = None

    def option(
        self,
        default: Any,
        text: str,
        *,
        name: str = "",
        parse: Callable[[Any], Any] = lambda value: value,
        rule: Rule | None = None,
        usual: bool = False,
        **argument: Any,
    ) -> Any:
        """Return a field with an `Option`.

        Args:
            default: Default of the field, or a function that makes it.
            text: Help of the option.
            name: Name of the option; "" for that of the field.
            parse: As in `Option`, and so are `rule`, `usual` and `argument`.
        """
        option = Option(name, default, self, parse, rule, usual, {"help": text, **argument})
        if callable(default):
            return field(default_factory=default, metadata={"option": option})
        return field(default=default, metadata={"option": option})


IMAGES = OptionGroup("images")  # of options in several folders


def option_of(declared: Field[Any]) -> Option | None:
    """Return the option that a field declares, by its name, or None."""
    option: Option | None = declared.metadata.get("option")
    return option and option._replace(name=option.name or declared.name)


def options_of(declaring: Any) -> Iterator[Option]:
    """Yield the options of a dataclass, and of the dataclasses that its fields hold by default."""
    for each in fields(declaring):
        option = option_of(each)
        if option:
            yield option
        elif is_dataclass(each.default_factory):
            yield from options_of(each.default_factory)


def given_options(values: Any) -> Iterator[str]:
    """Yield the options, such as "--encode", whose field does not have its default value."""
    for each in fields(values):
        option, value = option_of(each), getattr(values, each.name)
        if option is None:
            yield from given_options(value) if is_dataclass(value) else ()
        elif value != (option.default() if callable(option.default) else option.default):
            yield f"--{option.name.replace('_', '-')}"


def check_values(options: Any) -> None:
    """Raise ValueError for the first option with an invalid value."""
    for each in fields(options):
        option = option_of(each)
        if option:
            option.check(getattr(options, each.name))
