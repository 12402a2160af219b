"""MECHANISMS: every attention by its name. A row is a factory and, where it has any, a dataclass of its options.

The options' fields become command-line flags, `--PREFIX-FIELD`, and keyword arguments here, so that a new option
touches nothing else. The test-suite's invariances run over this table: a new row is tested by being there.
"""

from collections.abc import Callable
from dataclasses import dataclass

from relumt.attention.inhibitor import InhibitorAttention, InhibitorOptions, SignedInhibitorAttention
from relumt.attention.mechanism import Mechanism
from relumt.attention.rela import (
    ReLAg,
    ReLAgWithGELU,
    ReLAgWithLayerNorm,
    ReLAgWithLeakyReLU,
    ReLAi,
    ReLAWithRMSNorm,
    UnnormalizedReLA,
)
from relumt.attention.relu import ReLUAttention, ReLULayerNormAttention, ReLUOptions, ReLUStart
from relumt.attention.relu_n import ReLUOverLengthAttention
from relumt.attention.sigmoid import SigmoidAttention
from relumt.attention.softmax import SoftmaxAttention
from relumt.attention.sparse import Entmax15Attention, SparsemaxAttention
from relumt.variant_spec import VariantSpec


@dataclass(frozen=True)
class MechanismSpec(VariantSpec):
    """One mechanism.

    Attributes:
        use: when one would choose it, in one sentence.
        printed: where the papers print a result of it: paper, table and row of `papers.json`.
        factory: takes num_heads, head_dim, dropout and, if there is an options class, an instance of it.
        options: dataclass of the mechanism's own options, or None.
        prefix: of the options' flags; mechanisms that share it share the flags.
    """

    factory: Callable[..., Mechanism]
    options: type | None = None
    prefix: str = ""
    use: str = ""
    printed: tuple[tuple[str, str, str], ...] = ()

    def __call__(self, num_heads: int, head_dim: int, dropout: float = 0.0, **options: object) -> Mechanism:
        """Build the mechanism; raises TypeError or ValueError for an option that it does not have or allow."""
        if self.options is None:
            return self.factory(num_heads, head_dim, dropout, **options)
        return self.factory(num_heads, head_dim, dropout, self.checked(options))


MECHANISMS: dict[str, MechanismSpec] = {
    "softmax": MechanismSpec(
        SoftmaxAttention,
        use="The baseline of every comparison.",
        printed=(("RF", "table4", "transformer"), ("RL", "table1", "softmax")),
    ),
    "sparsemax": MechanismSpec(
        SparsemaxAttention,
        use="For exact zeros in rows that still sum to 1, where speed does not matter.",
        printed=(("RF", "table4", "sparsemax"), ("RL", "table1", "sparsemax")),
    ),
    "entmax15": MechanismSpec(
        Entmax15Attention,
        use="As sparsemax, with fewer zeros.",
        printed=(("RF", "table4", "entmax15"), ("RL", "table1", "entmax15")),
    ),
    "sigmoid": MechanismSpec(
        SigmoidAttention,
        use="Today's softmax-free peer with dense weights, to compare with.",
    ),
    "relu_n": MechanismSpec(
        ReLUOverLengthAttention,
        use="Today's softmax-free peer with sparse weights, to compare with.",
    ),
    "relu": MechanismSpec(
        ReLUAttention,
        ReLUOptions,
        prefix="relu",
        use="For sparse weights without sorting, with the regulariser's criterion, which makes it ReLUFormer.",
        printed=(("RF", "table4", "reluformer"), ("RF", "table5", "- regularisation loss")),
    ),
    "relu_layernorm": MechanismSpec(
        ReLULayerNormAttention,
        ReLUStart,
        prefix="relu",
        use="To repeat what [RF] §4 tried first and found worse; it prints no figure.",
    ),
    "rela_unnormalised": MechanismSpec(
        UnnormalizedReLA,
        use="To see what the norm is for.",
        printed=(("RL", "table1", "relu alone"),),
    ),
    "rela_rmsnorm": MechanismSpec(
        ReLAWithRMSNorm,
        use="To see what gate and start add to the norm.",
        printed=(("RL", "table1", "relu + RMSNorm"),),
    ),
    "rela_i": MechanismSpec(
        ReLAi,
        use="ReLA without the gate's parameters.",
        printed=(("RL", "table1", "rela_i"),),
    ),
    "rela_g": MechanismSpec(
        ReLAg,
        use="For sparse weights, null attention and alignments, without a regulariser.",
        printed=(("RL", "table1", "rela_g"), ("RF", "table4", "rela")),
    ),
    "rela_g_layernorm": MechanismSpec(
        ReLAgWithLayerNorm,
        use="An ablation.",
        printed=(("RL", "table1", "rela_g with LayerNorm"),),
    ),
    "rela_g_gelu": MechanismSpec(
        ReLAgWithGELU,
        use="An ablation.",
        printed=(("RL", "table1", "rela_g with GELU"),),
    ),
    "rela_g_leaky_relu": MechanismSpec(
        ReLAgWithLeakyReLU,
        use="An ablation.",
        printed=(("RL", "table1", "rela_g with LeakyReLU"),),
    ),
    "inhibitor": MechanismSpec(
        InhibitorAttention,
        InhibitorOptions,
        prefix="inhibitor",
        use="For attention without products of two variables, as encrypted or integer arithmetic wants it.",
        printed=(("IN", "table1", "inhibitor"),),
    ),
    "inhibitor_signed": MechanismSpec(
        SignedInhibitorAttention,
        InhibitorOptions,
        prefix="inhibitor",
        use="As inhibitor, where values below zero are to be let through too; the paper prints no figure.",
    ),
}
