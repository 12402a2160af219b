"""MECHANISMS: every attention by its name. A row is a factory and, where it has any, a dataclass of its options.

The options' fields become command-line flags, `--PREFIX-FIELD`, and keyword arguments here, so that a new option
touches nothing else. The test-suite's invariances run over this table: a new row is tested by being there.
"""

from collections.abc import Callable, Iterator
from dataclasses import Field, dataclass, fields

from relumt.attention.base import Mechanism
from relumt.attention.inhibitor import InhibitorAttention, InhibitorOptions, SignedInhibitorAttention
from relumt.attention.rela import (
    ReLAg,
    ReLAgWithGELU,
    ReLAgWithLayerNorm,
    ReLAgWithLeakyReLU,
    ReLAi,
    ReLAWithRMSNorm,
    UnnormalisedReLA,
)
from relumt.attention.relu import ReLUAttention, ReLULayerNormAttention, ReLUOptions, ReLUStart
from relumt.attention.relu_n import ReLUOverLengthAttention
from relumt.attention.sigmoid import SigmoidAttention
from relumt.attention.softmax import SoftmaxAttention
from relumt.attention.sparse import Entmax15Attention, SparsemaxAttention


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
    "sparsemax": Row(SparsemaxAttention),
    "entmax15": Row(Entmax15Attention),
    "sigmoid": Row(SigmoidAttention),
    "relu_n": Row(ReLUOverLengthAttention),
    "relu": Row(ReLUAttention, ReLUOptions, prefix="relu"),
    "relu_layernorm": Row(ReLULayerNormAttention, ReLUStart, prefix="relu"),
    "rela_unnormalised": Row(UnnormalisedReLA),
    "rela_rmsnorm": Row(ReLAWithRMSNorm),
    "rela_i": Row(ReLAi),
    "rela_g": Row(ReLAg),
    "rela_g_layernorm": Row(ReLAgWithLayerNorm),
    "rela_g_gelu": Row(ReLAgWithGELU),
    "rela_g_leaky_relu": Row(ReLAgWithLeakyReLU),
    "inhibitor": Row(InhibitorAttention, InhibitorOptions, prefix="inhibitor"),
    "inhibitor_signed": Row(SignedInhibitorAttention, InhibitorOptions, prefix="inhibitor"),
}
