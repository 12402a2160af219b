"""MECHANISMS: every attention by its name. A row is a factory and, where it has any, a dataclass of its options.

The options' fields become command-line flags, `--PREFIX-FIELD`, and keyword arguments here, so that a new option
touches nothing else. The test-suite's invariances run over this table: a new row is tested by being there.
"""

from collections.abc import Callable, Iterator
from dataclasses import Field, dataclass, fields

from relumt.attention.base import Mechanism
from relumt.attention.relu import ReLUAttention, ReLUOptions
from relumt.attention.softmax import SoftmaxAttention


@dataclass(frozen=True)
class Row:
    """One mechanism.

    Attributes:
        factory: takes num_heads, head_dim, dropout and, if there is an options class, an instance of it.
        options: dataclass of the mechanism's own options, or None.
        prefix: of the options' flags; mechanisms that share it share the flags.
    """

    factory: Callable[..., Mechanism]
    options: type | None = None
    prefix: str = ""

    def __call__(self, num_heads: int, head_dim: int, dropout: float = 0.0, **options: object) -> Mechanism:
        """Build the mechanism; raises TypeError or ValueError for an option that it does not have or allow."""
        if self.options is None:
            return self.factory(num_heads, head_dim, dropout, **options)
        return self.factory(num_heads, head_dim, dropout, self.options(**options))

    def flags(self) -> Iterator[tuple[str, Field]]:
        """The options as pairs of an attribute's name on the command line, `PREFIX_FIELD`, and the field."""
        for option in fields(self.options) if self.options else ():
            yield f"{self.prefix}_{option.name}", option


MECHANISMS: dict[str, Row] = {
    "softmax": Row(SoftmaxAttention),
    "relu": Row(ReLUAttention, ReLUOptions, prefix="relu"),
}
