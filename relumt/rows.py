"""What the rows of every registry share: options as a dataclass, whose fields become command-line flags."""

from collections.abc import Iterator
from dataclasses import Field, fields


class OptionRow:
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
