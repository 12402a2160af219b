"""What is quantized, and to how many bits. This module does not import PyTorch, which takes seconds."""

from dataclasses import dataclass
from typing import Literal, get_args

from relumt.errors import UserError

Part = Literal["attention", "all"]
PARTS: tuple[Part, ...] = get_args(Part)

MIN_BITS, MAX_BITS = 2, 16
"""Widths of stored integers; with one bit, only 0 could be stored."""


@dataclass(frozen=True)
class Quantization:
    """What is computed in integers.

    Attributes:
        bits: width of stored integers.
        part: "attention", or "all" for the linear layers, too.

    Raises:
        UserError: the width or the part is not supported.
    """

    bits: int = MAX_BITS
    part: Part = "all"

    def __post_init__(self) -> None:
        if not MIN_BITS <= self.bits <= MAX_BITS or self.part not in PARTS:
            raise UserError(
                f"quantization to {self.bits} bits of '{self.part}': expected {MIN_BITS} to {MAX_BITS} bits of "
                f"{' or '.join(PARTS)}; choose these"
            )

    @property
    def name(self) -> str:
        """A name for folders and tables: "int16", or "int16-attention"."""
        return f"int{self.bits}" if self.part == "all" else f"int{self.bits}-{self.part}"
