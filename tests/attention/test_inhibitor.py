"""The Inhibitor's three implementations against [IN] Eq. 3–5 and each other, and its initialization."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from relumt.attention import MECHANISMS, AttentionMask
from relumt.attention.kernels.inhibitor_cdist import distances_in_chunks
from tests.attention import oracle
from tests.attention.cases import Case, cases, for_each_mechanism

every_name = pytest.mark.parametrize("name", ["inhibitor", "inhibitor_signed"])
assert_close = partial(torch.testing.assert_close, rtol=1e-9, atol=1e-9)


@every_name
@for_each_mechanism
@given(
    case=cases(longest=4), gamma=st.floats(0.3, 3), shift=st.floats(-1, 1), scale=st.sampled_from(["none", "visible"])
)
def test_the_naive_implementation_is_the_equation(name, case, gamma, shift, scale):
    options = {"gamma": gamma, "shift": shift, "scale": scale}
    equation = partial(oracle.inhibitor, signed=name == "inhibitor_signed", **options)
    _, output = oracle.attend(equation, case.q, case.k, case.v, case.visible)
    mechanism = MECHANISMS[name](case.H, case.D, implementation="naive", **options)
    assert_close(mechanism(case.q, case.k, case.v, case.mask).output, output)


@every_name
@for_each_mechanism
@given(case=cases(longest=4), factor=st.floats(0.3, 3), shift=st.sampled_from([-0.5, 0.25, 1.0]))
def test_a_trained_factor_multiplies_gamma_and_a_trained_shift_replaces_alpha(name, case, factor, shift):
    trained = MECHANISMS[name](case.H, case.D, learn=True, gamma=0.8).double()
    trained.log_factor.data.fill_(math.log(factor))
    trained.shift.data.fill_(shift)
    fixed = MECHANISMS[name](case.H, case.D, gamma=0.8 * factor, shift=shift)
    expected = fixed(case.q, case.k, case.v, case.mask).output
    assert_close(trained(case.q, case.k, case.v, case.mask).output, expected)


def output_and_gradients(implementation, case, name, dropout_seed=None, **options):
    """Return the output and the gradients of q, k, v, γ and α, in training mode with dropout if a seed is given."""
    dropout = 0.0 if dropout_seed is None else 0.4
    mechanism = MECHANISMS[name](case.H, case.D, dropout, implementation=implementation, learn=True, **options)
    mechanism = mechanism.to(case.q.dtype).train()
    q, k, v = (x.clone().requires_grad_() for x in (case.q, case.k, case.v))
    torch.manual_seed(dropout_seed or 0)
    output = mechanism(q, k, v, case.mask).output
    weight = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    (output * weight).sum().backward()
    return {
        "output": output.detach(), "q": q.grad, "k": k.grad, "v": v.grad,
        "gamma": mechanism.log_factor.grad, "shift": mechanism.shift.grad,
    }  # fmt: skip


def assert_agrees_with_naive(implementation, *arguments, **options):
    naive = output_and_gradients("naive", *arguments, **options)
    for key, value in output_and_gradients(implementation, *arguments, **options).items():
        assert_close(value, naive[key], msg=lambda message, key=key: f"{key}: {message}")


# "fused" is Numba on a CPU, for which test_inhibitor_numba.py has ties, masks and dropped pairs.
@pytest.mark.parametrize(
    ("implementation", "name"), [("cdist", "inhibitor"), ("cdist", "inhibitor_signed"), ("fused", "inhibitor_signed")]
)
@for_each_mechanism
@given(case=cases(), seed=st.one_of(st.none(), st.integers(0, 99)), scale=st.sampled_from(["none", "visible"]))
def test_implementations_agree_with_the_naive_one_in_value_and_gradient(name, implementation, case, seed, scale):
    assert_agrees_with_naive(implementation, case, name, seed, scale=scale)


@st.composite
def cases_with_ties(draw):
    """Small whole and half numbers, so that q = k, V = Z and Z = α all happen often."""
    case = draw(cases())
    return Case(case.q.round(), case.k.round(), (case.v * 2).round() / 2, case.mask)


@every_name
@for_each_mechanism
@given(case=cases_with_ties())
def test_the_cdist_identities_agree_at_ties(name, case):
    # With γ = 1 and α = 1 whole numbers stay whole.
    assert_agrees_with_naive("cdist", case, name, gamma=case.D**-0.5, shift=1.0)


def nonzero_shares(initial_distance, n, inputs=512, heads=8):
    """Return the shares of outputs and of gradients of q that are not 0 in a freshly initialized attention."""
    torch.manual_seed(n)
    D = inputs // heads
    mechanism = MECHANISMS["inhibitor"](heads, D, initial_distance=initial_distance)
    projections = [nn.Linear(inputs, inputs) for _ in range(3)]
    for projection in projections:
        nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)
    mechanism.init_projections(*projections[:2])
    x = torch.randn(1, n, inputs)
    q, k, v = (p(x).unflatten(-1, (heads, D)).transpose(1, 2).detach().requires_grad_() for p in projections)
    output = mechanism(q, k, v, AttentionMask()).output
    output.sum().backward()
    return output.ne(0).double().mean().item(), q.grad.ne(0).double().mean().item()


@pytest.mark.parametrize("n", [16, 128])
def test_the_default_initialization_is_not_dead_and_fairseqs_is(n):
    default = MECHANISMS["inhibitor"].options().initial_distance
    assert min(nonzero_shares(default, n)) >= 0.2
    assert nonzero_shares(0.0, n) == (0, 0)


def test_init_projections_gives_the_initial_distance():
    torch.manual_seed(1)
    q_proj, k_proj = nn.Linear(512, 512), nn.Linear(512, 512)
    MECHANISMS["inhibitor"](8, 64, initial_distance=1.5, gamma=2.0).init_projections(q_proj, k_proj)
    q, k = (p(torch.randn(256, 512)).unflatten(-1, (8, 64)).transpose(0, 1) for p in (q_proj, k_proj))
    assert 1.4 <= (torch.cdist(q, k, p=1) / (2.0 * 8)).mean().item() <= 1.6


def test_second_derivatives_of_the_fused_implementation_are_refused():
    x = torch.randn(1, 1, 3, 4, requires_grad=True)
    output = MECHANISMS["inhibitor"](1, 4)(x, x, x, AttentionMask()).output
    with pytest.raises(RuntimeError, match=r"no second derivatives .* --inhibitor-implementation naive"):
        torch.autograd.grad(output.sum(), x, create_graph=True)


@pytest.mark.parametrize("max_differences", [1, 7 * 3, 2 * 7 * 3, 5 * 7 * 3, 11 * 7 * 3, 10**6])
def test_distances_in_chunks_are_those_of_the_whole(max_differences):
    x, y = (torch.randn(2, 3, length, 3, dtype=torch.float64) for length in (5, 7))
    assert torch.equal(distances_in_chunks(x, y, max_differences), torch.cdist(x, y, p=1))
