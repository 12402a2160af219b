"""What hooks on attention and feed-forward layers receive, and when they are removed."""

import pytest
import torch
import torch.nn.functional as F

from relumt.attention import Need
from relumt.plugin.model.hooks import attention_hook, feedforward_hook, named_attentions
from tests.plugin.model.build import build, sample


@pytest.mark.parametrize(
    "flags", [(), ("--encoder-normalize-before", "--decoder-normalize-before")], ids=["post-norm", "pre-norm"]
)
def test_a_feedforward_hook_receives_scores_output_and_residual(flags):
    model, batch = build("mechanism_transformer", "--feedforward", "softmax", *flags).eval(), sample([(5, 4), (3, 2)])
    seen = {}
    layer = model.encoder.layers[1]
    source = {name: value for name, value in batch["net_input"].items() if name.startswith("src")}
    with feedforward_hook(model, lambda name, activations: seen.update({name: activations})):
        states = model.encoder(**source, return_all_hiddens=True)["encoder_states"]
        model(**batch["net_input"])
    assert sorted(seen) == [f"{side}.layers.{i}" for side in ("decoder", "encoder") for i in (0, 1)]
    activations = seen["encoder.layers.1"]
    torch.testing.assert_close(activations.scores.sum(-1), torch.ones(activations.scores.shape[:-1]))
    torch.testing.assert_close(activations.output, F.linear(activations.scores, layer.fc2.weight, layer.fc2.bias))
    summed = activations.residual + activations.output
    torch.testing.assert_close(summed if flags else layer.final_layer_norm(summed), states[-1])


def test_an_attention_hook_is_removed_after_its_block_even_after_an_error():
    model = build("reluformer")
    with pytest.raises(RuntimeError, match="inside the block"), attention_hook(model, print, Need.WEIGHTS):
        raise RuntimeError("inside the block")
    assert all(attention.hooks == [] for attention in named_attentions(model).values())


def test_all_layers_share_what_is_computed_from_the_padding():
    model, batch = build("reluformer"), sample([(5, 4), (3, 2)])
    key_masks = {}

    def record(name, attention, result, mask):
        key_masks.setdefault(attention.site, []).append(mask.key_mask)

    with attention_hook(model, record):
        model(**batch["net_input"])
    sources = key_masks["encoder"] + key_masks["cross"]
    assert len(sources) == 4 and all(key_mask is sources[0] for key_mask in sources)
    assert len(key_masks["decoder"]) == 2 and key_masks["decoder"][0] is key_masks["decoder"][1]
