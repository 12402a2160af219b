"""fairseq's layers with a mechanism of `relumt.attention` inside: the only place that subclasses them."""

from relumt.modules.attention import MechanismAttention
from relumt.modules.layers import MechanismDecoderLayer, MechanismEncoderLayer

__all__ = ["MechanismAttention", "MechanismDecoderLayer", "MechanismEncoderLayer"]
