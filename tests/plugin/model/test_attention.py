"""`MechanismAttention`: QK norm, and masks that are added."""

import math

import pytest
import torch

from relumt.errors import UserError
from relumt.plugin.model.attention import MechanismAttention
from tests.plugin.model.build import build, sample, trainer


@pytest.mark.parametrize(("values", "kind"), [([], "constant"), (["log_n"], "log_n")])
def test_a_flag_sets_the_kind_of_qk_norm(values, kind):
    assert build("mechanism_transformer").decoder.layers[0].encoder_attn.qk_norm is None
    model = build("mechanism_transformer", "--attention-qk-norm", *values)
    assert model.decoder.layers[0].encoder_attn.qk_norm.kind == kind


@torch.no_grad()
def test_with_qk_norm_the_size_of_projections_has_no_effect():
    model = build("mechanism_transformer", "--attention-qk-norm").eval()
    net_input = sample([(4, 3), (2, 5)])["net_input"]
    before = model(**net_input)[0]
    for attention in (module for module in model.modules() if isinstance(module, MechanismAttention)):
        for parameter in (*attention.q_proj.parameters(), *attention.k_proj.parameters()):
            parameter.mul_(5)
    torch.testing.assert_close(model(**net_input)[0], before)
    attention.qk_norm.scale.mul_(2)
    assert not torch.allclose(model(**net_input)[0], before)


def test_qk_norm_without_products_of_queries_and_keys_is_refused():
    with pytest.raises(UserError, match="QK norm needs products of queries and keys, which InhibitorAttention lacks"):
        build("inhibitor", "--attention-qk-norm")


@torch.no_grad()
def test_softmax_takes_the_place_of_the_mechanism_in_the_first_epochs(tmp_path, capsys):
    flags = ("--dropout", "0", "--attention", "relu_l1", "--attention-softmax-epochs", "2")
    trained = trainer(tmp_path, "--arch", "mechanism_transformer", *flags)  # begins the first epoch
    softmax, relu, restored = (build("mechanism_transformer", *some) for some in (flags[:2], flags[:4], flags))
    for model in (softmax, relu, restored):
        model.load_state_dict(trained.model.state_dict())
    net_input = sample([(4, 3), (2, 5)])["net_input"]

    def logits(model, is_training=False):
        return model.train(is_training)(**net_input)[0]

    assert not torch.allclose(logits(softmax), logits(relu))
    for epoch, expected in ((1, softmax), (2, softmax), (3, relu)):
        trained.begin_epoch(epoch)
        assert torch.equal(logits(trained.model, True), logits(expected, True))
        assert torch.equal(logits(trained.model), logits(relu)), "validation measures what will translate"
        assert ("epoch 3: attention is without softmax" in capsys.readouterr().err) == (epoch == 3)
    assert torch.equal(logits(restored), logits(relu)), "a trained model computes with the mechanism"


def test_a_mask_that_is_added_hides_what_is_minus_infinity_and_adds_the_rest():
    torch.manual_seed(1)
    attention = build("reluformer").eval().encoder.layers[0].self_attn
    x, hidden = torch.randn(4, 2, attention.embed_dim), torch.ones(4, 4, dtype=torch.bool).triu(1)
    added = torch.zeros(4, 4).masked_fill(hidden, float("-inf"))
    expected, _ = attention(x, x, x, attn_mask=hidden)
    torch.testing.assert_close(attention(x, x, x, attn_mask=added)[0], expected)
    with_bias = attention(x, x, x, attn_mask=added + 0.5)[0]
    heads = (proj(x).unflatten(-1, (2, -1)).permute(1, 2, 0, 3) for proj in (attention.q_proj, attention.k_proj))
    q, k = (head.double() for head in heads)
    scores = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + 0.5).relu().masked_fill(hidden, 0)
    weights = scores / torch.arange(1, 5).div(2).sqrt()[:, None]  # [RF] Eq. 6
    v = attention.v_proj(x).unflatten(-1, (2, -1)).permute(1, 2, 0, 3).double()
    # [B, H, T, D] -> [T, B, E]
    expected = attention.out_proj((weights @ v).permute(2, 0, 1, 3).flatten(2).float())
    torch.testing.assert_close(with_bias, expected)
