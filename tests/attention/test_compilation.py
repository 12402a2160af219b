"""Compiled training: the operators of the kernels give what eager code gives, whatever the length.

Shapes: B batch, H heads, T queries, S keys, D head size.
"""

import functools

import pytest
import torch
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from relumt.attention import MECHANISMS, AttentionMask, Need
from relumt.attention.kernels import inhibitor_numba, pointwise_blocked
from relumt.attention.kernels.key_bounds import key_bounds

B, H, D = 2, 2, 4
EXAMPLES = (("relu", "causal"), ("inhibitor", "padding"))
"""Mechanisms and masks of the fast tests; the slow ones compile all."""
SHORT, LONG = 9, 600
"""Lengths below and above which blocks serve on a CPU."""
MASKS = {"padding": (True, False), "causal": (False, True), "both": (True, True), "nothing": (False, False)}


def training_step(mechanism, is_causal, q, k, v, key_mask):
    """Return the output and row stats of a mechanism."""
    output, _, row_stats = mechanism(q, k, v, AttentionMask(key_mask, is_causal), Need.ROW_STATS)
    return [output] if row_stats is None else [output, row_stats.weight_sum, row_stats.weight_log_weight_sum]


def run(step, length, has_padding, seed=0):
    """Return what `step` returns and the gradients of q, k and v."""
    generator = torch.Generator().manual_seed(length)
    inputs = [torch.randn(B, H, length, D, generator=generator).requires_grad_() for _ in range(3)]
    key_mask = torch.arange(length) < torch.tensor([[length], [length - 3]]) if has_padding else None
    torch.manual_seed(seed)
    outputs = step(*inputs, key_mask)
    grads = [torch.randn(x.shape, generator=generator) for x in outputs]
    return [*(x.detach() for x in outputs), *torch.autograd.grad(outputs, inputs, grads)]


def assert_close_in_norm(actual, expected, tolerance=1e-5):
    for ours, theirs in zip(actual, expected, strict=True):
        assert (ours - theirs).norm() <= tolerance * theirs.norm()


@pytest.fixture
def compiled():
    """Return a function that compiles another one for any length."""
    torch._dynamo.reset()
    counters.clear()
    return functools.partial(torch.compile, backend="aot_eager", fullgraph=True, dynamic=True)


def count_forward_calls(kernel, monkeypatch):
    """Return a list that grows with each forward pass of this module of kernels."""
    calls, run_forward = [], kernel.run_forward
    monkeypatch.setattr(kernel, "run_forward", lambda *given: calls.append(1) or run_forward(*given))
    return calls


def num_graphs():
    return counters["stats"]["unique_graphs"]


@pytest.mark.parametrize(
    ("name", "mask"),
    [
        pytest.param(name, mask, marks=[] if (name, mask) in EXAMPLES else pytest.mark.slow)
        for name in MECHANISMS
        for mask in MASKS
    ],
)
def test_outputs_row_stats_and_gradients_are_those_of_eager_code(name, mask, compiled):
    has_padding, is_causal = MASKS[mask]
    step = functools.partial(training_step, MECHANISMS[name](H, D), is_causal)
    compiled_step = compiled(step)
    for length in (SHORT, SHORT + 1, LONG, LONG + 1):
        assert_close_in_norm(run(compiled_step, length, has_padding), run(step, length, has_padding))
    assert num_graphs() <= 2  # for lengths below and above which blocks serve


@pytest.mark.slow
@pytest.mark.parametrize("name", ["relu", "inhibitor"])
def test_inductor(name, compiled):
    step = functools.partial(training_step, MECHANISMS[name](H, D), True)
    compiled_step = compiled(step, backend="inductor")
    for length in (SHORT, LONG):
        assert_close_in_norm(run(compiled_step, length, True), run(step, length, True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kernel", "expected_graphs", "expected_calls"),
    [("relu", pointwise_blocked, 2, 5), ("inhibitor", inhibitor_numba, 1, 10)],
)
def test_lengths_do_not_cause_compilations(name, kernel, expected_graphs, expected_calls, compiled, monkeypatch):
    calls = count_forward_calls(kernel, monkeypatch)
    step = compiled(functools.partial(training_step, MECHANISMS[name](H, D), True))
    for length in (*range(SHORT, SHORT + 5), *range(LONG, LONG + 5)):
        run(step, length, True)
    assert (num_graphs(), len(calls)) == (expected_graphs, expected_calls)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "lengths"), [("relu", (5, 66)), ("inhibitor", (5, 6))])
def test_triton_has_no_guard_on_lengths(name, lengths, compiled, monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setenv("RELUMT_KERNELS", "fused")
    step = functools.partial(training_step, MECHANISMS[name](H, D, 0.3).train(), True)
    compiled_step = compiled(step)
    for length in lengths:
        assert_close_in_norm(run(compiled_step, length, True), run(step, length, True))
    assert num_graphs() == 1


@pytest.mark.parametrize("name", ["relu", pytest.param("inhibitor", marks=pytest.mark.slow)])
def test_dropout_is_drawn_at_each_call_from_the_generator(name, compiled):
    step = functools.partial(training_step, MECHANISMS[name](H, D, 0.3).train(), True)
    compiled_step = compiled(step)
    first, again, other = (run(compiled_step, LONG, True, seed) for seed in (1, 1, 2))
    assert all(map(torch.equal, first, again)) and not torch.equal(first[0], other[0])
    assert_close_in_norm(first, run(step, LONG, True, 1))
    torch.manual_seed(1)
    x = torch.randn(B, H, LONG, D)
    with torch.no_grad():
        assert not torch.equal(*(compiled_step(x, x, x, None)[0] for _ in range(2)))


def operator_inputs(operator, kernel, T=9, S=5):
    """Return inputs of an operator with all options that the kernel has."""
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(B, n, H, D, generator=generator).transpose(1, 2).requires_grad_() for n in (T, S, S))
    key_mask = torch.arange(S) < torch.tensor([[S], [S - 3]])
    seed = torch.tensor(3)
    tensors = (q, k, v)
    if operator is torch.ops.relumt.pointwise.default:
        tensors += (torch.rand(B, T) + 0.5, torch.rand(1, 1), key_mask, key_bounds(key_mask), seed)
        options = ("sigmoid", True, 0.3, 2, torch.float32, kernel)
    else:
        dropped = torch.rand(B, H, T, S, generator=generator) > 0.7 if kernel == "inhibitor_numba" else None
        shift = torch.rand(H, 1, 1).requires_grad_()
        tensors += (shift, key_mask, key_bounds(key_mask), None, dropped, seed)
        options = (2.0, True, 0.3, False, kernel)
    return (*tensors, *options)


def on_gpu(x):
    """Return a tensor like x on a GPU."""
    if not isinstance(x, torch.Tensor):
        return x
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda", requires_grad=x.requires_grad)


POINTWISE, INHIBITOR = torch.ops.relumt.pointwise.default, torch.ops.relumt.inhibitor.default
KERNELS = [
    (POINTWISE, "pointwise_blocked"),
    (POINTWISE, "pointwise_triton"),
    (INHIBITOR, "inhibitor_numba"),
    (INHIBITOR, "inhibitor_triton"),
]


@pytest.mark.parametrize(
    ("operator", "kernel"),
    [pytest.param(*x, marks=[pytest.mark.slow] * (x[1] == "inhibitor_triton"), id=x[1]) for x in KERNELS],
)
def test_operators_are_what_pytorch_expects(operator, kernel):
    if kernel.endswith("triton"):
        pytest.importorskip("triton")
    torch.library.opcheck(operator, operator_inputs(operator, kernel))


@torch.no_grad()
@pytest.mark.parametrize(("operator", "kernel"), KERNELS[1::2], ids=[kernel for _, kernel in KERNELS[1::2]])
def test_fake_gpu_tensors_have_the_strides_of_real_ones(operator, kernel):
    """Both directions are called, because autograd of tensors on a GPU needs one."""
    pytest.importorskip("triton")
    backward, num_options = (
        (torch.ops.relumt.pointwise_backward, 3) if operator is POINTWISE else (torch.ops.relumt.inhibitor_backward, 2)
    )

    def results(inputs):
        outputs = operator(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return [*outputs, *backward(*outputs, *inputs[:-num_options], kernel)]

    inputs = operator_inputs(operator, kernel)
    real = results(inputs)
    with FakeTensorMode():
        fake = results([on_gpu(x) for x in inputs])
    assert all(x.device.type == "cuda" for x in fake)
    assert [(x.shape, x.stride(), x.dtype) for x in fake] == [(x.shape, x.stride(), x.dtype) for x in real]


@pytest.mark.parametrize("saves", [True, False])
def test_selective_checkpointing_keeps_what_the_operator_returned(saves, monkeypatch):
    calls = count_forward_calls(pointwise_blocked, monkeypatch)
    step = functools.partial(training_step, MECHANISMS["relu"](H, D, 0.3).train(), True)
    contexts = functools.partial(create_selective_checkpoint_contexts, [POINTWISE] if saves else [])
    found = run(functools.partial(checkpoint, step, use_reentrant=False, context_fn=contexts), LONG, True)
    assert len(calls) == (1 if saves else 2)
    assert_close_in_norm(found, run(step, LONG, True))
