"""The fused loss against its equation in float64 and against fairseq's criterion."""

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from relumt.plugin.criterions import projected_cross_entropy as fused
from relumt.plugin.criterions.fused_cross_entropy import projection_weight
from tests.plugin.criterions.cases import fused_criterion
from tests.plugin.model.build import build, sample, task

PAD = 1
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def problem(dtype=torch.float64, positions=50, size=16, types=97, seed=0):
    """Return features [N, E], weight [V, E] and targets [N], every seventh of them padding."""
    torch.manual_seed(seed)
    features = torch.randn(positions, size).to(dtype).requires_grad_()
    weight = torch.randn(types, size).div(size**0.5).to(dtype).requires_grad_()
    target = torch.randint(2, types, (positions,))
    target[::7] = PAD
    return features, weight, target


def oracle(features, weight, target, smoothing):
    """Return loss and nll in float64, from the equation at the head of the module."""
    log_p = (features.double() @ weight.double().T).log_softmax(1)[target != PAD]
    real = target[target != PAD]
    spread = smoothing / (len(weight) - 1)
    nll = -log_p[torch.arange(len(real)), real].sum()
    return (1 - smoothing - spread) * nll - spread * log_p.sum(), nll


def relative_error(found, expected):
    return ((found.double() - expected).norm() / expected.norm()).item()


@pytest.fixture(params=[1, 8, 10**6], ids=["one position a chunk", "uneven chunks", "one chunk"])
def chunk(request, monkeypatch):
    monkeypatch.setattr(fused, "MIN_CHUNK_POSITIONS", request.param)
    monkeypatch.setattr(fused, "CHUNK_ELEMENTS", {"cpu": 1})


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.usefixtures("chunk")
def test_value_and_gradients_are_those_of_the_equation(dtype, smoothing):
    features, weight, target = problem(dtype)
    loss, nll = fused.projected_cross_entropy(features, weight, target, smoothing, PAD)
    (loss * 3).backward()
    exact = [x.detach().double().requires_grad_() for x in (features, weight)]
    expected_loss, expected_nll = oracle(*exact, target, smoothing)
    (expected_loss * 3).backward()
    found = (loss, nll, features.grad, weight.grad)
    expected = (expected_loss.detach(), expected_nll.detach(), exact[0].grad, exact[1].grad)
    assert all(relative_error(*pair) < TOLERANCES[dtype] for pair in zip(found, expected, strict=True))
    assert features.grad.dtype == weight.grad.dtype == dtype
    assert not nll.requires_grad


@given(st.integers(0, 9), st.integers(1, 8), st.integers(2, 30), st.integers(0, 2**20))
@settings(max_examples=40, deadline=None)
def test_any_size_agrees_with_the_oracle(positions, size, types, seed):
    features, weight, target = problem(positions=positions, size=size, types=max(types, 3), seed=seed)
    loss, nll = fused.projected_cross_entropy(features, weight, target, 0.1, PAD)
    torch.testing.assert_close((loss, nll), oracle(features, weight, target, 0.1))


def test_second_derivatives_are_refused():
    """The incoming gradient is constant, which once_differentiable would let pass with a term missing."""
    features, weight, target = problem(positions=6, size=3, types=7)
    loss = fused.projected_cross_entropy(features, weight, target, 0.1, PAD).loss
    with pytest.raises(RuntimeError, match=r"no second derivatives .* --criterion label_smoothed_cross_entropy"):
        torch.autograd.grad(loss, features, create_graph=True)


def test_large_logits_neither_overflow_nor_become_nan():
    features, weight, target = problem(torch.float32)
    loss, _ = fused.projected_cross_entropy(features * 1e4, weight, target, 0.1, PAD)
    loss.backward()
    assert all(x.isfinite().all() for x in (loss, features.grad, weight.grad))


@pytest.mark.parametrize(("N", "share"), [(1000, 1.0), (20_000, 0.1)])
def test_fp16_gradients_of_a_frequent_type_do_not_overflow(N, share):
    features = torch.full((N, 8), 3.0, dtype=torch.float16, requires_grad=True)
    weight = torch.zeros(50, 8, dtype=torch.float16, requires_grad=True)
    target = torch.arange(N).remainder(44) + 6
    target[:: int(1 / share)] = 5
    fused.projected_cross_entropy(features, weight, target, 0.1, PAD).loss.backward()
    assert weight.grad.isfinite().all()
    assert weight.grad[5].abs().max() > 1000


@pytest.mark.parametrize("frozen", ["features", "weight"])
def test_what_is_frozen_gets_no_gradient(frozen):
    features, weight, target = problem()
    tensors = {"features": features, "weight": weight}
    tensors[frozen].requires_grad_(False)
    fused.projected_cross_entropy(features, weight, target, 0.1, PAD).loss.backward()
    assert [name for name, tensor in tensors.items() if tensor.grad is None] == [frozen]


def test_without_grad_mode_only_the_loss_is_computed():
    """Validation needs one product per chunk, training three."""
    features, weight, target = problem()
    trained = fused.projected_cross_entropy(features, weight, target, 0.1, PAD)
    with torch.no_grad(), torch.profiler.profile() as profiler:
        validated = fused.projected_cross_entropy(features, weight, target, 0.1, PAD)
    assert validated == trained
    assert not validated.loss.requires_grad
    products = [event.count for event in profiler.key_averages() if event.key in ("aten::mm", "aten::addmm_")]
    assert products == [1]


def test_autocast_computes_products_in_bf16_and_returns_float32():
    features, weight, target = problem(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = fused.projected_cross_entropy(features, weight, target, 0.1, PAD)
    loss.backward()
    assert loss.dtype == features.grad.dtype == weight.grad.dtype == torch.float32
    expected, _ = oracle(features.detach(), weight.detach(), target, 0.1)
    assert 1e-7 < relative_error(loss, expected) < TOLERANCES[torch.bfloat16]


def test_never_holds_the_logits_of_a_batch():
    """The largest tensor that is made has the size of a chunk, not of [positions, types]."""
    features, weight, target = problem(torch.float32, positions=2000, size=8, types=9000)
    with torch.profiler.profile(profile_memory=True) as profiler:
        fused.projected_cross_entropy(features, weight, target, 0.1, PAD).loss.backward()
    largest = max(event.nbytes() for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]")
    assert largest == fused.MIN_CHUNK_POSITIONS * 9000 * 4


# The criterion.

UNEVEN = [(7, 5), (3, 8), (1, 2)]


def stock_criterion(sentence_avg=False, **settings):
    return LabelSmoothedCrossEntropyCriterion(task(), sentence_avg, 0.1, **settings)


CRITERIONS = fused_criterion, stock_criterion


def run(criterion, model, **settings):
    """Return loss, sample size, log and gradients of a criterion on an uneven batch."""
    model.zero_grad()
    loss, size, log = criterion(**settings)(model, sample(UNEVEN))
    loss.backward()
    return loss, size, log, [parameter.grad.clone() for parameter in model.parameters()]


@pytest.mark.parametrize(
    ("arch", "sentence_avg"), [("transformer", False), ("reluformer", True), ("rela --share-all-embeddings", False)]
)
def test_the_criterion_equals_fairseq(arch, sentence_avg):
    model = build(*arch.split()).train()
    (loss, size, log, grads), (expected_loss, expected_size, expected_log, expected_grads) = (
        run(criterion, model, sentence_avg=sentence_avg) for criterion in CRITERIONS
    )
    torch.testing.assert_close(loss, expected_loss, rtol=1e-6, atol=0)
    found, expected = (torch.cat([grad.flatten() for grad in one]) for one in (grads, expected_grads))
    assert relative_error(found, expected.double()) < 1e-5  # of the loss: 1e-6; the layers below amplify rounding
    assert size == expected_size
    assert log.keys() == expected_log.keys()
    for name, value in log.items():
        assert float(value) == pytest.approx(float(expected_log[name]))


@pytest.mark.parametrize("settings", [{"ignore_prefix_size": 1}, {"report_accuracy": True}])
def test_the_criterion_leaves_other_settings_to_fairseq(settings):
    model = build("mechanism_transformer").train()
    found, expected = (run(criterion, model, **settings) for criterion in CRITERIONS)
    assert torch.equal(found[0], expected[0])
    assert found[2] == expected[2]


class FullyShardedDataParallel(nn.Module):
    """Stands for the class of this name, which shards the weight."""

    def __init__(self, module):
        super().__init__()
        self.module, self.decoder = module, module.decoder


def test_a_projection_is_fused_only_if_nothing_else_happens_to_it(monkeypatch):
    model = build("mechanism_transformer").train()
    assert projection_weight(model) is model.decoder.output_projection.weight
    assert projection_weight(build("transformer", "--adaptive-softmax-cutoff", "5,10")) is None
    assert projection_weight(FullyShardedDataParallel(model)) is None
    model.encoder.find_unused_parameters = True
    assert projection_weight(model) is None
    del model.encoder.find_unused_parameters
    hook = model.decoder.output_projection.register_forward_hook(lambda module, args, logits: logits * 2)
    assert projection_weight(model) is None
    found, expected = (run(criterion, model) for criterion in CRITERIONS)
    assert torch.equal(found[0], expected[0])
    hook.remove()
    assert projection_weight(model) is not None
    monkeypatch.setattr(type(model.decoder), "output_layer", lambda self, x: self.output_projection(x) * 2)
    assert projection_weight(model) is None
