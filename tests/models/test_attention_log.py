"""--log-attention-interval: what is logged, when, and that it changes no gradient."""

import pytest
import torch
from fairseq.logging import metrics

from relumt.analysis.attention_collector import AttentionCollector
from tests.models.build import build, dictionary, sample

PAIRS = [(7, 5), (3, 8), (6, 6)]


def logged(model, updates, batch):
    with metrics.aggregate(new_root=True) as found:
        model.set_num_updates(updates)
        output = model(**batch["net_input"])[0]
    return output, {name: value for name, value in found.get_smoothed_values().items() if "attention" in name}


def test_every_site_is_logged_at_the_interval_and_no_other_update():
    batch = sample(PAIRS)
    model = build("rela", "--log-attention-interval", "10", "--attention-encoder", "softmax").train()
    _, values = logged(model, 20, batch)
    assert len(values) == 9 and values["attention_sparsity_encoder"] == values["attention_null_rate_encoder"] == 0
    collector = AttentionCollector(model, dictionary().pad())
    with collector.listening(batch), torch.no_grad():
        model(**batch["net_input"])
    sparsities = [m["sparsity"] for m in collector.result().values() if m["site"] == "cross"]
    assert values["attention_sparsity_cross"] == pytest.approx(sum(map(sum, sparsities)) / 4, abs=1e-4)
    assert logged(model, 21, batch)[1] == {}
    assert logged(model.eval(), 20, batch)[1] == {}


def test_only_the_first_batch_of_an_update_is_looked_at():
    batch = sample(PAIRS)
    model = build("reluformer", "--log-attention-interval", "1").train()
    model.set_num_updates(1)
    with metrics.aggregate(new_root=True) as found:
        model(**batch["net_input"])
        once = len(found.get_smoothed_values())
    with metrics.aggregate(new_root=True) as found:
        model(**batch["net_input"])
        assert (once, len(found.get_smoothed_values())) == (9, 0)
        model.set_num_updates(1)  # fairseq says so before every batch
        model(**batch["net_input"])
        assert len(found.get_smoothed_values()) == 0


def test_a_run_that_resumes_at_an_update_that_is_due_looks_at_it():
    model = build("reluformer", "--log-attention-interval", "10").train()
    model.set_num_updates(10)  # fairseq says so when it loads a checkpoint
    assert logged(model, 10, sample(PAIRS))[1]


def test_looking_changes_nothing():
    batch = sample(PAIRS)
    outputs, gradients = [], []
    for flags in (["--log-attention-interval", "1"], []):
        model = build("rela", *flags).train()
        outputs.append(logged(model, 1, batch)[0])
        gradients.append(torch.autograd.grad(outputs[-1].square().sum(), next(model.parameters())))
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-6)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


def test_layers_that_are_computed_again_cannot_be_watched(capsys):
    with pytest.raises(SystemExit):
        build("rela", "--log-attention-interval", "5", "--checkpoint-activations")
    assert "cannot watch layers under --checkpoint-activations" in capsys.readouterr().err


def test_an_interval_of_0_is_refused(capsys):
    with pytest.raises(SystemExit):
        build("rela", "--log-attention-interval", "0")
    assert "--log-attention-interval must be 1 or more, not 0" in capsys.readouterr().err
