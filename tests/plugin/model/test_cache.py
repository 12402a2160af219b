"""The cache of incremental decoding, without a model."""

import pytest
import torch

from relumt.plugin.model.cache import append_keys_values, reorder_hypotheses, reordered_buffer

ORDERS = {"moved": [2, 0, 1, 3], "copied": [1, 1, 3, 3], "same": [0, 1, 2, 3], "fewer": [3, 0], "more": [0, 0, 1, 1, 2]}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("has_spare", [True, False])
def test_reordering_a_buffer_moves_and_copies_hypotheses(order, has_spare):
    buffer = torch.randn(5, 2, 4, 2, 8, generator=torch.Generator().manual_seed(1))
    filled, new_order = 3, torch.tensor(ORDERS[order])
    expected = buffer.index_select(2, new_order)[:filled].clone()
    spare = torch.empty(5, 2, 5, 2, 8) if has_spare else None
    found = reordered_buffer(buffer, filled, new_order, spare)
    assert torch.equal(found[:filled], expected)
    memory = found.untyped_storage().data_ptr()
    assert (found is buffer) == (order == "same")
    assert (spare is not None and memory == spare.untyped_storage().data_ptr()) == (has_spare and order != "same")


@torch.no_grad()
def test_layers_that_share_a_buffer_keep_their_own_keys_and_values():
    generator = torch.Generator().manual_seed(1)
    caches: list[dict] = [{}, {}, {}]
    expected = [torch.empty(2, 4, 2, 0, 8) for _ in caches]
    spare = None
    for new_order in ORDERS["moved"], ORDERS["same"], ORDERS["copied"], ORDERS["fewer"], [1, 0], [0, 0]:
        for i, cache in enumerate(caches):
            new = torch.randn(2, expected[i].shape[1], 2, 1, 8, generator=generator)
            expected[i] = torch.cat((expected[i], new), dim=3)
            assert torch.equal(torch.stack(append_keys_values(cache, new)), expected[i])
        for i, cache in enumerate(caches):
            spare = reorder_hypotheses(cache, torch.tensor(new_order), spare)
            expected[i] = expected[i].index_select(1, torch.tensor(new_order))
