"""Measures of attention: worked examples and torch.distributions; batching and padding change nothing."""

import math
from dataclasses import is_dataclass
from statistics import mean

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relumt.analysis.attention_maps import bertviz_arguments, load_maps, save_maps
from relumt.attention import MECHANISMS
from relumt.attention.metrics import attention_metrics as rows
from relumt.attention.metrics.head_diversity import jensen_shannon_divergence, normalize_with_dummy, softmax_with_dummy
from tests.analysis.cases import maps_of, measured, one_by_one
from tests.plugin.model.build import build, sample

PAIRS = [(7, 5), (3, 8), (1, 2), (6, 6), (12, 3)]


def numbers(result):
    """Return every number in a result, in order; None as NaN."""
    if is_dataclass(result):
        result = vars(result)
    if isinstance(result, dict):
        return [x for value in result.values() for x in numbers(value)]
    if isinstance(result, list):
        return [x for value in result for x in numbers(value)]
    return [] if isinstance(result, str) else [math.nan if result is None else float(result)]


@pytest.mark.parametrize("name", [name for name, spec in MECHANISMS.items() if spec(1, 1).has_weights])
def test_batches_order_and_padding_change_nothing(name):
    model = build("mechanism_transformer", "--attention", name).eval().double()
    together = measured(model, [sample(PAIRS)])
    apart = measured(model, reversed(one_by_one(PAIRS)))
    assert together.keys() == apart.keys() and len(together) == 6
    assert numbers(together) == pytest.approx(numbers(apart), abs=1e-6, nan_ok=True)


def test_softmax_has_no_zeros_no_null_rows_and_shares_that_grow():
    model = build("mechanism_transformer").eval()
    result = measured(model, [sample(PAIRS)])
    for measures in result.values():
        assert measures.sparsity == measures.null_rate == [0.0, 0.0]
        shares = [measures.top_share[p][0] for p in ("0.1", "1", "1.1", "10", "50")]
        assert shares == sorted(shares) and 0 < shares[0] < 1
        assert list(measures.head_diversity) == ["normalized"]
    assert result["encoder.layers.0.self_attn"].num_queries == sum(source for source, _ in PAIRS)
    assert result["decoder.layers.1.encoder_attn"].num_queries == sum(target for _, target in PAIRS)
    assert result["decoder.layers.1.encoder_attn"].distance is None


def test_the_variance_of_null_rates_over_heads():
    model = build("mechanism_transformer", "--attention", "rela_i").eval()
    measures = measured(model, [sample(PAIRS)])["encoder.layers.0.self_attn"]
    first, second = measures.null_rate
    assert first != second  # of two numbers a sample's variance is half the square of their difference
    assert measures.null_rate_variance == pytest.approx((first - second) ** 2 / 2)
    one_head = build("mechanism_transformer", "--attention", "rela_i", "--encoder-attention-heads", "1").eval()
    assert measured(one_head, [sample(PAIRS)])["encoder.layers.0.self_attn"].null_rate_variance is None


def test_null_rows_have_entropy_0_and_are_left_out_of_non_null_measures():
    model = build("mechanism_transformer", "--attention", "rela_i").eval()
    for measures in measured(model, [sample(PAIRS)]).values():
        for head, null in enumerate(measures.null_rate):
            entropy, live = measures.entropy[head], measures.entropy_non_null[head]
            assert live is None if null == 1 else entropy == pytest.approx(live * (1 - null))
            sparsity = measures.sparsity[head]  # of a null row 1
            assert null == 1 or sparsity == pytest.approx(null + (1 - null) * measures.sparsity_non_null[head])


@pytest.mark.parametrize("name", ["softmax", "rela_i"])
def test_sink_rates_agree_with_loops_over_the_maps(name):
    model, batch = build("mechanism_transformer", "--attention", name).eval(), sample(PAIRS)
    sentences = maps_of(model, batch, len(PAIRS))
    for module, measures in measured(model, [batch]).items():
        shares, uniform = [[], []], [[], []]
        for sentence in sentences:
            for head, weights in enumerate(sentence.maps[module].tolist()):
                for query, row in enumerate(weights):
                    num_visible = query + 1 if measures.site == "decoder" else len(row)
                    if num_visible == 1:
                        continue
                    if sum(row) > 1e-6:
                        uniform[head].append(1 / num_visible)
                        shares[head].append(row[0] / sum(row))
        assert measures.sink_rate == pytest.approx([sum(own) / len(own) if own else None for own in shares])
        assert measures.sink_rate_uniform == pytest.approx(mean(sum(own) / len(own) for own in uniform if own))


def test_maps_have_no_padding_and_fit_bertviz(tmp_path):
    model = build("mechanism_transformer", "--attention", "relu", "--relu-initial-score", "0").eval()
    save_maps(maps_of(model, sample(PAIRS), 3), tmp_path / "maps.pt")
    sentences = load_maps(tmp_path / "maps.pt")
    assert [sentence.index for sentence in sentences] == [0, 1, 2]
    for sentence, (source, target) in zip(sentences, PAIRS, strict=False):
        assert (len(sentence.source), len(sentence.target)) == (source, target)
        assert sentence.decoder_input == ["</s>", *sentence.target[:-1]] and sentence.target[-1] == "</s>"
        assert sentence.maps["decoder.layers.0.encoder_attn"].shape == (2, target, source)
    viewed = bertviz_arguments(sentences[0])
    assert [len(viewed[f"{site}_attention"]) for site in ("encoder", "decoder", "cross")] == [2, 2, 2]
    assert viewed["cross_attention"][0].shape == (1, 2, 5, 7) and len(viewed["encoder_tokens"]) == 7
    # the same weights as a model gives that reads the sentence alone
    alone = measured(model, one_by_one(PAIRS)[:1])
    own = viewed["encoder_attention"][0][0].transpose(0, 1)
    expected = rows.sparsity(own, torch.full((7,), 7)).mean(0).tolist()
    assert alone["encoder.layers.0.self_attn"].sparsity == pytest.approx(expected)


ROW = torch.tensor([[[0.0, 2.0, 0.0, 6.0, 0.0]]])  # [1, 1, 5], its last key not visible
SEEN = torch.tensor([4])
NOTHING = torch.zeros(1, 1, 5)


def test_a_row_by_hand():
    assert rows.sparsity(ROW, SEEN).item() == 0.5
    assert not rows.is_null_row(ROW).item()
    assert rows.entropy(ROW).item() == pytest.approx(-(0.25 * math.log(0.25) + 0.75 * math.log(0.75)))
    shares = rows.top_share(ROW, SEEN, [1, 12.5, 25, 30, 50, 100]).flatten().tolist()
    assert shares == pytest.approx([0.03, 0.375, 0.75, 0.8, 1.0, 1.0])  # of 4 keys: 0.04, 0.5, 1, 1.2, 2, 4
    position = torch.tensor([1])
    assert rows.mean_distance(ROW, position).item() == pytest.approx(0.75 * 2)
    assert rows.distant_share(ROW, position, 1).item() == pytest.approx(0.75)
    assert rows.distant_share(ROW, position, 2).item() == 0
    chosen = torch.tensor([[True, True, False, False, True]])
    assert rows.mean_over_keys(ROW, chosen).item() == pytest.approx(0.25)


def test_the_sink_rate_by_hand():
    visible = torch.tensor([[False, True, True, True, False]])  # padding on the left, and a hidden key
    assert rows.sink_rate(ROW, visible).item() == pytest.approx(0.25)
    assert rows.uniform_sink_rate(visible.sum(-1)).item() == pytest.approx(1 / 3)
    for undefined in (torch.tensor([[False, True, False, False, False]]), torch.zeros(1, 5, dtype=torch.bool)):
        assert rows.sink_rate(ROW, undefined).isnan() and rows.uniform_sink_rate(undefined.sum(-1)).isnan()
    assert rows.sink_rate(NOTHING, visible).isnan()


def test_a_null_row():
    assert rows.sparsity(NOTHING, SEEN).item() == 1
    assert rows.is_null_row(NOTHING).item() and rows.entropy(NOTHING).item() == 0
    assert rows.top_share(NOTHING, SEEN, [10]).isnan().all()
    assert rows.mean_distance(NOTHING, torch.tensor([0])).isnan().all()


def lorenz_by_loops(weights, percent):
    """Return the weight on the top `percent` % of the visible `weights`, a fraction of a key counting as a fraction."""
    left, share = len(weights) * percent / 100, 0.0
    for weight in sorted(weights, reverse=True):
        share += weight * min(left, 1)
        left -= min(left, 1)
    return share / sum(weights)


@given(st.integers(1, 40), st.integers(0, 8), st.integers(0, 2**31))
def test_top_shares_of_any_percentage_agree_with_a_loop_over_the_keys(visible, hidden, seed):
    generator = torch.Generator().manual_seed(seed)
    seen = torch.randn(3, 2, visible, generator=generator, dtype=torch.float64).relu() + 1e-3
    weights = torch.cat([seen, seen.new_zeros(3, 2, hidden)], dim=-1)
    percents = [0.1, 0.2, 1.5, 7, 33.3, 50, 99.9, 100]
    shares = rows.top_share(weights, torch.full((3,), visible), percents)
    for percent, found in zip(percents, shares.tolist(), strict=True):
        for row, by_head in zip(seen.tolist(), found, strict=True):
            assert by_head == pytest.approx([lorenz_by_loops(head, percent) for head in row], abs=1e-12)


def test_divergence_is_0_for_equal_heads_and_log_h_for_disjoint_ones():
    one = torch.tensor([0.5, 0.5, 0.0, 0.0])
    assert jensen_shannon_divergence(one.expand(1, 3, 4)).item() == pytest.approx(0, abs=1e-7)
    assert jensen_shannon_divergence(torch.eye(4)[None]).item() == pytest.approx(math.log(4))
    # H(3/4, 1/4) − (0 + log 2)/2
    mixed = torch.tensor([[[1.0, 0.0], [0.5, 0.5]]])
    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) - math.log(2) / 2
    assert jensen_shannon_divergence(mixed).item() == pytest.approx(expected)


def test_renormalized_rows_are_distributions_and_null_rows_attend_to_the_dummy():
    weights = torch.tensor([[[0.0, 4.0, 0.0], [0.0, 0.0, 0.0]]])
    mask = torch.tensor([[True, True, False]])
    p = softmax_with_dummy(weights, mask, 0.5)
    e2 = math.exp(2)
    assert p[0, 0].tolist() == pytest.approx([1 / (1 + e2), e2 / (1 + e2), 0, 0])
    assert p[0, 1].tolist() == [0, 0, 0, 1]
    normalized = normalize_with_dummy(torch.tensor([[[0.5, 1.5, 0.0], [0.0, 0.0, 0.0]]]))
    assert normalized.tolist() == [[[0.25, 0.75, 0, 0], [0, 0, 0, 1]]]


def divergence_by_loops(heads):
    """Return JS of the normalized rows of some heads; a head without weight attends to nothing, as one more key."""
    distributions = []
    for weights in heads:
        total = sum(weights)
        distributions.append([w / total for w in weights] + [0.0] if total > 1e-6 else [0.0] * len(weights) + [1.0])
    mean = [sum(column) / len(heads) for column in zip(*distributions, strict=True)]
    entropies = [-sum(p * math.log(p) for p in row if p > 0) for row in (mean, *distributions)]
    return entropies[0] - sum(entropies[1:]) / len(heads)


@given(st.integers(1, 12), st.integers(1, 5), st.floats(1e-3, 1e3), st.integers(0, 2**31))
def test_the_divergence_of_normalized_weights_agrees_with_a_loop_and_ignores_their_scale(keys, heads, scale, seed):
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(4, heads, keys, generator=generator, dtype=torch.float64).relu()  # some rows are null
    found = jensen_shannon_divergence(normalize_with_dummy(weights))
    assert found.tolist() == pytest.approx([divergence_by_loops(row) for row in weights.tolist()], abs=1e-12)
    is_null = weights.sum(-1) <= 1e-6
    if ((weights * scale).sum(-1) <= 1e-6).equal(is_null):
        torch.testing.assert_close(jensen_shannon_divergence(normalize_with_dummy(weights * scale)), found)


def test_disjoint_heads_with_small_weights_differ_only_if_the_weights_are_normalized():
    """The softmax of weights as small as ReLUFormer's, about 1/n, is uniform: heads that share no key seem alike."""
    weights = torch.eye(8)[None, :4] / 50
    visible = torch.ones(1, 8, dtype=torch.bool)
    assert jensen_shannon_divergence(normalize_with_dummy(weights)).item() == pytest.approx(math.log(4))
    assert jensen_shannon_divergence(softmax_with_dummy(weights, visible, 1.0)).item() == pytest.approx(0, abs=1e-4)
