"""The cache of incremental decoding, without a model."""

import pytest
import torch

from relumt.modules.cache import IN_PLACE_NUMEL, reorder_buffer


@pytest.mark.parametrize("new_order", [[2, 0, 1, 3], [1, 1, 3, 3], [0, 1, 2, 3]], ids=["moved", "copied", "same"])
@pytest.mark.parametrize("capacity", [4, 1 << 13], ids=["copied whole", "in place"])
def test_reordering_a_buffer_moves_and_copies_hypotheses(new_order, capacity):
    buffer = torch.randn(2, 4, 2, capacity, 8, generator=torch.Generator().manual_seed(1))
    assert (buffer.numel() >= IN_PLACE_NUMEL) == (capacity > 4)
    filled, order = 3, torch.tensor(new_order)
    expected = buffer.index_select(1, order)[:, :, :, :filled].clone()
    assert torch.equal(reorder_buffer(buffer, filled, order)[:, :, :, :filled], expected)
