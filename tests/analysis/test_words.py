"""Words of subwords: indices, texts and merged weights against loops, for every site of a model."""

from statistics import mean

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relumt.analysis.units import BatchReader, is_stop_word, load_stop_words
from relumt.attention.metrics.head_diversity import jensen_shannon_divergence
from relumt.attention.metrics.words import NO_WORD, join_words, merge_to_words, merge_visibility, word_indices
from tests.analysis.cases import maps_of, measured
from tests.plugin.model.build import build, sample, task

KINDS = ["softmax", "entmax15", "relu", "rela_i", "rela_g_gelu"]
"""Mechanisms with and without zeros, null rows, weights that sum to 1, and negative ones."""
PAIRS = [(7, 5), (3, 8), (1, 2), (6, 6), (12, 3)]


@pytest.mark.parametrize(
    ("tokens", "subwords", "indices", "words"),
    [
        (["a@@", "b", "c", "d@@", "e@@", "f"], "subword-nmt", [0, 0, 1, 2, 2, 2], ["ab", "c", "def"]),
        (["▁a", "b", "▁c", "▁", "d"], "sentencepiece", [0, 0, 1, 2, 2], ["ab", "c", "d"]),
        (["a@@", "▁b"], "none", [0, 1], ["a@@", "▁b"]),
        ([], "subword-nmt", [], []),
        (["▁a", "b", "<unk>", "c", "</s>"], "sentencepiece", [0, 0, 1, 2, 3], ["ab", "<unk>", "c", "</s>"]),
        (["a@@", "<unk>", "b@@", "</s>"], "subword-nmt", [0, 1, 2, 3], ["a", "<unk>", "b", "</s>"]),
    ],
)  # fmt: skip
def test_words_of_subwords(tokens, subwords, indices, words):
    assert word_indices(tokens, subwords) == indices
    assert join_words(tokens, subwords) == words


def merge_by_loops(weights, query_words, key_words):
    """Return weights of words from weights [T][S] of subwords: sums over keys, means over queries."""
    queries, keys = ([w for w in words if w >= 0] for words in (query_words, key_words))
    merged = [[0.0] * (max(keys) + 1) for _ in range(max(queries) + 1)]
    for row, query in zip(weights, query_words, strict=True):
        for weight, key in zip(row, key_words, strict=True):
            if query >= 0 and key >= 0:
                merged[query][key] += weight / queries.count(query)
    return merged


def word_sequences(length):
    return st.lists(st.booleans(), min_size=length, max_size=length).map(
        lambda starts: [sum(starts[1 : i + 1]) for i in range(length)]
    )


@given(word_sequences(7), word_sequences(9), st.integers(0, 2**31), st.integers(0, 3))
def test_merged_weights_agree_with_a_loop(query_words, key_words, seed, padding):
    weights = torch.rand(2, 7, 9, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    key_words = [NO_WORD] * padding + key_words[padding:]  # fairseq pads sources on the left
    key_words = [w if w < 0 else w - key_words[padding] for w in key_words]
    merged = merge_to_words(weights, torch.tensor(query_words), torch.tensor(key_words))
    for head, found in zip(weights.tolist(), merged.tolist(), strict=True):
        for row, expected in zip(found, merge_by_loops(head, query_words, key_words), strict=True):
            assert row == pytest.approx(expected, abs=1e-12)


@given(word_sequences(8))
def test_a_word_sees_the_words_up_to_and_including_its_own_in_causal_attention(words):
    visible = torch.ones(8, 8, dtype=torch.bool).tril()
    merged = merge_visibility(visible, torch.tensor(words), torch.tensor(words))
    assert merged.equal(torch.ones_like(merged).tril())


@pytest.mark.parametrize(
    ("word", "language", "expected"),
    [
        ("The", "en", True), ("&apos;s", "en", True), ("'t", "en", True), ("don", "en", True), ("(and", "en", True),
        ("man", "en", False), ("group", "en", False), (".", "en", False), ("</s>", "en", False),
        ("Einem", "de", True), ("über", "de", True), ("Mann", "de", False),
    ],
)  # fmt: skip
def test_stop_words(word, language, expected):
    assert is_stop_word(word, load_stop_words(language)) == expected


def test_every_language_of_the_papers_corpora_has_stop_words_and_others_have_none():
    assert all(load_stop_words(language) for language in ("de", "en", "fr", "fi", "ro", "zh", "pt-BR"))
    assert load_stop_words("xx") == load_stop_words("") == frozenset()


def test_a_language_without_stop_words_has_no_share_of_them():
    model, batch, found = build("mechanism_transformer").eval(), sample(PAIRS), task()
    found.cfg.target_lang = "xx"
    reader = BatchReader(found, "none")
    assert reader.languages_without_stop_words == ["xx"]
    for layer in measured(model, [batch], reader).values():
        assert (layer.stop_word_share is None) == (layer.stop_word_rate is None) == (layer.site == "decoder")


def subword_task():
    """Return a task with subwords: "w0" to "w9" end a word, "w10@@" to "w15@@" do not; 4 tokens are stop words."""
    found = task()
    for dictionary, stop_words in ((found.src_dict, ("der", "die@@")), (found.tgt_dict, ("the", "is@@"))):
        names = {"w1": stop_words[0], "w12": stop_words[1]} | {f"w{i}": f"w{i}@@" for i in (10, 11, 13, 14)}
        dictionary.symbols[:] = [names.get(symbol, symbol) for symbol in dictionary.symbols]
    return found


def measure_by_loops(sentences, module, site):
    """Return by head, from maps of subwords, the sums over words of sparsity, null rows, stop-word share, distance and
    stop-word rate, and the number of words."""
    totals = [[0.0, 0.0, 0.0, 0.0, 0.0, 0] for _ in range(2)]
    stop_words = load_stop_words("en" if site == "decoder" else "de")
    for sentence in sentences:
        keys = sentence.decoder_input if site == "decoder" else sentence.source
        queries = sentence.target if site == "cross" else keys
        indices = [word_indices(tokens, "subword-nmt") for tokens in (queries, keys)]
        is_stop = [is_stop_word(word, stop_words) for word in join_words(keys, "subword-nmt")]
        for total, own in zip(totals, sentence.maps[module].tolist(), strict=True):
            for query, row in enumerate(merge_by_loops(own, *indices)):
                visible = row[: query + 1] if site == "decoder" else row
                weight = sum(visible)
                total[0] += sum(w == 0 for w in visible) / len(visible)
                total[5] += 1
                if weight <= 1e-6:
                    total[1] += 1
                    continue
                total[2] += sum(w for w, stop in zip(row, is_stop, strict=True) if stop) / weight
                total[3] += sum(w * abs(query - key) for key, w in enumerate(row)) / weight
                total[4] += sum(is_stop[: len(visible)]) / len(visible)
    return totals


@pytest.mark.parametrize("name", KINDS[:-1])
def test_measures_of_words_agree_with_loops_over_the_maps_of_subwords(name):
    found, batch = subword_task(), sample(PAIRS)
    model = build("mechanism_transformer", "--attention", name).eval().double()
    reader = BatchReader(found, "subword-nmt", "words")
    layers, nulls = measured(model, [batch], reader), measured(model, [batch], reader, null_rates_only=True)
    sentences = maps_of(model, batch, len(PAIRS), found)
    for module, layer in layers.items():
        totals = measure_by_loops(sentences, module, layer.site)
        queries = totals[0][5]
        assert layer.num_queries == queries
        assert layer.sparsity == pytest.approx([t[0] / queries for t in totals], abs=1e-6)
        assert layer.null_rate == pytest.approx([t[1] / queries for t in totals], abs=1e-6)
        assert nulls[module].null_rate == pytest.approx(layer.null_rate)
        for values, index in ((layer.stop_word_share, 2), (layer.distance, 3)):
            means = [t[index] / (queries - t[1]) if queries > t[1] else None for t in totals]
            assert (values is None and layer.site == "cross") or values == pytest.approx(means, abs=1e-5)
        rates = [t[4] / (queries - t[1]) for t in totals if queries > t[1]]  # of the same rows as the share
        assert layer.stop_word_rate == pytest.approx(mean(rates), abs=1e-5)


@pytest.mark.parametrize("name", KINDS)
def test_weights_that_sum_to_one_have_one_diversity_and_it_is_that_of_the_weights(name):
    """Normalizing changes nothing for softmax and its sparse relatives, so [RL]'s values of them are ours."""
    model, batch = build("mechanism_transformer", "--attention", name).eval().double(), sample([(6, 6), (6, 6)])
    attention = model.encoder.layers[0].self_attn
    diversity = measured(model, [batch])["encoder.layers.0.self_attn"].head_diversity
    if attention.mechanism.weights_sum_to_one:
        weights = [sentence.maps["encoder.layers.0.self_attn"] for sentence in maps_of(model, batch, 2)]
        raw = jensen_shannon_divergence(torch.cat(weights, 1).transpose(0, 1)).mean().item()
        assert diversity == {"normalized": pytest.approx(raw, abs=1e-6)}
    else:
        assert set(diversity) in ({"normalized", "1.0", "0.5", "0.25", "0.1"}, set())
