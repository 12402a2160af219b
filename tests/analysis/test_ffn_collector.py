"""Measures of feed-forward layers on a test set do not depend on batching or padding."""

import pytest
import torch
import torch.nn.functional as F

from relumt.analysis.ffn_collector import FeedForwardCollector, learned_activations, value_slots
from relumt.attention.feedforward import FEEDFORWARDS
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
    with torch.no_grad(), feedforward_hook(model, lambda name, found: activations.update({name: found})):
        model(**batch["net_input"])
    measures = collected(model, [batch])["encoder.layers.1"]
    found, layer = activations["encoder.layers.1"], model.encoder.layers[1]
    scores = found.scores.double()
    ratio = found.output.var(-1, correction=0).mean() / found.residual.var(-1, correction=0).mean()
    assert measures.variance_ratio == pytest.approx(ratio.item(), rel=1e-5)
    slots = scores.shape[-1]
    highest = scores.sort(-1, descending=True).values[..., : -(-slots * 10 // 100)].sum(-1) / scores.sum(-1)
    assert measures.top_share["10"] == pytest.approx(highest.mean().item(), rel=1e-5)
    torch.testing.assert_close(value_slots(layer), layer.fc2.weight.detach().T)
    torch.testing.assert_close(found.output, F.linear(found.scores, value_slots(layer).T, layer.fc2.bias))


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
