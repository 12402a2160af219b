"""Batches of similar length: every sentence once, and no batch beyond the limits."""

import random

import pytest

from relumt.runs.inference.search import batches_by_length

LENGTHS = {
    "long ones first": [1000] * 64 + [10] * 64,
    "mixed": random.Random(1).choices(range(1, 900), k=500),
    "one beyond the limit": [20_000, *[3000] * 9],
    "one": [7],
    "none": [],
}


@pytest.mark.parametrize("max_tokens", [5000, 12_000])
@pytest.mark.parametrize("batch_size", [1, 64, None])
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
def test_batches_hold_every_sentence_once_within_the_limits(lengths, batch_size, max_tokens):
    batches = list(batches_by_length(lengths, batch_size, max_tokens))
    in_order = [index for batch in batches for index in batch]
    assert in_order == sorted(range(len(lengths)), key=lengths.__getitem__)
    assert all(len(batch) <= (batch_size or len(lengths)) for batch in batches)
    limit = max(max_tokens, *lengths, 0)
    assert all(len(batch) * max(lengths[i] for i in batch) <= limit for batch in batches)
