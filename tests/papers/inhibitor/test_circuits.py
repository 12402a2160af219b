"""The circuits on integers that are not encrypted: against the oracle, and within the bits that they reserve."""

import numpy as np
import pytest

from relumt.papers.inhibitor import circuits
from relumt.papers.inhibitor.table3 import LENGTHS
from tests.papers.inhibitor import encrypted_attention as oracle


def test_the_oracles_agree_with_examples_computed_by_hand():
    q, k, v = [[0, 0], [1, 2]], [[0, 0], [1, 2]], [[3, -1], [3, 2]]
    assert oracle.inhibitor(q, k, v) == [[3 + 0, 0 + 0], [0 + 3, 0 + 2]]  # distances 0 and 3
    # Equal scores of 0: exponentials round(15·e^-1.8) = 2, log 18 + 10·ln(4/15) = 5, weights 12·e^-0.5 = 7.3.
    assert oracle.softmax_weights([0, 0]) == [7, 7]
    # Scores 18, −18: 15 and 1, log 18 + 10·ln(16/15) = 19, weights 12·e^-0.1 = 10.9 and 12·e^-3.7 = 0.3.
    assert oracle.softmax_weights([18, -18]) == [11, 0]
    assert oracle.dot_product([[3, 3]], [[3, 3], [-3, -3]], [[3, -2], [1, 1]]) == [[33, -22]]


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("attention", circuits.CIRCUITS)
def test_the_circuits_compute_what_the_oracles_do(attention, n):
    for inputs in circuits.example_inputs(n)[-30:]:
        expected = oracle.ORACLES[attention](*(x.tolist() for x in inputs))
        assert circuits.CIRCUITS[attention](*inputs, circuits.PLAIN).tolist() == expected


def score_extremes(n):
    """Return the smallest and largest centered logarithm and score that any queries and keys can have."""
    logs, scores = [], []
    for score in range(-circuits.MAX_SCORE, circuits.MAX_SCORE + 1):
        own = int(circuits.exp_table(np.array(score)))
        for others in (n - 1, (n - 1) * circuits.MAX_EXP):
            log = int(circuits.log_sum_table(np.array(own + others), n))
            logs.append(log)
            scores.append(score - log)
    return [(n, n * circuits.MAX_EXP), (min(logs), max(logs)), (min(scores), max(scores))]


@pytest.mark.parametrize("n", LENGTHS)
def test_the_examples_for_concrete_reach_every_extreme(n):
    """Concrete would choose too few bits for a value that no example has, and the result would be wrong."""
    seen = []

    def record(table):
        index = len(seen)
        seen.append([])
        return lambda x: seen[index].append(x) or table(x)

    calls = {}
    for inputs in circuits.example_inputs(n):
        seen.clear()
        circuits.dot_product(*inputs, circuits.Operations(record, circuits.PLAIN.with_bits))
        # Lookups are created in this order: log of sums, exponentials, weights.
        for name, (x,) in zip(("sums", "scores", "centered"), seen, strict=True):
            calls.setdefault(name, []).append((x.min(), x.max()))
        distances = np.abs(inputs[0][:, None] - inputs[1]).sum(axis=2)
        differences = inputs[2] - distances[..., None]
        calls.setdefault("differences", []).append((differences.min(), differences.max()))
        calls.setdefault("outputs", []).append((0, circuits.inhibitor(*inputs, circuits.PLAIN).max()))
    found = {name: (min(low for low, _ in ranges), max(high for _, high in ranges)) for name, ranges in calls.items()}
    sums, _, centered = score_extremes(n)
    assert found["scores"] == (-circuits.MAX_SCORE, circuits.MAX_SCORE)
    assert (found["sums"], found["centered"]) == (sums, centered)
    assert centered[0] >= -32 and centered[1] <= 31
    assert found["differences"] == (-5 * circuits.MAX_INPUT, circuits.MAX_INPUT)
    assert found["outputs"] == (0, n * circuits.MAX_INPUT)


def largest_weight_sum(n):
    """Return the largest sum of weights that any scores give, by dynamic programming over sums of exponentials."""
    scores = np.arange(-circuits.MAX_SCORE, circuits.MAX_SCORE + 1)
    exponentials = circuits.exp_table(scores)
    logs = circuits.log_sum(np.arange(n * circuits.MAX_EXP + 1))
    largest = 0
    for log in np.unique(logs[n:]):
        weights = circuits.weight_table(scores - log + circuits.center(n), n)
        reached = np.full(n * circuits.MAX_EXP + 1, -1)  # sum of exponentials -> largest sum of weights, -1 for none
        reached[0] = 0
        for _ in range(n):
            extended = np.full_like(reached, -1)
            for exponential in np.unique(exponentials):
                before = reached[:-exponential]
                after = np.where(before < 0, -1, before + weights[exponentials == exponential].max())
                extended[exponential:] = np.maximum(extended[exponential:], after)
            reached = extended
        largest = max(largest, reached[logs == log].max())
    return largest


@pytest.mark.parametrize("n", LENGTHS)
def test_the_reserved_bits_hold_sums_of_weighted_values_and_what_concrete_squares(n):
    _, _, (_, centered) = score_extremes(n)
    assert circuits.weight_table(centered, n) + circuits.MAX_INPUT < 2 ** (circuits.PRODUCT_BITS - 1)
    assert circuits.MAX_INPUT * largest_weight_sum(n) < 2 ** (circuits.OUTPUT_BITS - 1)
