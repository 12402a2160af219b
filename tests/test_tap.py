"""What a tap on feed-forward layers is given."""

import pytest
import torch
import torch.nn.functional as F

from relumt.modules.hooks import feedforward_hook
from tests.models.build import build, sample


@pytest.mark.parametrize(
    "flags", [(), ("--encoder-normalize-before", "--decoder-normalize-before")], ids=["post-norm", "pre-norm"]
)
def test_feedforward_tap_gives_scores_output_and_residual(flags):
    model, batch = build("mechanism_transformer", "--feedforward", "softmax", *flags).eval(), sample([(5, 4), (3, 2)])
    seen = {}
    layer = model.encoder.layers[1]
    with feedforward_hook(model, lambda name, remembered: seen.update({name: remembered})):
        states = model.encoder(**{k: v for k, v in batch["net_input"].items() if k.startswith("src")},
                               return_all_hiddens=True)["encoder_states"]  # fmt: skip
        model(**batch["net_input"])
    assert sorted(seen) == [f"{side}.layers.{i}" for side in ("decoder", "encoder") for i in (0, 1)]
    one = seen["encoder.layers.1"]
    torch.testing.assert_close(one.scores.sum(-1), torch.ones(one.scores.shape[:-1]))
    torch.testing.assert_close(one.output, F.linear(one.scores, layer.fc2.weight, layer.fc2.bias))
    summed = one.residual + one.output
    torch.testing.assert_close(summed if flags else layer.final_layer_norm(summed), states[-1])


def test_a_tap_is_gone_after_its_block():
    model, batch = build("mechanism_transformer").eval(), sample([(5, 4)])
    calls = []
    with feedforward_hook(model, lambda name, _: calls.append(name)):
        pass
    model(**batch["net_input"])
    assert not calls
