"""AdaSplash's kernels agree with the `entmax` package, and serve sparse attention only after their self-check.

The package does not run in Triton's interpreter by itself: it leaves out the size of blocks there, and calls functions
of CUDA's libdevice. The fixture gives it both. Without the package only the fallback is tested.
"""

import importlib
import importlib.util
import logging

import pytest
import torch

from relumt.attention import MECHANISMS, AttentionMask, Need
from relumt.attention.kernels import dispatch, self_check, self_check_sparse, sparse_adasplash
from relumt.attention.kernels.self_check_sparse import EXACT

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

CPU = torch.device("cpu")
BLOCK = 32
NAMES = {"sparsemax": 2.0, "entmax15": 1.5}
needs_adasplash = pytest.mark.skipif(not importlib.util.find_spec("adasplash"), reason="adasplash is not installed")


@triton.jit
def isinf(x):
    return (x == float("inf")) | (x == float("-inf"))


@triton.jit
def float2int_rd(x):
    return tl.floor(x).to(tl.int32)


class WithBlock:
    """A kernel that is launched with a size of blocks."""

    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        return lambda *arguments: self.kernel[grid](*arguments, BLOCK_N=BLOCK)


@pytest.fixture
def interpreted(monkeypatch):
    """Let the package compute in Triton's interpreter."""
    module = importlib.import_module("adasplash.triton_entmax_v2")
    for name, function in (("isinf", isinf), ("float2int_rd", float2int_rd)):
        monkeypatch.setattr(module, name, function)
    for name in ("_fwd_entmax", "_bwd_entmax"):
        monkeypatch.setattr(module, name, WithBlock(getattr(module, name)))


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Let `auto` ask AdaSplash, as on a GPU, with no verdicts and small cases."""
    monkeypatch.setenv("RELUMT_KERNELS", "auto")
    monkeypatch.setattr(dispatch, "_is_triton_wanted", lambda device: True)
    monkeypatch.setattr(sparse_adasplash, "serves", lambda device, dtype: dtype == torch.float32)
    monkeypatch.setattr(self_check_sparse, "ROWS", 2)
    monkeypatch.setattr(self_check_sparse, "DEVIATIONS", (0.5,))
    self_check.verdicts.cache_clear()
    yield
    self_check.verdicts.cache_clear()


def train_step(name):
    """Return the weights and gradients of one step with padding and a causal mask."""
    mechanism = MECHANISMS[name](2, 8)
    mask = AttentionMask(torch.arange(5) < torch.tensor([5, 3])[:, None], is_causal=True)
    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(2, 2, 5, 8, generator=generator).requires_grad_() for _ in range(3))
    output, weights, _ = mechanism(q, k, v, mask, Need.WEIGHTS)
    return [weights, *torch.autograd.grad(output.square().sum(), [q, k, v])]


@needs_adasplash
@pytest.mark.slow
@pytest.mark.parametrize("alpha", NAMES.values())
@pytest.mark.parametrize("size", [1, 33, 64])
def test_weights_and_gradients_agree_with_float64(interpreted, alpha, size):
    generator = torch.Generator().manual_seed(size)
    for deviation in (0.1, 1.0, 5.0):
        scores = torch.randn(3, size, generator=generator).mul(deviation)
        scores = (scores - scores.amax(-1, keepdim=True)).clamp(min=-4)
        grad = torch.randn(3, size, generator=generator)
        ours, exact = scores.clone().requires_grad_(), scores.double().requires_grad_()
        weights, expected = sparse_adasplash.project(ours, alpha, -4.0), EXACT[alpha](exact, dim=-1)
        torch.testing.assert_close(weights.double(), expected, rtol=0, atol=1e-6)
        assert torch.equal(weights == 0, expected == 0)
        weights.backward(grad)
        expected.backward(grad.double())
        torch.testing.assert_close(ours.grad.double(), exact.grad, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("project", "message"),
    [
        (lambda scores, alpha, out: scores * 0 + 0.5, "weights differs from float64"),
        (lambda scores, alpha, out: 1 / 0, "division by zero"),
    ],
)
def test_kernels_that_fail_their_check_leave_the_work_to_entmax(as_on_a_gpu, monkeypatch, caplog, project, message):
    monkeypatch.setattr(sparse_adasplash, "project", project)
    with caplog.at_level(logging.WARNING):
        found = train_step("entmax15")
    assert message in caplog.text and "1.5-entmax of rows of 32 by AdaSplash" in caplog.text
    monkeypatch.setattr(sparse_adasplash, "serves", lambda device, dtype: False)
    expected = train_step("entmax15")
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=0)


def test_only_single_precision_on_a_gpu_is_asked_of_the_package(monkeypatch):
    monkeypatch.setattr(sparse_adasplash, "_is_installed", lambda: True)
    assert sparse_adasplash.serves(torch.device("cuda"), torch.float32)
    assert not sparse_adasplash.serves(CPU, torch.float32)
    assert not sparse_adasplash.serves(torch.device("cuda"), torch.float64)
    assert dispatch.project_sparse(torch.zeros(2, 3), 1.5, -4.0) is None
