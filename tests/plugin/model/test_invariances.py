"""Properties of models with any attention mechanism and any feed-forward variant."""

import copy
from functools import cache
from itertools import cycle, islice

import pytest
import torch
from fairseq.modules.fairseq_dropout import FairseqDropout
from fairseq.sequence_generator import SequenceGenerator
from torch.utils._python_dispatch import TorchDispatchMode

from relumt.attention import GATES, MECHANISMS, QK_NORMS
from relumt.attention.feedforward import FEEDFORWARDS
from relumt.plugin.model.attention import MechanismAttention
from relumt.plugin.model.cache import CAPACITY_STEP
from relumt.plugin.model.hooks import attention_hook
from relumt.plugin.model.layers import Dropout
from tests.plugin.model.build import build, dictionary, sample

UNEVEN = [(7, 5), (3, 8), (1, 2)]
NUM_VARIANTS = max(len(MECHANISMS), len(FEEDFORWARDS))
VARIANTS = [
    ("--attention", mechanism, "--feedforward", feedforward)
    for mechanism, feedforward in islice(zip(cycle(sorted(MECHANISMS)), cycle(sorted(FEEDFORWARDS))), NUM_VARIANTS)
] + [("--attention", "softmax", "--attention-gate", gate) for gate in GATES]
VARIANTS += [("--attention", "relu_l1", "--attention-qk-norm", kind) for kind in QK_NORMS]
"""Models with each mechanism at all sites, each feed-forward variant, each gate and each QK norm at least once."""

all_variants = pytest.mark.parametrize("variant", VARIANTS, ids=lambda flags: "-".join(flags[1:4:2]))
RELU = ("--attention", "relu")


@cache
def cached_model(variant):
    return build("mechanism_transformer", *variant)


def build_variant(variant):
    """Return a new model, in evaluation mode."""
    return copy.deepcopy(cached_model(variant)).eval()


def decode(model, net_input, prefix, num_steps):
    """Return the logits of the last of `num_steps` steps of incremental decoding."""
    encoded, state = model.encoder(net_input["src_tokens"], net_input["src_lengths"]), {}
    for i in range(num_steps):
        step = model.decoder(prefix[:, : i + 1], encoder_out=encoded, incremental_state=state)[0][:, 0]
    return step, encoded, state


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def assert_incremental_decoding_equals_full_decoding(model, batch):
    net_input = batch["net_input"]
    full = model(**net_input)[0]
    encoded, state = model.encoder(net_input["src_tokens"], net_input["src_lengths"]), {}
    prefix = net_input["prev_output_tokens"]
    is_real = prefix.ne(1)
    for i in range(prefix.shape[1]):
        step = model.decoder(prefix[:, : i + 1], encoder_out=encoded, incremental_state=state)[0][:, 0]
        assert_close(step[is_real[:, i]], full[:, i][is_real[:, i]])


@all_variants
def test_incremental_decoding_equals_full_decoding(variant):
    """With gradients, for which the cache is copied instead of overwritten."""
    assert_incremental_decoding_equals_full_decoding(build_variant(variant), sample(UNEVEN))


@torch.no_grad()
def test_incremental_decoding_equals_full_decoding_when_the_cache_grows():
    batch = sample([(5, CAPACITY_STEP + 9), (3, CAPACITY_STEP + 2)])
    assert_incremental_decoding_equals_full_decoding(build_variant(RELU), batch)


@all_variants
def test_other_sentences_and_padding_do_not_change_the_output(variant):
    model = build_variant(variant)
    batch = sample(UNEVEN)["net_input"]
    logits = model(**batch)[0]
    for i, (source_length, target_length) in enumerate(UNEVEN):
        alone = {
            "src_tokens": batch["src_tokens"][i : i + 1, -source_length:],
            "src_lengths": torch.tensor([source_length]),
            "prev_output_tokens": batch["prev_output_tokens"][i : i + 1, :target_length],
        }
        assert_close(model(**alone)[0][0], logits[i, :target_length])


@torch.no_grad()
def assert_reordering_hypotheses_reorders_the_output(variant, order, announced_beam):
    model, batch = build_variant(variant), sample([(4, 6), (3, 6)])
    model.decoder.set_beam_size(announced_beam)
    net_input, sentences = batch["net_input"], torch.tensor([0, 0, 1, 1])
    source, lengths = net_input["src_tokens"][sentences], net_input["src_lengths"][sentences]
    prefix = sample([(4, 6)] * 4, seed=1)["net_input"]["prev_output_tokens"]
    order = torch.tensor(order)
    _, encoded, state = decode(model, {"src_tokens": source, "src_lengths": lengths}, prefix, 3)
    model.decoder.reorder_incremental_state_scripting(state, order)
    encoded = model.encoder.reorder_encoder_out(encoded, order)
    step = model.decoder(prefix[order][:, :4], encoder_out=encoded, incremental_state=state)[0][:, 0]
    assert_close(step, model(source, lengths, prefix)[0][order, 3])


@all_variants
def test_hypotheses_of_a_beam_share_their_source(variant):
    assert_reordering_hypotheses_reorders_the_output(variant, [1, 0, 3, 3], announced_beam=2)


@pytest.mark.parametrize("order", [[1, 0, 3, 3], [2, 3]], ids=["within-beams", "first-sentence-finished"])
@pytest.mark.parametrize("announced_beam", [1, 2])
def test_reordering_hypotheses_reorders_the_output(order, announced_beam):
    assert_reordering_hypotheses_reorders_the_output(RELU, order, announced_beam)


@pytest.mark.parametrize("orders", [([0, 1, 2, 3], [0, 1, 3], [0, 2], [1]), ([0, 1, 2, 3], [1, 2], [0])], ids=str)
@torch.no_grad()
def test_equal_sentences_that_were_mistaken_for_a_beam_can_finish_separately(orders):
    """fairseq does not announce a beam size of 1, so the beam size of an earlier search stays announced."""
    model, batch = build_variant(RELU), sample([(4, 6), (3, 6)])
    model.decoder.set_beam_size(2)
    net_input, copies = batch["net_input"], torch.tensor([0, 0, 1, 1])
    source, lengths = net_input["src_tokens"][copies], net_input["src_lengths"][copies]
    prefix = sample([(4, 6)] * 4, seed=1)["net_input"]["prev_output_tokens"]
    encoded, state, remaining = model.encoder(source, lengths), {}, torch.arange(4)
    for num_steps, kept in enumerate(orders, start=1):
        kept = torch.tensor(kept)
        model.decoder.reorder_incremental_state_scripting(state, kept)
        encoded, remaining = model.encoder.reorder_encoder_out(encoded, kept), remaining[kept]
        step = model.decoder(prefix[remaining, :num_steps], encoder_out=encoded, incremental_state=state)[0][:, 0]
        expected = model(source[remaining], lengths[remaining], prefix[remaining])[0][:, num_steps - 1]
        assert_close(step, expected)


def test_dropout_modules_have_the_names_of_fairseq():
    ours, stock = (
        {name: module for name, module in build(arch).named_modules() if isinstance(module, FairseqDropout)}
        for arch in ("mechanism_transformer", "transformer")
    )
    assert all(ours[name].module_name == stock[name].module_name for name in ours.keys() & stock.keys())
    assert len(ours) >= 10 and {type(module) for module in ours.values()} == {Dropout}


@pytest.mark.parametrize("name", ["softmax", "relu"])
def test_beam_search_with_shared_sources_finds_the_same_translations(name, monkeypatch):
    """The same as fairseq's Transformer with softmax, and the same as without sharing otherwise."""
    model = build_variant(("--attention", name))
    batch = sample(UNEVEN)

    def translate(model, beam=3):
        generator = SequenceGenerator([model], dictionary(), beam_size=beam, max_len_b=CAPACITY_STEP + 5)
        found = generator.generate([model], batch)
        return [[(h["tokens"].tolist(), round(h["score"].item(), 4)) for h in sentence] for sentence in found]

    shared = translate(model)
    if name == "softmax":
        reference = build("transformer").eval()
        reference.load_state_dict(model.state_dict())
    else:
        reference = build_variant(("--attention", name))
        reference.decoder.set_beam_size = reference.set_beam_size = lambda _: None
    cached_sources = []
    original = MechanismAttention._cached_source

    def spy(self, cache, *args):
        is_first_step, result = not cache, original(self, cache, *args)
        if is_first_step:
            cached_sources.append(len(cache["prev_key"]))
        return result

    monkeypatch.setattr(MechanismAttention, "_cached_source", spy)
    assert translate(reference) == shared
    assert set(cached_sources) == ({3 * len(UNEVEN)} if name == "relu" else set())
    assert translate(model, 1) == translate(build_variant(("--attention", name)), 1)  # after a beam of 3
    cached_sources.clear()
    assert translate(model) == shared and set(cached_sources) == {len(UNEVEN)}


@torch.no_grad()
def test_translation_uses_the_weights_that_an_optimizer_of_fairseq_updated():
    """fairseq's optimizers write through `.data`, which does not bump the version of the parameter."""
    model, net_input = build_variant(RELU), sample(UNEVEN)["net_input"]
    for _ in range(2):
        step, *_ = decode(model, net_input, net_input["prev_output_tokens"], 2)
        assert_close(step, model(**net_input)[0][:, 1])
        for parameter in model.parameters():
            parameter.data.mul_(1.5)


class OperatorCounter(TorchDispatchMode):
    """Counts the operators that reach PyTorch's dispatcher, except views."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.count += not func.is_view
        return result


def count_operators_of_a_step(model):
    """Return the number of operators in the third step of a beam search, including the reordering of hypotheses."""
    model.make_generation_fast_()
    model.decoder.set_beam_size(2)
    net_input, sentences = sample([(4, 6), (4, 6)])["net_input"], torch.tensor([0, 0, 1, 1])
    encoded = model.encoder(net_input["src_tokens"][sentences], net_input["src_lengths"][sentences])
    prefix, state = net_input["prev_output_tokens"][sentences], {}
    with torch.no_grad(), OperatorCounter() as counter:
        for i in range(3):
            counter.count = 0
            model.decoder.reorder_incremental_state_scripting(state, torch.tensor([1, 0, 3, 3]))
            model.decoder(prefix[:, : i + 1], encoder_out=encoded, incremental_state=state)
    return counter.count


@pytest.mark.parametrize("name", ["softmax", "relu"])
def test_a_decoding_step_needs_fewer_operators_than_in_fairseq(name):
    """The number of operators determines the time of a step on a GPU, and of small models on a CPU; -rP prints it."""
    ours = count_operators_of_a_step(build("mechanism_transformer", "--attention", name))
    fairseqs = count_operators_of_a_step(build("transformer"))
    print(f"operators of a step: fairseq {fairseqs}, {name} {ours}")
    assert ours < fairseqs


def train_step(model):
    """Run one forward and backward pass, and check that every parameter has a gradient without NaN.

    PyTorch's DistributedDataParallel fails at the next forward pass if a parameter has none.
    """
    model(**sample(UNEVEN)["net_input"])[0].float().logsumexp(-1).sum().backward()
    for name, parameter in model.named_parameters():
        assert not parameter.grad.isnan().any(), name


@all_variants
def test_half_precision_models_train_without_nan(variant):
    train_step(build_variant(variant).to(torch.float16).train())


@all_variants
def test_autocast_trains_without_nan_and_computes_attention_in_float32(variant):
    model, dtypes = build_variant(variant).train(), set()

    def collect_dtype(name, attention, result, mask):
        dtypes.add(result.output.dtype)
        if result.row_stats is not None:
            dtypes.add(result.row_stats.weight_sum.dtype)

    with torch.autocast("cpu", dtype=torch.float16), attention_hook(model, collect_dtype):
        train_step(model)
    assert dtypes == {torch.float32}
