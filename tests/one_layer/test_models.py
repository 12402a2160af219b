"""The layer and the four models against independent computations."""

import math

import pytest
import torch
from torch import nn

from relumt.one_layer import adding
from relumt.one_layer.encoder import EncoderLayer, SelfAttention
from relumt.one_layer.models import PADDING
from relumt.one_layer.settings import MECHANISMS, PRESETS
from relumt.one_layer.tasks import TASKS

B, T, E, H = 2, 5, 8, 2


@pytest.fixture
def x():
    return torch.randn(B, T, E, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def key_mask():
    return torch.tensor([[True] * T, [True] * (T - 2) + [False] * 2])


def build(mechanism, **options):
    torch.manual_seed(0)
    return SelfAttention(E, H, mechanism, **options).double()


def test_dot_product_attention_is_that_of_pytorch(x, key_mask):
    ours = build("softmax")
    theirs = nn.MultiheadAttention(E, H, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.q_proj.weight, ours.k_proj.weight, ours.v_proj.weight]))
        theirs.out_proj.weight.copy_(ours.out_proj.weight)
        expected, _ = theirs(x, x, x, key_padding_mask=~key_mask)
        torch.testing.assert_close(ours(x, key_mask), expected)


def test_the_inhibitor_is_equation_4_with_the_papers_constants(x, key_mask):
    attention = build("inhibitor")
    expected = torch.zeros(B, T, E, dtype=torch.float64)
    with torch.no_grad():
        q, k, v = (projection(x) for projection in (attention.q_proj, attention.k_proj, attention.v_proj))
        D = E // H
        for b in range(B):
            for h in range(H):
                head = slice(h * D, (h + 1) * D)
                for i in range(T):
                    for j in range(T):
                        if key_mask[b, j]:
                            distance = (q[b, i, head] - k[b, j, head]).abs().sum() / math.sqrt(D)
                            expected[b, i, head] += (v[b, j, head] - (distance - 0.5).clamp(min=0)).clamp(min=0)
        torch.testing.assert_close(attention(x, key_mask), attention.out_proj(expected))


def test_the_inhibitor_starts_at_its_initial_distance():
    torch.manual_seed(0)
    attention = SelfAttention(64, 4, "inhibitor", initial_distance=2.0)
    inputs = torch.randn(100, 64)
    with torch.no_grad():
        q, k = (projection(inputs).unflatten(-1, (4, 16)) for projection in (attention.q_proj, attention.k_proj))
        distances = torch.cdist(q.transpose(0, 1), k.transpose(0, 1), p=1) / 4
    assert distances.mean().item() == pytest.approx(2.0, rel=0.1)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_padding_does_not_change_the_other_tokens(mechanism, x, key_mask):
    layer = EncoderLayer(build(mechanism), E, 2 * E, dropout=0.0).double()
    with torch.no_grad():
        torch.testing.assert_close(layer(x, key_mask)[1, :-2], layer(x[1:, :-2])[0])


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    ("task", "inputs", "shape"),
    [
        ("adding", adding.draw(3, 100, seed=1).inputs, (3,)),
        ("mnist", torch.randint(0, 256, (3, 28, 28), dtype=torch.uint8), (3, 10)),
        ("imdb", torch.tensor([[5, 4, *[PADDING] * 198], [1, 2] * 100]), (2, 2)),
        ("iam", torch.randint(0, 256, (3, 32, 128), dtype=torch.uint8), (3, 32, 30)),
    ],
)
def test_models_have_outputs_of_the_right_shape_and_gradients_everywhere(mechanism, task, inputs, shape):
    torch.manual_seed(0)
    model = TASKS[task].model(PRESETS["small"][task].settings, mechanism, 30)
    outputs = model(inputs)
    assert outputs.shape == shape
    outputs.pow(2).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    projection = model.layer.layer.attention.q_proj.weight.grad
    assert projection.abs().max() > 0


def test_both_mechanisms_start_with_the_same_weights_except_the_scale_of_queries_and_keys():
    models = []
    for mechanism in MECHANISMS:
        torch.manual_seed(0)
        models.append(TASKS["mnist"].model(PRESETS["smoke"]["mnist"].settings, mechanism, 0).state_dict())
    differing = {name for name in models[0] if not models[0][name].equal(models[1][name])}
    prefix = "layer.layer.attention"
    assert differing == {f"{prefix}.q_proj.weight", f"{prefix}.k_proj.weight"}
