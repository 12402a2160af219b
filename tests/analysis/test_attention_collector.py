"""Attention measures of a test set do not depend on batching or padding, for every mechanism."""

import math
from dataclasses import is_dataclass
from statistics import mean

import pytest
import torch

from relumt.analysis.attention_maps import bertviz_arguments, load_maps, save_maps
from relumt.attention import MECHANISMS
from relumt.attention.metrics import attention_metrics as rows
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
