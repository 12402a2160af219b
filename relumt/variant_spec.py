"""What the rows of every registry share: options as a dataclass, whose fields become command-line flags."""

import math
from collections.abc import Iterator
from dataclasses import Field, fields
from typing import Any, Literal, get_args, get_origin


class VariantSpec:
    """A row of a registry.

    Attributes:
        options: dataclass of the row's own options, or None.
        prefix: of the options' flags; rows that share it share the flags.
    """

    options: type | None
    prefix: str

    def flags(self) -> Iterator[tuple[str, Field]]:
        """The options as pairs of an attribute's name on the command line, `PREFIX_FIELD`, and the field."""
        for option in fields(self.options) if self.options else ():
            yield f"{self.prefix}_{option.name}", option

    def checked(self, options: dict[str, object]) -> Any:
        """An instance of the options class; raises TypeError or ValueError for an option it does not have or allow."""
        checked = self.options(**options)
        for attribute, option in self.flags():
            value = getattr(checked, option.name)
            if get_origin(option.type) is Literal and value not in get_args(option.type):
                known = ", ".join(get_args(option.type))
                raise ValueError(f"{flag_name(attribute)} must be one of {known}, not '{value}'")
            if isinstance(value, float) and not math.isfinite(value):
                raise ValueError(f"{flag_name(attribute)} must be a finite number, not {value}")
        return checked


def flag_name(attribute: str) -> str:
    """The command line's spelling of an attribute: relu_gamma → --relu-gamma."""
    return "--" + attribute.replace("_", "-")
