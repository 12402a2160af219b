"""Every feed-forward variant against its equation, its gradients and half precision; what the layers do with it."""

import math

import pytest
import torch
import torch.nn.functional as F
from fairseq.logging import metrics
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from relumt.attention.feedforward import FEEDFORWARDS, APTx1, ReLUGT
from tests.plugin.model.build import build, sample, trainer

every_variant = pytest.mark.parametrize("name", sorted(set(FEEDFORWARDS) - {"stock"}))
for_each_variant = settings(max_examples=15)
UNEVEN = [(7, 5), (3, 8), (1, 2)]


def softplus(x):
    return max(x, 0) + math.log1p(math.exp(-abs(x)))


def gelu(x):
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


def silu(x):
    return x / (1 + math.exp(-x))


def halves(act):
    return lambda xs: [act(a) * b for a, b in zip(xs[: len(xs) // 2], xs[len(xs) // 2 :], strict=True)]


def each(act):
    return lambda xs: [act(x) for x in xs]


def softmax(xs):
    return [math.exp(x) / sum(math.exp(y) for y in xs) for x in xs]


def aptx1(x, beta=1.0, gamma=0.5):
    """[AF] APTx Stage 1, the author's APTxS1."""
    return ((1 + math.tanh(beta * x)) * gamma * x) ** 2


def relu_gt(x, alpha_pos=1.0, slope=0.05):
    """[AF] ReLU GT, the author's ReLUGT.

    The class is in model/subatts.py of github.com/ZDisket/FastSpeech2 (branch isolate-preencoder): 2.5 multiplies the
    slope and is not trained.
    """
    return 2.5 * slope * x if x < 0 else alpha_pos * x**2


ORACLES = {
    "relu": each(lambda x: max(x, 0.0)),
    "softmax": softmax,
    "softmax_ln": softmax,
    "gelu": each(gelu),
    "swish": each(silu),
    "mish": each(lambda x: x * math.tanh(softplus(x))),
    "relu2": each(lambda x: max(x, 0.0) ** 2),
    "swiglu": halves(silu),
    "geglu": halves(gelu),
    "reglu": halves(lambda x: max(x, 0.0)),
    "aptx1": each(aptx1),
    "relu_gt": each(relu_gt),
}
"""Variant → its activation as the paper defines it, for one position, without calling relumt."""


@every_variant
@for_each_variant
@given(xs=st.lists(st.floats(-100, 100), min_size=2, max_size=8).filter(lambda xs: len(xs) % 2 == 0))
def test_activation_is_the_equation(name, xs):
    if name not in ORACLES:
        pytest.fail(
            f"the variant '{name}' has no oracle; add its equation to ORACLES in tests/attention/test_feedforward.py"
        )
    activation = FEEDFORWARDS[name]().activation().double()
    expected = torch.tensor(ORACLES[name](xs), dtype=torch.float64)
    torch.testing.assert_close(activation(torch.tensor(xs, dtype=torch.float64)), expected, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize(
    ("activation", "equation", "initial"),
    [(APTx1, aptx1, {"beta": 1.0, "gamma": 0.5}), (ReLUGT, relu_gt, {"positive_alpha": 1.0, "negative_slope": 0.05})],
)
@for_each_variant
@given(
    xs=st.lists(st.floats(-100, 100), min_size=1, max_size=8), trained=st.tuples(st.floats(-2, 2), st.floats(0.01, 2))
)
def test_trained_activations_are_the_equation(activation, equation, initial, xs, trained):
    activation = activation()
    parameters = dict(activation.named_parameters())
    assert {name: round(parameter.item(), 6) for name, parameter in parameters.items()} == initial
    activation.double()
    for name, value in zip(initial, trained, strict=True):
        nn.init.constant_(parameters[name], value)
    expected = torch.tensor([equation(x, *trained) for x in [0.0, *xs]], dtype=torch.float64)
    result = activation(torch.tensor([0.0, *xs], dtype=torch.float64))
    torch.testing.assert_close(result, expected, rtol=1e-7, atol=1e-9)


def test_the_negative_side_of_relu_gt_has_no_lower_bound():
    half = torch.tensor([-math.inf, -6e4, -100.0, -20.0, -1.0], dtype=torch.float16)
    lowest = torch.finfo(torch.float16).min
    assert ReLUGT()(half).tolist() == pytest.approx([lowest, -7500, -12.5, -2.5, -0.125], rel=1e-3)


@every_variant
def test_gradients_are_those_of_the_function(name):
    seeded = torch.Generator().manual_seed(2)
    x = torch.randn(3, 8, generator=seeded, dtype=torch.float64, requires_grad=True)
    activation = FEEDFORWARDS[name]().activation().double()
    assert torch.autograd.gradcheck(lambda x, *_: activation(x), (x, *activation.parameters()))


@every_variant
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [1e-3, 1e4])
def test_half_precision_is_the_float32_result_wherever_it_is_in_range(name, dtype, size):
    seeded = torch.Generator().manual_seed(4)
    x = ((torch.rand(5, 16, generator=seeded) * 2 - 1) * size).to(dtype).requires_grad_()
    activation = FEEDFORWARDS[name]().activation()
    exact = activation(x.detach().float())
    half = activation.to(dtype)(x)
    half.float().sum().backward()
    assert half.dtype == dtype
    assert half.isfinite().all()
    assert not x.grad.isnan().any()
    in_range = exact.abs() <= torch.finfo(dtype).max
    eps = torch.finfo(dtype).eps
    # A trained parameter is itself rounded to eps: relu_gt's slope of 0.05.
    torch.testing.assert_close(half.float()[in_range], exact[in_range], rtol=4 * eps, atol=4 * eps)


def test_relu_is_bit_identical_to_fairseqs():
    batch = sample(UNEVEN)
    ours, stock = (build("mechanism_transformer", "--feedforward", name).train() for name in ("relu", "stock"))
    for model in (ours, stock):
        model(**batch["net_input"])[0].logsumexp(-1).sum().backward()
    assert torch.equal(ours(**batch["net_input"])[0], stock(**batch["net_input"])[0])
    for name, parameter in stock.named_parameters():
        assert torch.equal(parameter.grad, ours.get_parameter(name).grad), name


def test_softmax_ln_normalizes_the_output_of_a_softmax_memory():
    flags = ("--feedforward", "softmax_ln", "--memory-temperature", "2", "--no-memory-bias")
    layer = build("mechanism_transformer", *flags).encoder.layers[0].double()
    x = torch.randn(3, 16, dtype=torch.float64)
    linear, norm = layer.fc2
    assert layer.fc1.bias is linear.bias is None
    memory = F.softmax(x @ layer.fc1.weight.T / 2, dim=-1) @ linear.weight.T
    expected = F.layer_norm(memory, (16,), norm.weight, norm.bias)
    torch.testing.assert_close(layer.fc2(layer.activation_fn(layer.fc1(x))), expected)


def test_gated_units_widen_fc1_or_keep_the_number_of_parameters():
    flags = ["--encoder-ffn-embed-dim 33 --feedforward relu", "--encoder-ffn-embed-dim 33 --feedforward swiglu"]
    flags.append(f"{flags[1]} --gated-equal-parameters")
    plain, wide, equal = (build("mechanism_transformer", *words.split()).encoder.layers[0] for words in flags)
    assert (wide.fc1.out_features, wide.fc2.in_features) == (66, 33)
    assert equal.fc1.weight.numel() + equal.fc2.weight.numel() == plain.fc1.weight.numel() + plain.fc2.weight.numel()


def test_training_moves_and_logs_the_parameters(tmp_path):
    trained = trainer(tmp_path, "--arch", "mechanism_transformer", "--feedforward", "aptx1", "--lr", "0.1")
    for _ in range(2):
        with metrics.aggregate() as logged:
            trained.train_step([sample(UNEVEN)])
    activation = trained.model.encoder.layers[1].activation_fn
    for name, start in {"beta": 1.0, "gamma": 0.5}.items():
        assert activation.get_parameter(name).item() != start
        assert logged.get_smoothed_values()[f"encoder.layers.1.{name}"] != start
