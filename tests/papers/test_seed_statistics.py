"""Statistics over seeds against their definitions, and against scipy where it has them."""

from itertools import product
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, ttest_rel

from relumt.papers.seed_statistics import compare_seeds, dunnett_p_values, holm, sign_flip_p_value

BLEU = {1: 38.34, 2: 39.10, 3: 38.80}
BASELINE = {1: 39.57, 2: 39.20, 3: 39.90, 4: 40.0}


@given(st.lists(st.floats(-3, 3).map(lambda x: round(x, 2)), min_size=2, max_size=6))
@settings(max_examples=30, deadline=None)
def test_the_p_value_is_the_share_of_sign_flips_that_are_as_extreme(differences):
    flipped = [
        abs(mean(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in product((1, -1), repeat=len(differences))
    ]
    expected = sum(value >= abs(mean(differences)) - 1e-12 for value in flipped) / len(flipped)
    assert sign_flip_p_value(differences) == pytest.approx(expected)


def test_ties_count_although_they_are_rounded():
    losses = [4.504, 4.494, 4.523, 4.5, 4.508, 4.507]
    baseline = [4.515, 4.52, 4.511, 4.504, 4.509, 4.521]
    differences = [a - b for a, b in zip(losses, baseline, strict=True)]
    assert sign_flip_p_value(differences) == 14 / 64  # counted in thousandths, as integers
    assert sign_flip_p_value([0.3, 0.1, 0.2, -0.3, -0.3]) == 1.0  # their mean is 0 but for rounding


def test_many_seeds_are_drawn_and_give_the_same_value_again():
    differences = [0.5] * 14 + [-0.5] * 8
    drawn = sign_flip_p_value(differences)
    assert drawn == sign_flip_p_value(differences) == pytest.approx(binomtest(14, 22).pvalue, abs=0.02)


def test_seeds_pair_the_runs():
    found = compare_seeds(BLEU, BASELINE)
    assert found.difference == pytest.approx((-1.23 - 0.10 - 1.10) / 3)
    assert found.p_value == 0.25  # the least that three seeds can give


def test_the_interval_is_that_of_a_paired_t_test():
    common = sorted(BLEU)
    expected = ttest_rel([BLEU[s] for s in common], [BASELINE[s] for s in common]).confidence_interval(0.95)
    assert compare_seeds(BLEU, BASELINE).interval == pytest.approx((expected.low, expected.high))


def test_dunnetts_test_needs_variation():
    assert dunnett_p_values([[4.493, 4.493], [4.5, 4.5 + 1e-12]], [4.6, 4.6]) == [None, None]
    assert dunnett_p_values([[4.493, 4.495], [4.5, 4.5]], [4.6, 4.6])[0] < 0.05


def test_holms_correction_is_the_textbook_example():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []
