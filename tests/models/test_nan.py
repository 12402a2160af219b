"""fairseq looks for the first NaN when a gradient is not finite; it must find ours by name."""

import logging

import pytest

from relumt.attention import MECHANISMS
from tests.models.build import sample, trainer


@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_a_nan_names_the_mechanism_that_it_came_from(name, caplog, tmp_path, monkeypatch):
    trained = trainer(tmp_path, "--arch", "mechanism_transformer", "--attention", name)
    mechanism = trained.model.encoder.layers[1].self_attn.mechanism
    honest = mechanism.forward

    def broken(*args):
        result = honest(*args)
        return result._replace(output=result.output * float("nan"))

    monkeypatch.setattr(mechanism, "forward", broken)
    # What it found is logged; then its own hooks stumble over the encoder's output, a dict of lists, stock or ours.
    with caplog.at_level(logging.WARNING), pytest.raises((FloatingPointError, StopIteration)):
        trained.train_step([sample([(5, 4), (3, 2)])])
    found = [record.getMessage() for record in caplog.records if "detected in output of" in record.getMessage()]
    assert found[0].startswith("NaN detected in output of encoder.layers.1.self_attn.mechanism, ")
