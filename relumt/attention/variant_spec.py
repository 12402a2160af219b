"""The entries of both registries: how to build a variant, and its options, whose fields become command-line flags."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, fields
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

Variant = TypeVar("Variant", covariant=True)
Spec = TypeVar("Spec", bound="VariantSpec[Any]")

FINITE = (-1e6, 1e6)
NOT_NEGATIVE = (0.0, 1e6)
POSITIVE = (1e-6, 1e6)
"""Ranges of options that are numbers, for `metadata={"range": …}`. Far beyond them float32 overflows in training."""


@dataclass(frozen=True)
class VariantSpec(Generic[Variant]):
    """An entry of a registry.

    Attributes:
        factory: builds the variant; if there is an options class, the last argument is an instance of it.
        options: dataclass of the variant's own options, or None.
        prefix: prefix of the options' flags; variants with the same prefix share their flags.
    """

    factory: Callable[..., Variant]
    options: type[Any] | None = None
    prefix: str = ""

    def __call__(self, *arguments: Any, **options: Any) -> Variant:
        """Build the variant.

        Raises:
            TypeError: the variant has no such option.
            ValueError: an option does not allow its value.
        """
        if self.options is None:
            return self.factory(*arguments, **options)
        checked = self.options(**options)
        for attribute, option in self.flags():
            check_value(flag_name(attribute), option, getattr(checked, option.name))
        return self.factory(*arguments, checked)

    def flags(self) -> Iterator[tuple[str, Field[Any]]]:
        """Yield each option as its attribute on the command line, `PREFIX_FIELD`, and its dataclass field."""
        for option in fields(self.options) if self.options else ():
            yield f"{self.prefix}_{option.name}", option


class Registry(dict[str, Spec]):
    """The variants of one kind by name; asking for an unknown name raises KeyError with the name that was meant.

    Args:
        kind: what the variants are, for messages.
        entries: name → entry.
    """

    def __init__(self, kind: str, entries: Mapping[str, Spec]) -> None:
        super().__init__(entries)
        self.kind = kind

    def __missing__(self, name: str) -> Spec:
        """Raise KeyError."""
        raise KeyError(f"unknown {self.kind} '{name}'; {suggest(str(name), self)}choose from {', '.join(sorted(self))}")


def suggest(name: str, known: Iterable[str]) -> str:
    """Return a question with the known name that resembles a wrong one; "" if none does."""
    similar = difflib.get_close_matches(name.strip().lower(), known, n=1)
    return f"did you mean '{similar[0]}'? " if similar else ""


def check_value(flag: str, option: Field[Any], value: Any) -> None:
    """Raise ValueError if `value` is none of the choices of `option`, or not a number in its range."""
    if get_origin(option.type) is Literal:
        if value not in get_args(option.type):
            raise ValueError(f"{flag} must be one of {', '.join(get_args(option.type))}, not {value!r}")
    elif option.type is bool:
        if not isinstance(value, bool):
            raise ValueError(f"{flag} must be True or False, not {value!r}")
    else:
        least, most = option.metadata.get("range", FINITE)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise ValueError(f"{flag} must be a number from {least:g} to {most:g}, not {value!r}")


def flag_name(attribute: str) -> str:
    """Return the flag of an attribute on the command line: relu_gamma → --relu-gamma."""
    return "--" + attribute.replace("_", "-")
