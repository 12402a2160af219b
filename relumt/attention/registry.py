"""MECHANISMS, the registry of attention mechanisms. An entry is a factory and, if need be, a dataclass of options.

The options' fields become command-line flags, `--PREFIX-FIELD`, and keyword arguments here, so a new option is defined
in one place. The tests run over this registry, so a new mechanism is tested as soon as it is registered.
"""

from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

from relumt.attention.elastic_softmax import ElasticSoftmaxAttention
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
from relumt.attention.relu import ReLUAttention, ReLUInitOptions, ReLULayerNormAttention, ReLUOptions
from relumt.attention.relu2 import SquaredReLUAttention
from relumt.attention.relu_l1 import L1NormalizedReLUAttention, ReLUL1Options
from relumt.attention.relu_n import ReLUOverLengthAttention
from relumt.attention.scalable_softmax import ScalableSoftmaxAttention
from relumt.attention.sigmoid import SigmoidAttention
from relumt.attention.softmax import SoftmaxAttention
from relumt.attention.softpick import SoftpickAttention
from relumt.attention.sparse import Entmax15Attention, LearnedEntmaxAttention, SparsemaxAttention
from relumt.attention.variant_spec import Registry, VariantSpec

EXTENSIONS = "relumt.mechanisms"
"""Group of the entry points of other packages."""


@dataclass(frozen=True)
class MechanismSpec(VariantSpec[Mechanism]):
    """An attention mechanism.

    Attributes:
        factory: takes num_heads, head_dim, dropout and, if there is an options class, an instance of it.
        paper_results: where the papers print a result: paper, table and row in `papers.json`, for docs/mechanisms.md.
    """

    paper_results: tuple[tuple[str, str, str], ...] = ()

    def __call__(self, num_heads: int, head_dim: int, dropout: float = 0.0, **options: Any) -> Mechanism:
        """Build the mechanism; raises TypeError or ValueError for an option that it does not have or allow."""
        return super().__call__(num_heads, head_dim, dropout, **options)


MECHANISMS = Registry(
    "attention mechanism",
    {
        "softmax": MechanismSpec(
            SoftmaxAttention, paper_results=(("RF", "table4", "transformer"), ("RL", "table1", "softmax"))
        ),
        "sparsemax": MechanismSpec(
            SparsemaxAttention, paper_results=(("RF", "table4", "sparsemax"), ("RL", "table1", "sparsemax"))
        ),
        "entmax15": MechanismSpec(
            Entmax15Attention, paper_results=(("RF", "table4", "entmax15"), ("RL", "table1", "entmax15"))
        ),
        "entmax_learned": MechanismSpec(LearnedEntmaxAttention),
        "ssmax": MechanismSpec(ScalableSoftmaxAttention),
        "elastic_softmax": MechanismSpec(ElasticSoftmaxAttention),
        "softpick": MechanismSpec(SoftpickAttention),
        "sigmoid": MechanismSpec(SigmoidAttention),
        "relu_n": MechanismSpec(ReLUOverLengthAttention),
        "relu": MechanismSpec(
            ReLUAttention,
            ReLUOptions,
            "relu",
            paper_results=(("RF", "table4", "reluformer"), ("RF", "table5", "- regularization loss")),
        ),
        "relu_layernorm": MechanismSpec(ReLULayerNormAttention, ReLUInitOptions, "relu"),
        "relu2": MechanismSpec(SquaredReLUAttention, ReLUOptions, "relu"),
        "relu_l1": MechanismSpec(L1NormalizedReLUAttention, ReLUL1Options, "relu_l1"),
        "rela_unnormalized": MechanismSpec(UnnormalizedReLA, paper_results=(("RL", "table1", "relu alone"),)),
        "rela_rmsnorm": MechanismSpec(ReLAWithRMSNorm, paper_results=(("RL", "table1", "relu + RMSNorm"),)),
        "rela_i": MechanismSpec(ReLAi, paper_results=(("RL", "table1", "rela_i"),)),
        "rela_g": MechanismSpec(ReLAg, paper_results=(("RL", "table1", "rela_g"), ("RF", "table4", "rela"))),
        "rela_g_layernorm": MechanismSpec(
            ReLAgWithLayerNorm, paper_results=(("RL", "table1", "rela_g with LayerNorm"),)
        ),
        "rela_g_gelu": MechanismSpec(ReLAgWithGELU, paper_results=(("RL", "table1", "rela_g with GELU"),)),
        "rela_g_leaky_relu": MechanismSpec(
            ReLAgWithLeakyReLU, paper_results=(("RL", "table1", "rela_g with LeakyReLU"),)
        ),
        "inhibitor": MechanismSpec(
            InhibitorAttention, InhibitorOptions, "inhibitor", paper_results=(("IN", "table1", "inhibitor"),)
        ),
        "inhibitor_signed": MechanismSpec(SignedInhibitorAttention, InhibitorOptions, "inhibitor"),
    },
)


def load_extensions() -> None:
    """Add the mechanisms that installed packages define: entry points of the group "relumt.mechanisms".

    An entry point's name is that of the mechanism, its value a `MechanismSpec`, or a class without options.
    """
    for entry in entry_points(group=EXTENSIONS):
        if entry.name not in MECHANISMS:
            found = entry.load()
            MECHANISMS[entry.name] = found if isinstance(found, MechanismSpec) else MechanismSpec(found)
