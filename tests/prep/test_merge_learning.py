"""Merges are those of subword-nmt."""

import io
from collections import Counter
from contextlib import redirect_stderr

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from subword_nmt.learn_bpe import learn_bpe

from relumt.prep.merge_learning import PairFrequencies, learn_merges


def expect_merges(words, num_merges):
    """Return what subword-nmt learns."""
    output = io.StringIO()
    with redirect_stderr(io.StringIO()):
        learn_bpe([" ".join(words)], output, num_merges)
    return [tuple(line.split(" ")) for line in output.getvalue().splitlines()[1:]]


# Few letters, so that symbols repeat in a word and frequencies are equal
few_letters = st.lists(st.text("ab\\é<", min_size=1, max_size=12), min_size=1, max_size=60)


@settings(max_examples=200, deadline=None)
@given(few_letters.filter(lambda words: max(map(len, words)) > 1), st.sampled_from([1, 5, 300]))
def test_merges_are_those_of_subword_nmt(words, num_merges):
    assert list(learn_merges(Counter(words), num_merges)) == expect_merges(words, num_merges)


@pytest.mark.parametrize("letters", ["abc", "abcdefghijklmnop"])
def test_many_merges_are_those_of_subword_nmt(letters):
    """Rare pairs are set aside and come back several times."""
    numbers = range(3000)
    words = ["".join(letters[(number * 7919 >> shift) % len(letters)] for shift in range(9)) for number in numbers]
    merges = list(learn_merges(Counter(words), 2000))
    assert merges == expect_merges(words, 2000)
    assert len(merges) > 500


def test_nothing_to_merge():
    assert list(learn_merges(Counter(), 5)) == []
    assert list(learn_merges(Counter(["a", "b"]), 5)) == []
    assert list(learn_merges(Counter(["ab"]), 5)) == []


def test_the_most_frequent_pair_follows_changes():
    frequencies = PairFrequencies({("a", "b"): 5, ("b", "c"): 5, ("c", "d"): 1})
    frequencies.build_index(2)
    assert frequencies.find_most_frequent() == ("b", "c")
    frequencies["b", "c"] -= 2
    assert frequencies.find_most_frequent() == ("a", "b")
    frequencies["x", "y"] += 9
    assert frequencies.find_most_frequent() == ("x", "y")
    del frequencies["x", "y"], frequencies["a", "b"]
    assert frequencies.find_most_frequent() == ("b", "c")
    frequencies["b", "c"] = 1
    assert frequencies.find_most_frequent() is None  # below the threshold
