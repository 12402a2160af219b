"""Powers of ReLU: weights, their derivatives and factors.

    w_ij = ReLU(f s_ij)^p = F r_ij^p,   r_ij = ReLU(s_ij),          F = f^p
    w_ij = ReLU(f s_ij + b)^p = r_ij^p, r_ij = ReLU(f s_ij + b),    F = 1       with a shift

Kernels compute r^p and multiply sums of it by F; scores s are scaled late, too, unless there is a shift.
"""

# mypy: allow-untyped-defs, allow-incomplete-defs

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from relumt.attention.kernels.hopper.layouts import pack, split_pairs


@gluon.jit
def rectify(x):
    """Return max(x, 0); NaN stays NaN."""
    return gl.inline_asm_elementwise(
        "max.NaN.f32 $0, $1, 0f00000000;", "=r,r", [x], dtype=gl.float32, is_pure=True, pack=1
    )


@gluon.jit
def at_least_tiny(x):
    """Return max(x, the smallest normal float32), whose logarithm stands in for log 0; NaN stays NaN."""
    return gl.inline_asm_elementwise(
        "max.NaN.f32 $0, $1, 0f00800000;", "=r,r", [x], dtype=gl.float32, is_pure=True, pack=1
    )


@gluon.jit
def fast_log2(x):
    """Return log2 of a normal number in one instruction, accurate to 22 bits."""
    return gl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=r,r", [x], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def power(x, n: gl.constexpr):
    """Return |x|^n with the sign of x, for n from 1 on. Multiplication takes absolute values without an instruction."""
    if n == 1:
        return x
    else:
        root = power(x, n // 2)
        square = root * gl.abs(root)
        return square * gl.abs(x) if n % 2 else square


@gluon.jit
def late_factor(f, CONFIG: gl.constexpr):
    """Return F, what sums of r^p are multiplied by, for a tensor of factors."""
    return gl.full_like(f, 1.0) if CONFIG.is_shifted else power(f, CONFIG.exponent)


@gluon.jit
def scale_gradient(x, f, scale, CONFIG: gl.constexpr):
    """Multiply sums of dS, whose derivatives are r^(p-1) here, by what they left out; f is the sentence's factor."""
    if CONFIG.has_factor:
        x *= (f if CONFIG.is_shifted else power(f, CONFIG.exponent)) * CONFIG.exponent * scale
    elif CONFIG.exponent > 1:
        x *= CONFIG.exponent
    return x


@gluon.jit
def load_shift(scaling, f_b, bias_b, b, CONFIG: gl.constexpr):
    """Return f and b of a sentence, which scores are shifted by; zeros without a shift."""
    if CONFIG.is_shifted:
        return gl.load(scaling.factor + b * f_b), gl.load(scaling.bias + b * bias_b)
    else:
        return 0.0, 0.0


@gluon.jit
def shift_scores(s, shift, CONFIG: gl.constexpr):
    """Return f s + b with the results of `load_shift`, or s without a shift."""
    return s * shift[0] + shift[1] if CONFIG.is_shifted else s


@gluon.jit
def load_terms(RowTerms, first, queries, CONFIG: gl.constexpr):
    """Load a and b of `row_terms` for queries that begin at `first`; b is 0 unless `row_sums` is 2."""
    if CONFIG.row_sums == 2:
        return split_pairs(gl.load(RowTerms + first + queries))
    elif CONFIG.row_sums == 1:
        return gl.load(RowTerms + first + queries), 0.0
    else:
        return 0.0, 0.0


@gluon.jit
def row_terms(terms, x, AXIS: gl.constexpr, CONFIG: gl.constexpr):
    """Return what row sums add to gradients [64, N]: a + b log2 x, or a if there is none of Σ w log w.

    Args:
        terms: a and b of each query, see `prepare.row_terms`.
        x: r^(p-1), but scores if p is 1.
        AXIS: the dimension of keys.
    """
    a, b = terms
    if CONFIG.row_sums == 2:
        return a.expand_dims(AXIS) + b.expand_dims(AXIS) * fast_log2(at_least_tiny(x))
    else:
        return gl.broadcast(a.expand_dims(AXIS), x)[0]


@gluon.jit
def score_gradients(grad_p, slope, terms, AXIS: gl.constexpr, dtype: gl.constexpr, CONFIG: gl.constexpr):
    """Return gradients of scores without their factor, packed, for p > 1: r^(p-1) (dW + a + b log2 r^(p-1)).

    Returns:
        Gradients of pairs that dropout keeps, and of those that it drops. Products are rounded after sums, because dW
        and a cancel where weights are divided by their sum.
    """
    if CONFIG.row_sums:
        x = row_terms(terms, slope, AXIS, CONFIG)
        return pack(slope * (grad_p + x), dtype), pack(slope * x, dtype)
    else:
        kept = pack(slope * grad_p, dtype)
        return kept, gl.full_like(kept, 0)
