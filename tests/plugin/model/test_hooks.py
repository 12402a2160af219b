"""What hooks receive and when they are removed; what --log-attention-interval logs with them, and when."""

import pytest
import torch
import torch.nn.functional as F
from fairseq.logging import metrics

from relumt.analysis.collectors import AttentionCollector
from relumt.analysis.units import BatchReader
from relumt.attention import Need
from relumt.plugin.model.hooks import attention_hook, feedforward_hook, named_attentions
from tests.plugin.model.build import build, sample, task


@pytest.mark.parametrize(
    "flags", [(), ("--encoder-normalize-before", "--decoder-normalize-before")], ids=["post-norm", "pre-norm"]
)
def test_a_feedforward_hook_receives_scores_output_and_residual(flags):
    model, batch = build("mechanism_transformer", "--feedforward", "softmax", *flags).eval(), sample([(5, 4), (3, 2)])
    seen = {}
    layer = model.encoder.layers[1]
    source = {name: value for name, value in batch["net_input"].items() if name.startswith("src")}
    with feedforward_hook(model, lambda name, *activations: seen.update({name: activations})):
        states = model.encoder(**source, return_all_hiddens=True)["encoder_states"]
        model(**batch["net_input"])
    assert sorted(seen) == [f"{side}.layers.{i}" for side in ("decoder", "encoder") for i in (0, 1)]
    scores, output, residual = seen["encoder.layers.1"]
    torch.testing.assert_close(scores.sum(-1), torch.ones(scores.shape[:-1]))
    torch.testing.assert_close(output, F.linear(scores, layer.fc2.weight, layer.fc2.bias))
    summed = residual + output
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


PAIRS = [(7, 5), (3, 8), (6, 6)]


def run_logged(model, num_updates, batch):
    """Return the output of a forward pass after `num_updates` updates and the attention metrics that it logged."""
    with metrics.aggregate(new_root=True) as found:
        model.set_num_updates(num_updates)
        output = model(**batch["net_input"])[0]
    return output, {name: value for name, value in found.get_smoothed_values().items() if "attention" in name}


def test_all_sites_are_logged_at_the_interval_in_training_only():
    batch = sample(PAIRS)
    model = build("rela", "--log-attention-interval", "10", "--attention-encoder", "softmax").train()
    _, values = run_logged(model, 20, batch)
    assert len(values) == 9 and values["attention_sparsity_encoder"] == values["attention_null_rate_encoder"] == 0
    collector = AttentionCollector(model, BatchReader(task(), "none"))
    with collector.observe(batch), torch.no_grad():
        model(**batch["net_input"])
    sparsities = [m.sparsity for m in collector.result().values() if m.site == "cross"]
    assert values["attention_sparsity_cross"] == pytest.approx(sum(map(sum, sparsities)) / 4, abs=1e-4)
    assert run_logged(model, 21, batch)[1] == {}
    assert run_logged(model.eval(), 20, batch)[1] == {}


def test_only_the_first_batch_of_an_update_is_logged():
    batch = sample(PAIRS)
    model = build("reluformer", "--log-attention-interval", "1").train()
    assert len(run_logged(model, 1, batch)[1]) == 9
    assert run_logged(model, 1, batch)[1] == {}  # fairseq sets the number of updates before every batch


def test_logging_changes_neither_outputs_nor_gradients():
    batch = sample(PAIRS)
    outputs, gradients = [], []
    for flags in (["--log-attention-interval", "1"], []):
        model = build("rela", *flags).train()
        outputs.append(run_logged(model, 1, batch)[0])
        gradients.append(torch.autograd.grad(outputs[-1].square().sum(), next(model.parameters())))
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-6)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)
