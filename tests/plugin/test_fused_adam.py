"""PyTorch's fused kernel computes fairseq's Adam."""

import math

import pytest
import torch
from fairseq.optim.adam import FairseqAdam, FairseqAdamConfig
from torch import nn

import relumt.plugin.registration  # noqa: F401
from relumt.errors import UserError
from relumt.plugin.fused_adam import FusedAdam

STOCK = FusedAdam.__base__
SIZES = (5, 40, 33)
SETTINGS = {"lr": 0.01, "betas": (0.9, 0.98), "eps": 1e-3, "weight_decay": 0.1}


@pytest.fixture(autouse=True)
def fuse_on_cpu(monkeypatch):
    monkeypatch.setattr(FusedAdam, "fused_device", "cpu")


def build(optimizer_class, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    parameters = [nn.Parameter(torch.randn(size, generator=generator).to(dtype)) for size in SIZES]
    groups = [{"params": parameters[:1], "weight_decay": 0.0}, {"params": parameters[1:]}]
    return parameters, optimizer_class(groups, **SETTINGS)


def gradients(update) -> list[torch.Tensor | None]:
    """Return gradients as large as ε, so that its place counts; the last parameter has none in update 2."""
    generator = torch.Generator().manual_seed(update)
    grads = [torch.randn(size, generator=generator) * 1e-3 for size in SIZES]
    return [*grads[:-1], None if update == 2 else grads[-1]]


def take_steps(parameters, optimizer, updates):
    for update in updates:
        for x, grad in zip(parameters, gradients(update), strict=True):
            x.grad = None if grad is None else grad.to(x.dtype)
        optimizer.step()


def exact(updates: int) -> list[torch.Tensor]:
    """The equation in float64."""
    parameters, _ = build(STOCK)
    (eta, (beta1, beta2), eps), results = [SETTINGS[name] for name in ("lr", "betas", "eps")], []
    for number, x in enumerate(parameters):
        theta, m, v = x.detach().double(), 0.0, 0.0
        found = [gradients(update)[number] for update in range(updates)]
        for t, g in enumerate((grad.double() for grad in found if grad is not None), 1):
            m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
            decay = eta * SETTINGS["weight_decay"] if number else 0.0
            rate = eta * math.sqrt(1 - beta2**t) / (1 - beta1**t)
            theta = (1 - decay) * theta - rate * m / (v.sqrt() + eps)
        results.append(theta)
    return results


@pytest.mark.parametrize("optimizer_class", [FusedAdam, STOCK])
def test_parameters_are_those_of_the_equation(optimizer_class):
    parameters, optimizer = build(optimizer_class)
    take_steps(parameters, optimizer, range(6))
    for x, expected in zip(parameters, exact(6), strict=True):
        torch.testing.assert_close(x.detach().double(), expected, atol=1e-6, rtol=1e-6)


def test_one_goes_on_from_the_state_of_the_other():
    results = []
    for first, second in ((FusedAdam, STOCK), (STOCK, FusedAdam), (STOCK, STOCK)):
        parameters, optimizer = build(first)
        take_steps(parameters, optimizer, range(3))
        state = optimizer.state_dict()
        optimizer = second([{"params": parameters[:1]}, {"params": parameters[1:]}], **SETTINGS)
        optimizer.load_state_dict(state)
        take_steps(parameters, optimizer, range(3, 6))
        results.append(torch.cat([x.detach() for x in parameters]))
    torch.testing.assert_close(results[0], results[2], atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(results[1], results[2], atol=1e-6, rtol=1e-6)


def test_other_parameters_are_left_to_fairseq(monkeypatch):
    monkeypatch.setattr("relumt.plugin.fused_adam.update_together", None)
    (ours, optimizer), (theirs, stock) = build(FusedAdam, torch.bfloat16), build(STOCK, torch.bfloat16)
    for parameters, used in ((ours, optimizer), (theirs, stock)):
        take_steps(parameters, used, range(3))
    assert all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize(
    ("has_gpu", "use_old_adam", "built"), [(True, False, FusedAdam), (True, True, STOCK), (False, False, STOCK)]
)
def test_fairseq_uses_it_on_a_gpu(has_gpu, use_old_adam, built, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    cfg = FairseqAdamConfig(adam_betas="(0.9, 0.98)", lr=[1e-3], use_old_adam=use_old_adam, tpu=False)
    assert type(FairseqAdam(cfg, [nn.Parameter(torch.ones(2))]).optimizer) is built


def test_moments_in_fp16_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(UserError, match="--fp16-adam-stats needs apex"):
        FairseqAdam(FairseqAdamConfig(lr=[1e-3], adam_betas="(0.9, 0.98)", fp16_adam_stats=True, tpu=False), [])
