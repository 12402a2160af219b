"""A norm over the concatenated heads of a mechanism. Shapes: T queries, B batch, E = H·D."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from relumt.attention.mechanism import Mechanism
from relumt.attention.norms import GatedNorm, HeadMap, LayerNorm, RMSNorm


class NormalizedHeads(Mechanism):
    """A mechanism with a norm over the concatenated heads, to be derived from before the class of the weights.

    Attributes:
        build_norm: builds the norm over E.
    """

    build_norm: Callable[[int], RMSNorm | LayerNorm | GatedNorm]

    def __init__(self, num_heads: int, head_dim: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(num_heads, head_dim, *args, **kwargs)
        self.norm = self.build_norm(num_heads * head_dim)

    def postprocess_heads(self, x: Tensor) -> Tensor:
        """Normalize the concatenated heads [T, B, E]."""
        normalized: Tensor = self.norm(x)
        return normalized

    def head_map(self, x: Tensor) -> HeadMap:
        """Return the linear map that the norm is at x."""
        return self.norm.map_at(x)
