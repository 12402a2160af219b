"""The Inhibitor's Numba loops against the naive implementation in float64; threads and compilation."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relumt.attention import AttentionMask
from relumt.attention.kernels import inhibitor_naive, inhibitor_numba
from relumt.attention.kernels import inhibitor_numba_loops as loops

GAMMA = 2.0


@st.composite
def problems(draw, most_queries=2 * loops.TILE_T + 3, most_keys=loops.TILE_S + 2 * loops.LANES + 3):
    """Return q, k, v, the shift, a mask and dropped pairs; sizes end before, at and after a tile's borders."""
    B, H, D, V = (draw(st.integers(1, most)) for most in (2, 3, 5, 5))
    T = draw(st.one_of(st.integers(1, 6), st.integers(1, most_queries)))
    S = draw(st.one_of(st.integers(1, 6), st.integers(1, most_keys)))
    seeded = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))

    def random_bools(*shape):
        return torch.rand(shape, generator=seeded) > 0.3 if draw(st.booleans()) else None

    q, k, v = (torch.randn(B, H, *s, generator=seeded, dtype=torch.float64) for s in ((T, D), (S, D), (S, V)))
    if draw(st.booleans()):  # ties of q and k, of v and z, of the distance and the shift
        q, k, v = q.round(), k.round(), (v * 2).round() / 2
    shift = torch.tensor([0.5, 1.0, 0.25], dtype=torch.float64)[:H, None, None]
    mask = AttentionMask(random_bools(B, S), draw(st.booleans()), random_bools(T, S))
    return q, k, v, shift, mask, random_bools(B, H, T, S)


def results(attend, q, k, v, shift, mask, dropped):
    """Return the output and the gradients of q, k, v and the shift."""
    inputs = [x.clone().requires_grad_() for x in (q, k, v, shift)]
    output = attend(*inputs[:3], GAMMA, inputs[3], mask, dropped)
    weight = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    return [output.detach(), *torch.autograd.grad(output, inputs, weight)]


def assert_all_close(actual, expected, tolerance):
    for name, one, other in zip(("output", "q", "k", "v", "shift"), actual, expected, strict=True):
        torch.testing.assert_close(
            one, other, rtol=tolerance, atol=tolerance, check_dtype=False, msg=lambda text, name=name: f"{name}: {text}"
        )


@given(problem=problems())
@settings(max_examples=30)
def test_values_and_gradients_are_those_of_the_naive_implementation(problem):
    assert_all_close(results(inhibitor_numba.attend, *problem), results(inhibitor_naive.attend, *problem), 1e-9)


@given(problem=problems())
@settings(max_examples=10)
def test_float32_is_near_float64(problem):
    *tensors, mask, dropped = problem
    singles = [x.float() for x in tensors]
    exact = results(inhibitor_naive.attend, *(x.double() for x in singles), mask, dropped)
    output, *gradients = results(inhibitor_numba.attend, *singles, mask, dropped)
    torch.testing.assert_close(output, exact[0], rtol=1e-5, atol=1e-4, check_dtype=False)
    # Gradients jump where rounding decides a comparison, so a few may differ.
    for gradient, expected in zip(gradients, exact[1:], strict=True):
        differs = (gradient - expected).abs() > 1e-3 * (1 + expected.abs())
        assert differs.double().mean() <= 0.05


@given(problem=problems(most_queries=5, most_keys=40), seed=st.integers(0, 99))
@settings(max_examples=20)
def test_nan_stays_nan_and_hidden_pairs_contribute_nothing_whatever_they_hold(problem, seed):
    q, k, v, *rest = problem
    torch.manual_seed(seed)
    for x, value in ((q, float("nan")), (k, float("nan")), (v, float("nan")), (v, float("inf")), (v, -float("inf"))):
        x[(*(torch.randint(size, ()) for size in x.shape),)] = value
    shift, mask, dropped = rest
    z = ((q[..., :, None, :] - k[..., None, :, :]).abs().sum(-1) / GAMMA - shift).clamp(min=0)
    inhibited = (v[..., None, :, :] - z[..., None]).clamp(min=0)  # the naive one's (x + |x|)/2 is NaN for −∞
    hidden = inhibitor_naive.hidden_pairs(mask, dropped, q.shape[2], k.shape[2], q.device)
    expected = (inhibited if hidden is None else inhibited.masked_fill(hidden[..., None], 0)).sum(-2)
    torch.testing.assert_close(inhibitor_numba.attend(q, k, v, GAMMA, *rest), expected, equal_nan=True)


def test_hidden_pairs_get_no_gradient_even_if_they_are_infinite():
    q, k, v = (torch.randn(1, 1, 3, 2, dtype=torch.float64) for _ in range(3))
    k[..., 2, :], v[..., 2, :] = float("inf"), float("inf")
    mask = AttentionMask(attn_mask=torch.tensor([[True, True, False]]).expand(3, 3))
    shift = torch.zeros(1, 1, 1, dtype=torch.float64)
    actual = results(inhibitor_numba.attend, q, k, v, shift, mask, None)
    expected = results(inhibitor_numba.attend, q, k[..., :2, :], v[..., :2, :], shift, AttentionMask(), None)
    assert actual[2][..., 2, :].eq(0).all() and actual[3][..., 2, :].eq(0).all()
    torch.testing.assert_close(actual[0], expected[0])
    torch.testing.assert_close(actual[1], expected[1])


@pytest.fixture
def threads(monkeypatch):
    """Return a function that sets the number of threads, which even small problems use; it is reset at the end."""
    monkeypatch.setattr(inhibitor_numba, "MIN_TASK_SIZE", 1)
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize(("B", "H"), [(1, 1), (1, 2), (3, 3)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_the_number_of_threads_changes_no_bit_of_the_output_and_only_rounds_gradients(B, H, is_causal, threads):
    torch.manual_seed(1)
    q, k, v = (torch.randn(B, H, n, 6) for n in (70, 290, 290))
    problem = (q, k, v, torch.full((H, 1, 1), 0.5), AttentionMask(torch.rand(B, 290) > 0.2, is_causal), None)
    threads(1)
    alone = results(inhibitor_numba.attend, *problem)
    threads(3)
    together = results(inhibitor_numba.attend, *problem)
    assert torch.equal(alone[0], together[0])
    assert_all_close(together, alone, 1e-4)


def test_nothing_is_compiled_again_for_other_shapes_masks_and_threads(threads):
    def run(B, H, T, S, D, V, mask, dropped=None):
        q, k, v = (torch.randn(B, H, *shape) for shape in ((T, D), (S, D), (S, V)))
        results(inhibitor_numba.attend, q, k, v, torch.zeros(H, 1, 1), mask, dropped)

    run(2, 2, 3, 3, 4, 4, AttentionMask())
    compiled = [list(function.signatures) for function in (loops.forward, loops.backward)]
    run(1, 1, 1, 1, 1, 1, AttentionMask())
    threads(3)
    run(1, 3, 40, 300, 7, 5, AttentionMask(torch.ones(1, 300, dtype=torch.bool), is_causal=True))
    run(5, 1, 2, 9, 3, 8, AttentionMask(attn_mask=torch.ones(2, 9, dtype=torch.bool)))
    run(1, 1, 1, 9, 3, 8, AttentionMask(), torch.rand(1, 1, 1, 9) > 0.5)
    assert [list(function.signatures) for function in (loops.forward, loops.backward)] == compiled
