"""With softmax, `mechanism_transformer` is fairseq's `transformer`."""

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble

from relumt.attention import MECHANISMS, Need
from relumt.plugin.model.mechanism_transformer import MechanismTransformer
from tests.plugin.model.build import build, sample, task, trainer

UNEVEN = [(7, 5), (3, 8), (1, 2)]
EVEN = [(6, 4), (6, 4)]


def logits(model, batch):
    return model(**batch["net_input"])[0]


@pytest.mark.parametrize("lengths", [UNEVEN, EVEN], ids=["padded", "unpadded"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "flags", [(), ("--encoder-normalize-before", "--decoder-normalize-before")], ids=["post-norm", "pre-norm"]
)
def test_the_same_weights_give_the_same_logits(lengths, training, flags):
    stock = build("transformer", *flags).train(training)
    ours = build("mechanism_transformer", *flags, seed=2).train(training)
    ours.load_state_dict(stock.state_dict())
    batch = sample(lengths)
    real = batch["target"].ne(1)
    torch.testing.assert_close(logits(ours, batch)[real], logits(stock, batch)[real], rtol=0, atol=1e-5)


def test_the_same_seed_gives_the_same_initial_weights():
    stock, ours = build("transformer").state_dict(), build("mechanism_transformer").state_dict()
    assert stock.keys() == ours.keys()
    assert all(torch.equal(stock[name], ours[name]) for name in stock)


def test_weights_are_returned_only_when_generating_alignments():
    model = build("reluformer").eval()
    batch = sample(UNEVEN)
    assert model(**batch["net_input"])[1]["attn"] == [None]
    model.make_generation_fast_(need_attn="hard")
    weights = model(**batch["net_input"])[1]["attn"][0]
    assert weights.shape == (3, 8, 7)
    assert torch.all(weights[1, :, :4] == 0)
    attention, x = model.decoder.layers[-1].encoder_attn, torch.randn(5, 3, 16)
    _, heads = attention(x, x, x, need_head_weights=True)
    assert heads.shape == (2, 3, 5, 5) and not torch.equal(heads[0], heads[1])
    torch.testing.assert_close(attention(x, x, x)[1], heads.mean(0))


def test_neither_weights_nor_row_statistics_are_computed_without_need(monkeypatch):
    needs = []
    mechanism = type(MECHANISMS["relu"](2, 8))
    original = mechanism.forward

    def spy(self, q, k, v, mask, need=Need.NOTHING):
        needs.append(need)
        return original(self, q, k, v, mask, need)

    monkeypatch.setattr(mechanism, "forward", spy)
    logits(build("reluformer"), sample(UNEVEN))
    assert needs == [Need.NOTHING] * 6


def test_a_stock_checkpoint_loads(tmp_path):
    path, batch = tmp_path / "checkpoint_best.pt", sample(UNEVEN)
    trained = trainer(tmp_path, "--arch", "transformer")
    trained.consolidate_optimizer()
    trained.save_checkpoint(str(path), {"train_iterator": {"epoch": 1}})
    stock = trained.model.eval()
    overrides = {"_name": "mechanism_transformer", "arch": "mechanism_transformer"}
    (ours,), _ = load_model_ensemble([str(path)], arg_overrides=overrides, task=task())
    assert isinstance(ours, MechanismTransformer)
    real = batch["target"].ne(1)
    torch.testing.assert_close(logits(ours.eval(), batch)[real], logits(stock, batch)[real], rtol=0, atol=1e-5)
