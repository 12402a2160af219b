"""--log-attention-interval: what is logged, when, and that it changes no gradient."""

import pytest
import torch
from fairseq.logging import metrics

from relumt.analysis.attention_collector import AttentionCollector
from relumt.analysis.units import BatchReader
from tests.plugin.model.build import build, sample, task

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
