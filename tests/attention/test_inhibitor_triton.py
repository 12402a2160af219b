"""The Inhibitor's Triton kernels against the equation in float64: on a GPU, or interpreted with small sizes."""

import math

import pytest
import torch
import torch.nn.functional as F

from relumt.attention import MECHANISMS, AttentionMask
from relumt.attention.kernels import checked_calls, inhibitor_naive, inhibitor_operator
from relumt.attention.mask import UNMASKED
from tests.attention.test_pointwise_triton import DEVICE, assert_close_in_norm, random_inputs, with_gradients

inhibitor_triton = pytest.importorskip("relumt.attention.kernels.inhibitor_triton")
TOLERANCE = 1e-5
HALF_TOLERANCE = 1e-3


@pytest.fixture(autouse=True)
def ptx(monkeypatch, inline_assembly):
    """Use NVIDIA's assembly, so half precision, in the interpreter, too."""
    monkeypatch.setattr(inhibitor_triton, "supports_ptx", lambda: True)


def attend(q, k, v, gamma, shift, half, mask=UNMASKED, dropout_p=0.0):
    return inhibitor_operator.attend(q, k, v, gamma, shift, mask, None, dropout_p, half, "inhibitor_triton")


def run_both(shape, causal, half, dropout_p=0.0, dropped=None):
    """Return the outputs and gradients of the kernel and of the equation in float64."""
    q, k, v, key_mask = random_inputs(*shape, torch.float16 if half else torch.float32)
    q, k, v = (x.detach().float().requires_grad_() for x in (q, k, v))
    shift = torch.linspace(0.2, 0.6, shape[1], device=DEVICE)[:, None, None].requires_grad_()
    inputs = (q, k, v, shift)
    gamma = shape[-1]
    mask = AttentionMask(key_mask, causal)
    output = attend(*inputs[:3], gamma, shift, half, mask, dropout_p)
    doubles = [x.detach().double().requires_grad_() for x in inputs]
    exact = inhibitor_naive.attend(*doubles[:3], gamma, doubles[3], mask, dropped)
    grads = [torch.randn(output.shape, generator=torch.Generator().manual_seed(1)).to(DEVICE)]
    return with_gradients([output], inputs, grads), with_gradients([exact], doubles, grads)


@pytest.mark.parametrize(
    ("shape", "causal", "half", "split_size"),
    [
        ((2, 1, 18, 18, 8), True, False, 3),
        ((1, 1, 35, 5, 3), False, False, 128),
        ((1, 2, 20, 13, 7), True, True, 128),
        ((1, 2, 13, 20, 7), False, True, 3),
    ],
    ids=str,
)
def test_outputs_and_gradients(shape, causal, half, split_size, monkeypatch):
    """The other side is visited in one program, or split among several, whose results are summed."""
    monkeypatch.setattr(inhibitor_triton, "MIN_SPLIT_SIZE", split_size)
    actual, expected = run_both(shape, causal, half)
    assert expected[0].ne(0).double().mean() > 0.1
    assert_close_in_norm(actual[:1], expected[:1], HALF_TOLERANCE if half else TOLERANCE)
    assert_close_in_norm(actual[1:], expected[1:], TOLERANCE)


def half_precision_error(q, k, v, gamma):
    """Return the kernel's output, that in float64, and the bound of docs/kernels.md; inputs are [n, D] in float16."""
    q, k, v = (x.half().float()[None, None].to(DEVICE) for x in (q, k, v))
    shift = torch.full((1, 1, 1), 0.5, device=DEVICE)
    actual = attend(q, k, v, gamma, shift, True)
    doubles = [x.double() for x in (q, k, v)]
    exact = inhibitor_naive.attend(*doubles, gamma, shift.double(), UNMASKED, None)
    distances = (doubles[0].unsqueeze(3) - doubles[1].unsqueeze(2)).abs().sum(-1)[..., None] / gamma  # [1, 1, T, S, 1]
    z_error = 1.01 * 2**-11 * (q.shape[-1] / 8 + 1) * distances
    differences = doubles[2].unsqueeze(2) - (distances - 0.5).relu() + z_error
    bound = (z_error + 8 * 1.01 * 2**-11 * differences).where(differences > 0, 0.0).sum(-2)
    return actual, exact, bound


def normal(*sizes):
    return [torch.randn(n, d, generator=torch.Generator().manual_seed(i)) for i, (n, d) in enumerate(sizes)]


# The interpreter adds the terms of an eighth of a distance one by one; a GPU may add partial sums, which rounds less.
@pytest.mark.parametrize(
    ("distance", "tolerance"),
    [(1.15, 2.5e-4), *(pytest.param(*x, marks=pytest.mark.slow) for x in ((2.0, 6e-4), (3.0, 1.6e-3)))],
)
def test_error_of_half_precision_grows_with_the_distance(distance, tolerance):
    q, k, v = normal((32, 64), (40, 64), (40, 64))
    # The mean of |q − k|₁/√D is `distance`, as at initialization with InhibitorOptions.initial_distance.
    scale = distance / 8 / (2 / math.sqrt(math.pi))
    actual, exact, bound = half_precision_error(q * scale, k * scale, v, 8.0)
    assert_close_in_norm([actual], [exact], tolerance)
    assert ((actual - exact).abs() <= bound).all()


@pytest.mark.parametrize("head_dim", [16, pytest.param(128, marks=pytest.mark.slow)])
@pytest.mark.parametrize("inputs", ["large", "equal", "at the hinge", "one dimension", "rounded up"])
def test_half_precision_keeps_its_bound(inputs, head_dim):
    gamma = math.sqrt(head_dim)
    q, k, v = normal((8, head_dim), (17, head_dim), (17, 16))
    if inputs == "large":
        q, k, v = 900 * q / gamma, 900 * k / gamma, 3000 + 1000 * v
    elif inputs == "equal":
        q, k, v = torch.full_like(q, 0.1), torch.full_like(k, 0.3), torch.full_like(v, 0.1 + 0.2 * gamma)
    elif inputs == "at the hinge":
        q, k = q[:1].expand(8, -1) / gamma, k / gamma
        z = (q[:1].half().double() - k.half().double()).abs().sum(-1) / gamma - 0.5
        v = (z[:, None] * (1 + 2**-10 * torch.linspace(-2, 2, 16))).float()
    elif inputs == "one dimension":
        q, k = F.pad(q[:, :1] * gamma, (0, head_dim - 1)), F.pad(k[:, :1] * gamma, (0, head_dim - 1))
    else:
        q, k = torch.full_like(q, 1 + 2**-10) / 4, torch.full_like(k, -0.75) * (1 + 2**-9)
        v = torch.full_like(v, 2 * gamma)
    actual, exact, bound = half_precision_error(q, k, v, gamma)
    assert exact.gt(0).any() and ((actual - exact).abs() <= bound).all()


def test_half_precision_stays_finite_for_large_inputs():
    q, k, v = (torch.full((1, 1, 9, 3), value, device=DEVICE) for value in (6e4, -6e4, 3e4))
    shift = torch.zeros(1, 1, 1, device=DEVICE)
    assert attend(q, k, v, 1.0, shift, True).eq(0).all()
    near = attend(q, q, v, 1.0, shift, True)
    assert near.eq(9 * torch.finfo(torch.float16).max / 8).all()


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_nan_stays_nan(which, half):
    inputs = [torch.randn(1, 1, 4, 3, device=DEVICE) for _ in range(3)]
    inputs[which][0, 0, 1, 2] = torch.nan
    output = attend(*inputs, 1.0, torch.zeros(1, 1, 1, device=DEVICE), half)
    naive = inhibitor_naive.attend(*inputs, 1.0, torch.zeros(1, 1, 1, device=DEVICE), UNMASKED, None)
    assert torch.equal(output.isnan(), naive.isnan()) and naive.isnan().any()


@pytest.mark.parametrize("half", [False, True])
def test_ties_get_half_the_gradient(half):
    q = torch.zeros(1, 1, 2, 3, device=DEVICE).requires_grad_()
    k, v = torch.zeros(2, 1, 1, 4, 3, device=DEVICE)
    v = v.clone().requires_grad_()
    output = attend(q, k, v, 1.0, torch.zeros(1, 1, 1, device=DEVICE), half)
    output.sum().backward()
    assert output.eq(0).all() and v.grad.eq(2 * 0.5).all()


@pytest.mark.parametrize("half", [False, True])
def test_dropout_drops_the_same_pairs_in_every_direction(half):
    shape = (1, 1, 17, 17, 4)

    def kept_pairs(seed):
        """Return which pairs are kept: q = k, so z = 0, and one-hot values make the output show the keys."""
        zeros = torch.zeros(1, 1, 17, 4, device=DEVICE)
        torch.manual_seed(seed)
        one_hot = torch.eye(17, device=DEVICE)[None, None]
        return attend(zeros, zeros, one_hot, 1.0, torch.zeros(1, 1, 1, device=DEVICE), half, dropout_p=0.3)

    kept = kept_pairs(3)
    assert set(kept.unique().tolist()) == {0.0, 1.0} and 0.6 < kept.mean() < 0.8
    torch.manual_seed(3)
    actual, expected = run_both(shape, False, half, 0.3, kept.eq(0))
    assert_close_in_norm(actual[:1], expected[:1], HALF_TOLERANCE if half else TOLERANCE)
    assert_close_in_norm(actual[1:], expected[1:], TOLERANCE)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("inhibitor", torch.float32), ("inhibitor_signed", torch.float16), ("inhibitor", torch.bfloat16)],
    ids=str,
)
def test_mechanism_uses_half_precision_for_half_inputs(name, dtype, monkeypatch):
    q, k, v, key_mask = random_inputs(2, 2, 9, 9, 8, grad=False)
    q, k, v = (x.to(dtype) for x in (q / 4, k / 4, v))
    mask = AttentionMask(key_mask, True)
    mechanism = MECHANISMS[name](2, 8, implementation="fused").to(DEVICE)
    half_arguments = []
    attend_inhibitor = checked_calls.attend_inhibitor
    monkeypatch.setattr(
        checked_calls, "attend_inhibitor", lambda *a: half_arguments.append(a[-1]) or attend_inhibitor(*a)
    )
    monkeypatch.setenv("RELUMT_KERNELS", "fused")
    fused = mechanism(q, k, v, mask).output
    assert half_arguments == [dtype != torch.float32]
    naive = MECHANISMS[name](2, 8, implementation="naive").to(DEVICE)
    exact = naive(q.double(), k.double(), v.double(), mask).output
    assert_close_in_norm([fused], [exact], TOLERANCE if dtype == torch.float32 else HALF_TOLERANCE)
