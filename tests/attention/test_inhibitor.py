"""The Inhibitor's three implementations against [IN] Eq. 3–5, each other, and the trap of dead attention."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from relumt.attention import MECHANISMS, AttentionMask
from relumt.attention.inhibitor import IMPLEMENTATIONS
from tests.attention import oracle
from tests.attention.cases import Case, cases

NAMES = {"inhibitor": False, "inhibitor_signed": True}
every_implementation = pytest.mark.parametrize("implementation", sorted(IMPLEMENTATIONS))
every_name = pytest.mark.parametrize("name", sorted(NAMES))


@every_implementation
@every_name
@given(case=cases(longest=4))
def test_mixed_is_the_equation(name, implementation, case):
    mechanism = MECHANISMS[name](case.H, case.D, implementation=implementation)
    mixed = oracle.inhibitor(case.q, case.k, case.v, case.seen, signed=NAMES[name])
    torch.testing.assert_close(mechanism(case.q, case.k, case.v, case.mask).output, mixed, rtol=1e-9, atol=1e-9)


def gradients(implementation, case, name, dropped_seed=None, **options):
    """Mixed values and the gradients of q, k, v, γ and α, in training mode with dropout if a seed is given."""
    dropout = 0.0 if dropped_seed is None else 0.4
    mechanism = MECHANISMS[name](case.H, case.D, dropout, implementation=implementation, learn=True, **options)
    mechanism = mechanism.to(case.q.dtype).train()
    q, k, v = (x.clone().requires_grad_() for x in (case.q, case.k, case.v))
    torch.manual_seed(dropped_seed or 0)
    mixed = mechanism(q, k, v, case.mask).output
    weight = torch.linspace(-1, 1, mixed.numel(), dtype=mixed.dtype).view_as(mixed)
    (mixed * weight).sum().backward()
    return {
        "mixed": mixed.detach(), "q": q.grad, "k": k.grad, "v": v.grad,
        "gamma": mechanism.log_factor.grad, "shift": mechanism.shift.grad,
    }  # fmt: skip


@pytest.mark.parametrize("implementation", sorted(set(IMPLEMENTATIONS) - {"naive"}))
@every_name
@given(case=cases(), seed=st.one_of(st.none(), st.integers(0, 99)), scale=st.sampled_from(["none", "visible"]))
def test_implementations_agree_with_the_naive_one_in_value_and_gradient(name, implementation, case, seed, scale):
    naive = gradients("naive", case, name, seed, scale=scale)
    for what, value in gradients(implementation, case, name, seed, scale=scale).items():
        torch.testing.assert_close(value, naive[what], rtol=1e-9, atol=1e-9, msg=lambda m, what=what: f"{what}: {m}")


@st.composite
def integral_cases(draw):
    """Small whole numbers, so that q = k, V = Z and Z = α all happen often."""
    case = draw(cases())
    return Case(case.q.round(), case.k.round(), (case.v * 2).round() / 2, case.mask)


@pytest.mark.parametrize("implementation", sorted(set(IMPLEMENTATIONS) - {"naive"}))
@every_name
@given(case=integral_cases())
def test_implementations_agree_at_ties(name, implementation, case):
    exact = {"gamma": case.D**-0.5, "shift": 1.0}
    naive = gradients("naive", case, name, **exact)
    for what, value in gradients(implementation, case, name, **exact).items():
        torch.testing.assert_close(value, naive[what], rtol=1e-9, atol=1e-9, msg=lambda m, what=what: f"{what}: {m}")


@pytest.mark.parametrize("implementation", ["cdist", "fused"])
@every_name
@pytest.mark.parametrize("mask", [AttentionMask(), AttentionMask(is_causal=True)], ids=["everything", "causal"])
def test_float32_is_near_float64_at_2048_keys(name, implementation, mask):
    """Few queries, for the oracle's sake: the error grows with the keys."""
    seeded = torch.Generator().manual_seed(1)
    T, S = 16, 2048
    q, k, v = (torch.randn(1, 2, n, 64, generator=seeded) for n in (T, S, S))
    q, k = q / 10, k / 10
    exact = gradients("naive", Case(q.double(), k.double(), v.double(), mask), name)
    for what, value in gradients(implementation, Case(q, k, v, mask), name).items():
        error = (value.double() - exact[what]).norm() / exact[what].norm()
        assert error <= 1e-3, f"{what}: {error}"


@every_name
def test_fused_takes_several_blocks_of_queries_and_skips_what_causality_hides(name):
    seeded = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, 2, n, 4, generator=seeded, dtype=torch.float64) for n in (37, 30, 30))
    case = Case(q, k, v, AttentionMask(torch.rand(2, 30, generator=seeded) > 0.2, is_causal=True))
    naive = gradients("naive", case, name)
    for what, value in gradients("fused", case, name).items():
        torch.testing.assert_close(value, naive[what], rtol=1e-9, atol=1e-9)


@every_implementation
def test_a_neighbour_with_large_values_changes_nothing(implementation):
    seeded = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(2, 2, 64, 16, generator=seeded) / 5 for _ in range(3))
    mechanism = MECHANISMS["inhibitor"](2, 16, implementation=implementation)
    mask = AttentionMask(torch.arange(64)[None] < torch.tensor([[50], [64]]))
    before = mechanism(q, k, v, mask).output[0]
    v[1] *= 1e5
    torch.testing.assert_close(mechanism(q, k, v, mask).output[0], before, rtol=1e-5, atol=1e-5)


def alive(initial_distance, n, inputs=512, heads=8):
    """Shares of non-zero outputs, and of non-zero gradients of the queries' projection's outputs, at the start."""
    torch.manual_seed(n)
    D = inputs // heads
    mechanism = MECHANISMS["inhibitor"](heads, D, initial_distance=initial_distance)
    projections = [nn.Linear(inputs, inputs) for _ in range(3)]
    for projection in projections:
        nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)
    mechanism.init_projections(*projections[:2])
    x = torch.randn(1, n, inputs)
    q, k, v = (p(x).unflatten(-1, (heads, D)).transpose(1, 2).detach().requires_grad_() for p in projections)
    mixed = mechanism(q, k, v, AttentionMask()).output
    mixed.sum().backward()
    return mixed.ne(0).double().mean().item(), q.grad.ne(0).double().mean().item()


@pytest.mark.parametrize("n", [16, 64, 512])
def test_default_start_is_alive(n):
    default = MECHANISMS["inhibitor"].options().initial_distance
    outputs, q_gradients = alive(default, n)
    assert outputs >= 0.2
    assert q_gradients >= 0.2


@pytest.mark.parametrize("n", [16, 512])
def test_fairseq_start_is_dead(n):
    outputs, q_gradients = alive(0.0, n)
    assert outputs == 0
    assert q_gradients == 0


def test_the_start_has_the_distance_that_was_asked_for():
    torch.manual_seed(1)
    q_proj, k_proj = nn.Linear(512, 512), nn.Linear(512, 512)
    MECHANISMS["inhibitor"](8, 64, initial_distance=1.5, gamma=2.0).init_projections(q_proj, k_proj)
    q, k = (p(torch.randn(256, 512)).unflatten(-1, (8, 64)).transpose(0, 1) for p in (q_proj, k_proj))
    assert 1.4 <= (torch.cdist(q, k, p=1) / (2.0 * 8)).mean().item() <= 1.6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 0.0}, "--inhibitor-gamma must be positive"),
        ({"initial_distance": -1.0}, "--inhibitor-initial-distance must not be negative"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        MECHANISMS["inhibitor"](2, 4, **options)


def test_fused_without_a_compiler_is_refused_at_the_start(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(
        ValueError, match="there is no no-such-compiler; install it, name another in CXX, or train with"
    ):
        MECHANISMS["inhibitor"](2, 4)
    MECHANISMS["inhibitor"](2, 4, implementation="cdist")


@pytest.mark.parametrize("implementation", sorted(set(IMPLEMENTATIONS) - {"naive"}))
@pytest.mark.parametrize(("q", "k", "keys"), [(1, 3, 3), (3, 1, 3), (3, 3, 1), (1, 1, 3)])
def test_one_sentence_stands_for_all_where_others_are_more(implementation, q, k, keys):
    seeded = torch.Generator().manual_seed(0)
    q, k = (torch.randn(B, 2, 5, 4, generator=seeded, dtype=torch.float64, requires_grad=True) for B in (q, k))
    mask = AttentionMask(torch.rand(keys, 5, generator=seeded) > 0.3)
    expected, ours = (
        MECHANISMS["inhibitor"](2, 4, implementation=one)(q, k, k, mask).output for one in ("naive", implementation)
    )
    torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(*(torch.autograd.grad(one.square().sum(), (q, k)) for one in (ours, expected)))


def test_second_derivatives_of_the_compiled_one_are_refused():
    x = torch.randn(1, 1, 3, 4, requires_grad=True)
    mixed = MECHANISMS["inhibitor"](1, 4)(x, x, x, AttentionMask()).output
    with pytest.raises(RuntimeError, match=r"first derivatives alone; .* 'naive'"):
        torch.autograd.grad(mixed.sum(), x, create_graph=True)


def test_projections_of_zero_stay_so():
    q_proj, k_proj = (nn.Linear(8, 8) for _ in range(2))
    for projection in (q_proj, k_proj):
        nn.init.zeros_(projection.weight)
    MECHANISMS["inhibitor"](2, 4).init_projections(q_proj, k_proj)
    assert q_proj.weight.eq(0).all()
