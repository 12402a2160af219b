"""relumt's beam search against fairseq's, and the largest elements of long rows."""

import copy
from argparse import Namespace
from functools import cache, partial
from itertools import pairwise

import pytest
import torch
from fairseq.models import FairseqIncrementalDecoder
from fairseq.search import DiverseBeamSearch, Sampling
from fairseq.sequence_generator import SequenceGenerator

from relumt.errors import AttemptFailedError
from relumt.plugin.model.hooks import attention_hook
from relumt.plugin.search.generator import CHUNK, BeamSearchGenerator, topk_by_chunks
from tests.plugin.model.build import build, dictionary, sample, task

WORDS = 300
SEEDS = (1, 2)
LENGTHS = [(7, 5), (3, 8), (1, 2), (7, 3), (5, 5), (2, 9), (6, 6)]


SEARCHES = {
    "defaults": {},
    "greedy": {"beam_size": 1},
    "wide": {"beam_size": 12, "len_penalty": 0.6},
    "short": {"max_len_b": 4, "min_len": 3},
    "relative length": {"max_len_a": 1.5, "max_len_b": 2},
    "unnormalized": {"normalize_scores": False, "temperature": 0.7},
    "unknown words": {"unk_penalty": 2.0, "tokens_to_suppress": ("w3", "w4")},
    "empty translations": {"min_len": 0, "len_penalty": 2.0},
    "another first symbol": {"call": {"bos_token": 5}},
    **{mechanism: {"mechanism": mechanism} for mechanism in ("relu", "rela_g", "sigmoid")},
}
"""Options of the generator, `call` of `generate`, and the mechanism of the model."""


def build_model(seed, *flags):
    """Return a new model whose translations end at different steps: without training they would hardly ever end."""
    return copy.deepcopy(cached_model(seed, *flags))


@cache
def cached_model(seed, *flags):
    model = build("mechanism_transformer", *flags, words=WORDS, seed=seed).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() == 2 and "embed" not in name:
                weight.mul_(2)
        model.decoder.layers[-1].final_layer_norm.bias.fill_(0.5)
        model.decoder.output_projection.weight[dictionary().eos()] += 0.9
    return model


def translate(generator_class, model, batch, call=(), **options):
    options = {"beam_size": 4, "max_len_b": 12} | options
    generator = generator_class([model], dictionary(WORDS), **options)
    return generator.generate([model], batch, **dict(call))


def is_tie(hypotheses):
    """Whether two scores are so close that rounding decides their order."""
    scores = [hypothesis["score"].item() for hypothesis in hypotheses]
    return any(abs(a - b) < 1e-5 for a, b in pairwise(scores))


def assert_same_hypotheses(found, expected):
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        if is_tie(theirs):
            continue
        assert [h["tokens"].tolist() for h in ours] == [h["tokens"].tolist() for h in theirs]
        for a, b in zip(ours, theirs, strict=True):
            assert a.keys() == b.keys()
            for name in ("score", "positional_scores"):
                assert a[name].dtype == b[name].dtype
                torch.testing.assert_close(a[name], b[name], rtol=0, atol=1e-4)


@pytest.fixture(autouse=True)
def count_searches(monkeypatch):
    """Count the searches that are relumt's."""
    searches = []
    search = BeamSearchGenerator._search

    def spy(self, *args):
        searches.append(1)
        return search(self, *args)

    monkeypatch.setattr(BeamSearchGenerator, "_search", spy)
    return searches


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("options", SEARCHES.values(), ids=SEARCHES)
def test_the_hypotheses_are_those_of_fairseq(options, seed, count_searches):
    mechanism, options = options.get("mechanism", "softmax"), {k: v for k, v in options.items() if k != "mechanism"}
    model, batch = build_model(seed, "--attention", mechanism), sample(LENGTHS, seed)
    found, expected = (translate(cls, model, batch, **options) for cls in (BeamSearchGenerator, SequenceGenerator))
    assert_same_hypotheses(found, expected)
    assert count_searches == [1]
    if not options and mechanism == "softmax":
        lengths = {tuple(len(h["tokens"]) for h in hypotheses) for hypotheses in expected}
        assert len(lengths) > 2 and min(map(max, lengths)) < 13, "a sentence should leave the batch before others"


def test_equal_sentences_have_equal_hypotheses(count_searches):
    """The cross-attention takes equal sources for one source of a beam."""
    model, batch = build_model(1), sample([(5, 5)] * 8)
    tokens = batch["net_input"]["src_tokens"]
    tokens[:] = tokens[:1]
    found = translate(BeamSearchGenerator, model, batch)
    assert_same_hypotheses(found, translate(SequenceGenerator, model, batch))
    assert len({tuple(h["tokens"].tolist() for h in hypotheses).__repr__() for hypotheses in found}) == 1


@pytest.mark.parametrize("flags", [{}, {"print_alignment": "hard"}], ids=["default", "alignment"])
def test_a_task_searches_with_it_unless_alignments_are_wanted(flags):
    generator = task(WORDS).build_generator([build_model(1)], Namespace(**flags))
    assert isinstance(generator, SequenceGenerator)
    assert isinstance(generator, BeamSearchGenerator) != bool(flags)


def test_alignments_need_no_preparation_of_the_model():
    """Validation with --eval-bleu-args '{"print_alignment": "hard"}' and `from_pretrained` do not prepare it."""
    model = build_model(1)
    generator = task(WORDS).build_generator([model], Namespace(beam=2, max_len_b=5, print_alignment="hard"))
    with torch.no_grad():
        (hypotheses,) = generator.generate([model], sample([(4, 3)]))
    assert all(link[0] < 5 for link in hypotheses[0]["alignment"]) and len(hypotheses[0]["alignment"]) > 0


UNSUPPORTED = {
    "prefix": ({}, {"prefix_tokens": torch.tensor([[5]] * len(LENGTHS))}),
    "sampling": ({"search_strategy": Sampling(dictionary(WORDS))}, {}),
    "diverse beams": ({"search_strategy": DiverseBeamSearch(dictionary(WORDS), 2, 0.5)}, {}),
    "repeated n-grams": ({"no_repeat_ngram_size": 2}, {}),
    "length of the source": ({"match_source_len": True}, {}),
    "wide beam": ({"beam_size": 200}, {}),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_other_options_are_left_to_fairseq(name, count_searches):
    model, batch = build_model(1), sample(LENGTHS)
    options, call = UNSUPPORTED[name]
    results = []
    for generator in (BeamSearchGenerator, SequenceGenerator):
        torch.manual_seed(1)
        results.append(translate(generator, model, batch, call, **options))
    assert_same_hypotheses(*results)
    assert not count_searches


def test_other_models_are_left_to_fairseq(count_searches):
    batch = sample(LENGTHS)
    translate(BeamSearchGenerator, build("transformer", words=WORDS).eval(), batch)
    adaptive = ("--criterion", "adaptive_loss", "--adaptive-softmax-cutoff", "50,100")
    translate(BeamSearchGenerator, build("mechanism_transformer", *adaptive, words=WORDS).eval(), batch)
    model = build_model(1)
    with_language_model = BeamSearchGenerator([model], dictionary(WORDS), lm_model=torch.nn.Identity())
    assert not with_language_model.supports(batch["net_input"])
    BeamSearchGenerator([model, build_model(2)], dictionary(WORDS), max_len_b=5).generate([], batch)
    with attention_hook(model, lambda *_: None):
        translate(BeamSearchGenerator, model, batch)
    model.make_generation_fast_(retain_dropout=True)
    translate(BeamSearchGenerator, model, batch)
    assert not count_searches


def test_hooks_on_projections_act_at_every_step(count_searches):
    model, batch = build_model(1), sample(LENGTHS)
    before = translate(BeamSearchGenerator, model, batch)
    calls = []
    for layer in model.decoder.layers:
        layer.self_attn.v_proj.register_forward_hook(lambda module, args, output: calls.append(1) or output * 0)
    found, expected = (translate(generator, model, batch) for generator in (BeamSearchGenerator, SequenceGenerator))
    assert_same_hypotheses(found, expected)
    assert len(calls) > 2 * len(model.decoder.layers)
    assert [best["tokens"].tolist() for best, *_ in found] != [best["tokens"].tolist() for best, *_ in before]


def test_a_model_without_finite_probabilities_is_refused():
    model = build_model(1)
    with torch.no_grad():
        model.decoder.output_projection.weight.fill_(torch.nan)
    with pytest.raises(AttemptFailedError, match="7 of 7 sentences have no translation"):
        translate(BeamSearchGenerator, model, sample(LENGTHS))


def test_hypotheses_without_finite_probabilities_lose():
    """Those that continue with a word whose embedding is NaN; the output projection is another matrix."""
    model, batch = build_model(1), sample(LENGTHS)
    before = translate(SequenceGenerator, model, batch)
    word = next(int(token) for best, *_ in before for token in best["tokens"] if token > 3)
    with torch.no_grad():
        model.decoder.embed_tokens.weight[word] = torch.nan
    assert_same_hypotheses(*(translate(kind, model, batch) for kind in (BeamSearchGenerator, SequenceGenerator)))


class StateOfAUser(torch.nn.Module):
    """A module that keeps which hypothesis each row continues."""

    def __init__(self):
        super().__init__()
        self.orders = []

    def reorder_incremental_state(self, incremental_state, new_order):
        self.orders.append(new_order.tolist())


def test_states_of_other_modules_are_reordered(count_searches):
    models = [build_model(1), build_model(1)]
    for model in models:
        model.decoder.own = StateOfAUser()
    models[1].decoder.reorder_incremental_state_scripting = partial(
        FairseqIncrementalDecoder.reorder_incremental_state_scripting, models[1].decoder
    )
    results = [translate(BeamSearchGenerator, model, sample(LENGTHS)) for model in models]
    assert_same_hypotheses(*results)
    assert models[0].decoder.own.orders == models[1].decoder.own.orders != []
    assert not count_searches


@pytest.mark.parametrize("columns", [CHUNK, 10 * CHUNK, 20 * CHUNK, 20 * CHUNK + 1, 21 * CHUNK - 1])
@pytest.mark.parametrize("seed", range(3))
def test_the_largest_are_those_of_torch(columns, seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.stack([torch.randperm(columns, generator=generator) for _ in range(4)]).float()
    x[1, : columns // 2] = -torch.inf
    x[2] = -x[2].sort().values  # the largest are in the first chunks
    x[3] = x[3].sort().values  # the largest are in the last chunk
    for actual, expected in zip(topk_by_chunks(x, 10), x.topk(10), strict=True):
        assert torch.equal(actual, expected)


def test_indices_are_valid_if_too_few_elements_are_finite():
    x = torch.full((1, 20 * CHUNK + 1), -torch.inf)
    x[0, -1] = 1
    largest, indices = topk_by_chunks(x, 4)
    assert largest[0].tolist() == [1, *[-torch.inf] * 3]
    assert indices[0, 0] == 20 * CHUNK and indices.max() < x.shape[1]
