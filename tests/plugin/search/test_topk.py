"""The largest elements of long rows."""

import pytest
import torch

from relumt.plugin.search.topk import CHUNK, topk_by_chunks


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
