"""Caches of incremental decoding: reordered, shrunk, and used with another batch."""

import pytest
import torch

from relumt.attention import MECHANISMS
from relumt.plugin.model.attention import MechanismAttention
from tests.plugin.model.build import build, dictionary, sample

pytestmark = pytest.mark.attack("numerics")


def decode(model, orders, batch):
    """Return the last scores of a decoding whose cache is reordered before each step, and of one pass without it."""
    decoder = model.decoder
    source = model.encoder(batch["src_tokens"], batch["src_lengths"])
    state = {}
    tokens = torch.full((len(batch["src_tokens"]), 1), dictionary().eos())
    for step, order in enumerate(orders):
        if order is not None:
            order = torch.tensor(order)
            decoder.reorder_incremental_state_scripting(state, order)
            source, tokens = model.encoder.reorder_encoder_out(source, order), tokens[order]
        last = decoder(tokens, source, state)[0][:, -1]
        tokens = torch.cat([tokens, torch.full_like(tokens[:, :1], 4 + step)], 1)
    return last, decoder(tokens[:, :-1], source)[0][:, -1]


ORDERS = {
    "kept": (3, [None, [0, 1, 2], [0, 1, 2]]),
    "one leaves": (3, [None, [0, 2], [0, 1]]),
    "all but one leave": (3, [None, [2], [0]]),
    "beams of two": (3, [None, [0, 0, 1, 1, 2, 2], [1, 0, 3, 2, 5, 4]]),
    "reversed": (1, [None, [2, 1, 0], [2, 1, 0]]),
    "rotated": (1, [None, [1, 2, 0], [1, 2, 0], [1, 2, 0]]),
    "one repeats": (1, [None, [0, 1, 2], [1, 1, 1]]),
}
"""Sources of a batch of three, and which hypotheses continue at each step: only those of the same source, as in a beam
search."""


@pytest.mark.parametrize("name", ["softmax", "relu"])
@pytest.mark.parametrize("order", ORDERS)
def test_a_reordered_cache_continues_as_the_full_pass(attack, name, order):
    model = build("mechanism_transformer", "--attention", name).eval()
    sources, orders = ORDERS[order]
    batch = sample([(5, 4), (3, 4), (4, 4)][:sources])["net_input"]
    batch = {key: value.repeat_interleave(3 // sources, 0) for key, value in batch.items()}
    with torch.no_grad():
        torch.testing.assert_close(*decode(model, orders, batch), rtol=1e-4, atol=1e-5)
    attack.outcomes.append("handled")


@pytest.mark.parametrize("site", ["decoder", "cross"])
@pytest.mark.parametrize("name", ["softmax", "relu", "inhibitor"])
def test_a_cache_of_another_batch_is_refused(attack, name, site):
    mechanism = MECHANISMS[name](2, 4, **({"implementation": "naive"} if name == "inhibitor" else {}))
    attention = MechanismAttention(8, 2, mechanism=mechanism, site=site).eval()
    state: dict = {}
    x = torch.randn(1, 3, 8)
    with torch.no_grad():
        attention(x, x, x, incremental_state=state)
        with pytest.raises((ValueError, RuntimeError)) as caught:
            wrong = torch.randn(1, 2, 8)
            attention(wrong, wrong, wrong, incremental_state=state)
    assert "\n" not in str(caught.value)
    attack.outcomes.append("refused")
