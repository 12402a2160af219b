"""Measures of feed-forward layers: worked examples and equations; batching and padding change nothing."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from relumt.analysis.collectors import FeedForwardCollector, learned_activations, value_slots
from relumt.attention.feedforward import FEEDFORWARDS
from relumt.attention.metrics.ffn_metrics import anisotropy, feature_variance, top_share
from relumt.plugin.model.hooks import feedforward_hook
from tests.analysis.cases import observe, one_by_one
from tests.plugin.model.build import build, sample

LENGTHS = [(7, 5), (3, 8), (1, 2), (6, 6)]
PAD = 1


def build_model(name):
    return build("mechanism_transformer", "--feedforward", name).eval()


def collected(model, batches):
    return observe(FeedForwardCollector(model, PAD), model, batches)


@pytest.mark.parametrize("name", sorted(FEEDFORWARDS))
def test_batches_and_padding_change_no_measure(name):
    model = build_model(name)
    together, alone = collected(model, [sample(LENGTHS)]), collected(model, one_by_one(LENGTHS))
    assert together.keys() == {f"{side}.layers.{i}" for side in ("encoder", "decoder") for i in (0, 1)}
    for layer, measures in together.items():
        num_positions = sum(source if layer.startswith("encoder") else target for source, target in LENGTHS)
        assert measures.num_positions == alone[layer].num_positions == num_positions
        assert measures.variance_ratio == pytest.approx(alone[layer].variance_ratio, rel=1e-5)
        assert measures.null_rate == alone[layer].null_rate
        assert measures.anisotropy == alone[layer].anisotropy
        assert measures.top_share == (alone[layer].top_share and pytest.approx(alone[layer].top_share, rel=1e-5))


def test_measures_agree_with_the_hooked_activations():
    model, (batch,) = build_model("relu"), [sample([(5, 4)])]
    activations = {}
    with torch.no_grad(), feedforward_hook(model, lambda name, *found: activations.update({name: found})):
        model(**batch["net_input"])
    measures = collected(model, [batch])["encoder.layers.1"]
    (found, output, residual), layer = activations["encoder.layers.1"], model.encoder.layers[1]
    scores = found.double()
    ratio = output.var(-1, correction=0).mean() / residual.var(-1, correction=0).mean()
    assert measures.variance_ratio == pytest.approx(ratio.item(), rel=1e-5)
    slots = scores.shape[-1]
    highest = scores.sort(-1, descending=True).values[..., : -(-slots * 10 // 100)].sum(-1) / scores.sum(-1)
    assert measures.top_share["10"] == pytest.approx(highest.mean().item(), rel=1e-5)
    torch.testing.assert_close(value_slots(layer), layer.fc2.weight.detach().T)
    torch.testing.assert_close(output, F.linear(found, value_slots(layer).T, layer.fc2.bias))


def test_null_positions_are_counted_and_have_no_share_nor_have_scores_that_can_be_negative():
    model = build_model("relu")
    layer = model.encoder.layers[0]
    torch.nn.init.zeros_(layer.fc1.weight)
    torch.nn.init.constant_(layer.fc1.bias, -1.0)
    measures = collected(model, [sample(LENGTHS)])["encoder.layers.0"]
    assert (measures.null_rate, measures.top_share) == (1, None)
    measures = collected(build_model("gelu"), [sample(LENGTHS)])["decoder.layers.0"]
    assert measures.null_rate is measures.top_share is None


def test_learned_activations_are_the_trained_parameters_by_layer():
    learnt = learned_activations(build_model("aptx1"))
    assert learnt["decoder.layers.1"] == {"beta": 1.0, "gamma": 0.5}
    assert learned_activations(build_model("gelu")) == {}


def test_feature_variance_by_hand():
    assert feature_variance(torch.tensor([[1.0, -1.0], [3.0, -3.0], [5.0, 5.0]])).tolist() == [1, 9, 0]


def test_feature_variance_does_not_see_a_shift_of_all_features():
    x = torch.randn(7, 16)
    torch.testing.assert_close(feature_variance(x + 100), feature_variance(x), rtol=1e-3, atol=0)


def test_top_share_by_hand():
    scores = torch.tensor([[4.0, 0.0, 1.0, 3.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0]])
    shares = top_share(scores, [10, 20, 11, 0.1, 100])
    assert shares.flatten().tolist() == pytest.approx([0.4, 0.7, 0.7, 0.4, 1.0])


def test_top_share_counts_whole_slots_exactly():
    assert top_share(torch.ones(1, 1000), [0.2]).item() == pytest.approx(2 / 1000)


def test_top_share_of_a_null_row_is_not_a_number():
    assert top_share(torch.tensor([[0.0, 0.0], [1.0, 1.0]]), [50]).isnan().tolist() == [[True, False]]


def test_anisotropy_by_hand():
    assert anisotropy(torch.eye(3)).item() == pytest.approx(0, abs=1e-7)
    assert anisotropy(torch.tensor([[1.0, 0.0], [5.0, 0.0]])).item() == pytest.approx(1)
    assert anisotropy(torch.tensor([[1.0, 0.0], [-2.0, 0.0]])).item() == pytest.approx(-1)
    assert anisotropy(torch.tensor([[1.0, 0.0], [1.0, 1.0]])).item() == pytest.approx(1 / math.sqrt(2))


@given(seed=st.integers(0, 2**32), slots=st.integers(2, 12), size=st.integers(1, 6))
def test_anisotropy_is_the_mean_over_pairs(seed, slots, size):
    values = torch.randn(slots, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    cosines = [
        float(values[i] @ values[j] / (values[i].norm() * values[j].norm()))
        for i in range(slots)
        for j in range(slots)
        if i != j
    ]
    assert anisotropy(values).item() == pytest.approx(sum(cosines) / len(cosines), abs=1e-9)
