"""Sparse projections onto the simplex: sparsemax, 1.5-entmax and α-entmax with a learned α. Shapes: B H T S D.

    sparsemax(z) = argmin_p ‖p − z‖²,    entmax_α(z) = argmax_p p·z + H_α(p),    p on the simplex
    H_α(p) = Σ_j (p_j − p_j^α)/(α(α − 1)),    α = 1 gives softmax, α = 2 sparsemax

z are the scores q_i·k_j/√D of the keys visible to query i. Sparsemax (Martins & Astudillo 2016) and 1.5-entmax (Peters
et al. 2019) are baselines of [RL] and [RF]; the `entmax` package computes them, and on a GPU the package `adasplash` if
it is installed. Correia et al. 2019 learn α.
"""

import math
from collections.abc import Callable

import entmax
import torch
from torch import Tensor, nn

from relumt.attention.kernels import dispatch
from relumt.attention.kernels.double_backward import refuse_double_backward
from relumt.attention.mask import AttentionMask
from relumt.attention.mechanism import Mechanism
from relumt.attention.transforms import is_exporting, is_in_torch_func, is_traced, num_reverse_derivatives

LONG_ROW = 64
PARTIAL_SORT_SIZE = 32
"""In a row of more than LONG_ROW keys entmax first sorts only the PARTIAL_SORT_SIZE largest scores, and more if the
support is larger. The result is the same bit by bit, and is computed several times as fast once attention is
concentrated."""


def partial_sort_size(scores: Tensor) -> int | None:
    """Return how many scores of a row entmax is to sort first; None for all.

    On a GPU it is always all: otherwise the CPU would wait for the GPU in every layer, to see whether the support was
    larger. In an exported program too, which cannot depend on the size of the support.
    """
    if is_exporting():
        return None
    return PARTIAL_SORT_SIZE if scores.shape[-1] > LONG_ROW and scores.device.type == "cpu" else None


def serves_entmax() -> bool:
    """Return whether the package `entmax` is used: it breaks compiled training, and does not support `torch.func`."""
    return is_exporting() or not is_traced()


def without_second_derivatives(weights: Tensor, name: str) -> Tensor:
    """Return the weights; their second derivatives by reverse mode alone, which would be wrong, raise RuntimeError.

    Those of `torch.func.hessian`, forward over reverse mode, are right. Not noticed are `backward` over
    `torch.func.grad`, and compiled transforms.
    """
    if num_reverse_derivatives(weights) > 1:
        raise RuntimeError(f"{name} has no second derivatives by reverse mode alone; use torch.func.hessian")
    if weights.requires_grad and not torch.compiler.is_compiling() and not is_in_torch_func():
        weights.register_hook(
            lambda grad: refuse_double_backward(name, "use sparsemax with RELUMT_KERNELS=reference, which has them")
        )
    return weights


class SparseAttention(Mechanism):
    """Attention whose weights are a sparse projection of the scores onto the simplex, with exact zeros.

    Attributes:
        out_of_support: scores are raised to at least this, relative to the largest of their row; their weight is 0.
    """

    weights_sum_to_one = True
    out_of_support = -4.0
    """A weight is 0 at −1 and below in sparsemax, and at −2 and below in 1.5-entmax."""

    def project(self, scores: Tensor) -> Tensor:
        """Project each row of scores [B, H, T, S] onto the simplex."""
        raise NotImplementedError

    def project_by(self, function: Callable[..., Tensor], alpha: float, scores: Tensor) -> Tensor:
        """Project by a function of the package `entmax`, the α-entmax of `alpha`, or by what serves in its place."""
        if not serves_entmax():
            return entmax_alpha(scores, scores.new_full((1, 1, 1), alpha))
        weights = dispatch.project_sparse(scores, alpha, self.out_of_support)
        return function(scores, dim=-1, k=partial_sort_size(scores)) if weights is None else weights

    def weights(self, scores: Tensor, mask: AttentionMask) -> Tensor:
        """Project scores [B, H, T, S]; a row is 0 without visible keys, and NaN if it has a NaN."""
        if not scores.numel():
            return scores
        scores = mask.fill_hidden(scores, torch.finfo(scores.dtype).min)
        largest = scores.detach().amax(-1, keepdim=True)
        # Shifting and clamping changes no weight and no gradient, and keeps entmax's sums over sorted scores exact:
        # -inf or a large number at hidden keys would not (entmax issue 30). entmax indexes out of bounds for a NaN, so
        # a NaN is replaced before it and added back after it.
        clamped = (scores - largest).clamp_(min=self.out_of_support).nan_to_num_(self.out_of_support)
        return mask.fill_hidden(self.project(clamped) + 0 * largest, 0.0)


class SparsemaxAttention(SparseAttention):
    """Sparsemax: the nearest point of the simplex."""

    def project(self, scores: Tensor) -> Tensor:
        """Return sparsemax of each row, [B, H, T, S]."""
        return self.project_by(entmax.sparsemax, 2.0, scores)


class Entmax15Attention(SparseAttention):
    """1.5-entmax: between softmax and sparsemax, with fewer zeros than sparsemax."""

    def project(self, scores: Tensor) -> Tensor:
        """Return 1.5-entmax of each row, [B, H, T, S]."""
        return without_second_derivatives(self.project_by(entmax.entmax15, 1.5, scores), "1.5-entmax")


MIN_ALPHA = 1.01
"""Below it float32 cannot tell the scores apart: they are multiplied by α − 1, and the weights raised to 1/(α − 1).

A learned α has no gradient below it, so a head that has become as dense as softmax stays so.
"""


class LearnedEntmaxAttention(SparseAttention):
    """α-entmax, α = max(1 + σ(a), 1.01), with an a for each head that is trained and starts at 0, where α = 1.5.

    Where α is 1.01, a has no gradient.
    """

    out_of_support = -1 / (MIN_ALPHA - 1)

    def __init__(self, num_heads: int, head_dim: int, dropout: float = 0.0) -> None:
        super().__init__(num_heads, head_dim, dropout)
        self.alpha_logit = nn.Parameter(torch.empty(num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize a to 0: α = 1.5."""
        nn.init.zeros_(self.alpha_logit)

    def project(self, scores: Tensor) -> Tensor:
        """Return α-entmax of each row, [B, H, T, S]."""
        # [H] -> [H, 1, 1]
        alpha = (1 + self.alpha_logit.to(scores.dtype).sigmoid()).clamp(min=MIN_ALPHA)[:, None, None]
        return without_second_derivatives(entmax_alpha(scores, alpha), "entmax_learned")


NUM_FINAL_STEPS = 6
"""Steps of Newton's method once the sum is below e: enough for float64."""

POWERS_OF_E = tuple(math.exp(power) for power in range(32))


def num_newton_steps(num_keys: int) -> int:
    """Return how many steps reach the solution for rows of num_keys scores: ⌈log num_keys⌉ until the sum is below e.

    The logarithm is found by comparisons: torch.compile then compiles once for each range of lengths, and with
    `math.log` once for each length. An exported program has the steps for all lengths, which takes about three times as
    long.
    """
    if is_exporting():
        return NUM_FINAL_STEPS + len(POWERS_OF_E)
    return NUM_FINAL_STEPS + sum(num_keys > power for power in POWERS_OF_E)


def entmax_alpha(scores: Tensor, alpha: Tensor) -> Tensor:
    """Return p_j = max((α − 1)z_j − τ, 0)^(1/(α − 1)) with τ such that Σ_j p_j = 1, of each row of scores [..., T, S].

    The sum is convex and decreasing in τ, so Newton's method from below approaches τ from below. Far from it each step
    divides the sum by about e; near it the number of correct digits doubles. The last step alone is differentiated:
    its gradient is that of τ, by the implicit function theorem.

    Args:
        scores: z; the largest of each row is 0.
        alpha: α from MIN_ALPHA to 2, of a shape that broadcasts to scores.
    """
    z, exponent = scores * (alpha - 1), 1 / (alpha - 1)
    with torch.no_grad():
        threshold = -torch.ones_like(z[..., :1])
        for _ in range(num_newton_steps(z.shape[-1])):
            distance = (z - threshold).clamp_(min=0)
            slope = (distance ** (exponent - 1)).mul_(distance > 0)  # 0^0 is 1
            excess = (slope * distance).sum(-1, keepdim=True) - 1
            threshold = threshold + excess / (exponent * slope.sum(-1, keepdim=True))
        negative_slope = exponent * ((z - threshold).clamp_(min=0) ** (exponent - 1)).mul_(z > threshold)
    excess = ((z - threshold).clamp(min=0) ** exponent).sum(-1, keepdim=True) - 1
    threshold = threshold + excess / negative_slope.sum(-1, keepdim=True)
    return (z - threshold).clamp(min=0) ** exponent
