"""What must hold for a model with any mechanism at any site, or any feed-forward: parametrised over the registries."""

import pytest
import torch
from fairseq.modules.fairseq_dropout import FairseqDropout
from fairseq.sequence_generator import SequenceGenerator
from torch.utils._python_dispatch import TorchDispatchMode

from relumt.attention import MECHANISMS
from relumt.feedforward import FEEDFORWARDS
from relumt.modules import MechanismAttention
from relumt.modules.cache import CAPACITY_STEP
from relumt.modules.hooks import attention_hook
from relumt.options import SITES
from tests.models.build import build, dictionary, sample

UNEVEN = [(7, 5), (3, 8), (1, 2)]
VARIANTS = [(f"--attention-{site}", name) for site in SITES for name in sorted(MECHANISMS)]
VARIANTS += [("--feedforward", name) for name in sorted(FEEDFORWARDS)]
every_variant = pytest.mark.parametrize("variant", VARIANTS, ids=" ".join)


def model_with(variant, seed=1):
    return build("mechanism_transformer", *variant, seed=seed).eval()


@every_variant
def test_incremental_decoding_is_full_decoding(variant):
    model, batch = model_with(variant), sample(UNEVEN)
    net_input = batch["net_input"]
    full = model(**net_input)[0]
    encoded = model.encoder(net_input["src_tokens"], net_input["src_lengths"])
    prefix, state = net_input["prev_output_tokens"], {}
    real = prefix.ne(1)
    for i in range(prefix.shape[1]):
        step = model.decoder(prefix[:, : i + 1], encoder_out=encoded, incremental_state=state)[0][:, 0]
        torch.testing.assert_close(step[real[:, i]], full[:, i][real[:, i]], rtol=1e-5, atol=1e-5)


@every_variant
def test_batch_neighbours_and_padding_change_nothing(variant):
    model = model_with(variant)
    together = sample(UNEVEN)
    logits = model(**together["net_input"])[0]
    for row, (source, target) in enumerate(UNEVEN):
        net_input = {
            "src_tokens": together["net_input"]["src_tokens"][row : row + 1, -source:],
            "src_lengths": torch.tensor([source]),
            "prev_output_tokens": together["net_input"]["prev_output_tokens"][row : row + 1, :target],
        }
        torch.testing.assert_close(model(**net_input)[0][0], logits[row, :target], rtol=1e-5, atol=1e-5)


@every_variant
@pytest.mark.parametrize("order", [[1, 0, 3, 3], [2, 3]], ids=["within-beams", "first-sentence-finished"])
@pytest.mark.parametrize("announced", [1, 2], ids=["", "beam-announced"])
@torch.no_grad()
def test_reordering_hypotheses_reorders_the_result(variant, order, announced):
    model, batch = model_with(variant), sample([(4, 6), (3, 6)])
    model.decoder.set_beam_size(announced)
    net_input, beams = batch["net_input"], torch.tensor([0, 0, 1, 1])
    source, lengths = net_input["src_tokens"][beams], net_input["src_lengths"][beams]
    prefix = sample([(4, 6)] * 4, seed=1)["net_input"]["prev_output_tokens"]
    encoded, order, state = model.encoder(source, lengths), torch.tensor(order), {}
    for i in range(3):
        model.decoder(prefix[:, : i + 1], encoder_out=encoded, incremental_state=state)
    model.decoder.reorder_incremental_state_scripting(state, order)
    encoded = model.encoder.reorder_encoder_out(encoded, order)
    step = model.decoder(prefix[order][:, :4], encoder_out=encoded, incremental_state=state)[0][:, 0]
    torch.testing.assert_close(step, model(source, lengths, prefix)[0][order, 3], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_equal_sources_that_were_taken_for_a_beam_part():
    """fairseq announces no beam of 1, so that an earlier one stays announced."""
    model, batch = model_with(("--attention", "relu")), sample([(4, 6), (3, 6)])
    model.decoder.set_beam_size(2)
    net_input, copies = batch["net_input"], torch.tensor([0, 0, 1, 1])
    source, lengths = net_input["src_tokens"][copies], net_input["src_lengths"][copies]
    prefix = sample([(4, 6)] * 4, seed=1)["net_input"]["prev_output_tokens"]
    encoded, state, rows = model.encoder(source, lengths), {}, torch.arange(4)
    for steps, kept in enumerate(([0, 1, 2, 3], [0, 1, 3], [0, 2], [1]), start=1):
        kept = torch.tensor(kept)
        model.decoder.reorder_incremental_state_scripting(state, kept)
        encoded, rows = model.encoder.reorder_encoder_out(encoded, kept), rows[kept]
        step = model.decoder(prefix[rows, :steps], encoder_out=encoded, incremental_state=state)[0][:, 0]
        expected = model(source[rows], lengths[rows], prefix[rows])[0][:, steps - 1]
        torch.testing.assert_close(step, expected, rtol=1e-5, atol=1e-5)


def test_dropouts_are_called_what_they_are_in_stock():
    names = [
        [(name, module.module_name) for name, module in of.named_modules() if isinstance(module, FairseqDropout)]
        for of in (build("mechanism_transformer"), build("transformer"))
    ]
    ours, stock = (dict(of) for of in names)
    assert {name: ours[name] for name in stock if name in ours} == {name: stock[name] for name in stock if name in ours}
    assert len(ours) >= 10


@torch.no_grad()
def test_a_cache_that_outgrows_its_room_changes_nothing():
    model, batch = model_with(("--attention-decoder", "relu")), sample([(5, CAPACITY_STEP + 9), (3, CAPACITY_STEP + 2)])
    net_input = batch["net_input"]
    full = model(**net_input)[0]
    encoded, state = model.encoder(net_input["src_tokens"], net_input["src_lengths"]), {}
    prefix = net_input["prev_output_tokens"]
    for i in range(prefix.shape[1]):
        step = model.decoder(prefix[:, : i + 1], encoder_out=encoded, incremental_state=state)[0][:, 0]
        real = prefix[:, i].ne(1)
        torch.testing.assert_close(step[real], full[:, i][real], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["softmax", "relu"])
def test_a_beam_search_finds_what_stock_does_or_what_unshared_keys_do(name, monkeypatch):
    model = model_with(("--attention", name))
    batch = sample(UNEVEN)

    def translations(of, beam=3):
        generator = SequenceGenerator([of], dictionary(), beam_size=beam, max_len_b=CAPACITY_STEP + 5)
        found = generator.generate([of], batch)
        return [[(h["tokens"].tolist(), round(h["score"].item(), 4)) for h in sentence] for sentence in found]

    shared = translations(model)
    if name == "softmax":
        other = build("transformer").eval()
        other.load_state_dict(model.state_dict())
    else:
        other = model_with(("--attention", name))
        other.decoder.set_beam_size = other.set_beam_size = lambda _: None
    rows = []
    step = MechanismAttention._cached_source

    def first_step(self, cache, *rest):
        first, found = not cache, step(self, cache, *rest)
        if first:
            rows.append(len(cache["prev_key"]))
        return found

    monkeypatch.setattr(MechanismAttention, "_cached_source", first_step)
    assert shared == translations(other)
    assert set(rows) == ({3 * len(UNEVEN)} if name == "relu" else set())
    rows.clear()
    assert translations(model, 1) == translations(model_with(("--attention", name)), 1)  # after a beam of 3
    rows.clear()
    assert translations(model) == shared and set(rows) == {len(UNEVEN)}


@every_variant
@torch.no_grad()
def test_weights_may_change_between_translations(variant):
    model, other = model_with(variant), model_with(variant, seed=2)
    net_input = sample(UNEVEN)["net_input"]
    for of in (model, other):
        encoded, state = of.encoder(net_input["src_tokens"], net_input["src_lengths"]), {}
        model.load_state_dict(of.state_dict())
        model.make_generation_fast_()
        for i in range(2):
            prefix = net_input["prev_output_tokens"][:, : i + 1]
            step = model.decoder(prefix, encoder_out=encoded, incremental_state=state)[0][:, 0]
        torch.testing.assert_close(step, of(**net_input)[0][:, 1], rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_weights_that_an_optimiser_of_fairseq_wrote_are_the_ones_that_translate():
    """It writes through `.data`, whose version is another than the parameter's."""
    model, net_input = build("reluformer").eval(), sample(UNEVEN)["net_input"]
    for _ in range(2):
        encoded = model.encoder(net_input["src_tokens"], net_input["src_lengths"])
        step = model.decoder(net_input["prev_output_tokens"][:, :1], encoder_out=encoded, incremental_state={})[0]
        torch.testing.assert_close(step[:, 0], model(**net_input)[0][:, 0], rtol=1e-5, atol=1e-5)
        for parameter in model.parameters():
            parameter.data.mul_(1.5)


class Counting(TorchDispatchMode):
    """Counts the operators that reach PyTorch's dispatcher, but for those that only look at a tensor otherwise."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.count += not func.is_view
        return result


def operators_of_a_step(model):
    """Of the third step of a beam, and of moving its hypotheses."""
    model.make_generation_fast_()
    model.decoder.set_beam_size(2)
    net_input, beams = sample([(4, 6), (4, 6)])["net_input"], torch.tensor([0, 0, 1, 1])
    encoded = model.encoder(net_input["src_tokens"][beams], net_input["src_lengths"][beams])
    prefix, state = net_input["prev_output_tokens"][beams], {}
    with torch.no_grad(), Counting() as counting:
        for i in range(3):
            counting.count = 0
            model.decoder.reorder_incremental_state_scripting(state, torch.tensor([1, 0, 3, 3]))
            model.decoder(prefix[:, : i + 1], encoder_out=encoded, incremental_state=state)
    return counting.count


@pytest.mark.parametrize("name", ["softmax", "relu"])
def test_a_step_of_decoding_takes_fewer_operators_than_stock(name):
    """On a GPU, and here with small models, the number of operators is what a step takes."""
    counted = operators_of_a_step(build("mechanism_transformer", "--attention", name))
    assert counted < operators_of_a_step(build("transformer"))


@every_variant
def test_saving_and_loading_gives_the_same_model(variant):
    batch = sample(UNEVEN)
    model = model_with(variant)
    other = model_with(variant, seed=2)
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(**batch["net_input"])[0], other(**batch["net_input"])[0])


@every_variant
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_models_train_without_nan(variant, dtype):
    model = model_with(variant).to(dtype).train()
    model(**sample(UNEVEN)["net_input"])[0].float().logsumexp(-1).sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is None or not parameter.grad.isnan().any()


@every_variant
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast_trains_without_nan_and_computes_attention_in_float32(variant, dtype):
    model = model_with(variant).train()
    computed_in = set()

    def listen(name, attention, result, mask):
        if result.row_stats is not None:
            computed_in.add(result.row_stats.weight_sum.dtype)

    with torch.autocast("cpu", dtype=dtype), attention_hook(model, listen):
        model(**sample(UNEVEN)["net_input"])[0].float().logsumexp(-1).sum().backward()
    assert computed_in <= {torch.float32}
    for parameter in model.parameters():
        assert parameter.grad is None or not parameter.grad.isnan().any()
