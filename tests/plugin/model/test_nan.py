"""fairseq searches for the first NaN when a gradient is not finite; it must find a NaN of attention by name."""

import logging

import pytest

from tests.plugin.model.build import sample, trainer


def test_a_nan_is_attributed_to_the_mechanism_it_came_from(caplog, tmp_path, monkeypatch):
    trained = trainer(tmp_path, "--arch", "reluformer")
    mechanism = trained.model.encoder.layers[1].self_attn.mechanism
    original = mechanism.forward

    def return_nan(*args):
        result = original(*args)
        return result._replace(output=result.output * float("nan"))

    monkeypatch.setattr(mechanism, "forward", return_nan)
    # fairseq logs what it found, and then fails on the encoder's output, a dict of lists, in stock models too.
    with caplog.at_level(logging.WARNING), pytest.raises((FloatingPointError, StopIteration)):
        trained.train_step([sample([(5, 4), (3, 2)])])
    found = [record.getMessage() for record in caplog.records if "detected in output of" in record.getMessage()]
    assert found[0].startswith("NaN detected in output of encoder.layers.1.self_attn.mechanism, ")
