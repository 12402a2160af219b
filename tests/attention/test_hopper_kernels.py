"""The kernels for Hopper without a GPU: tiles, bits, and whole calls in `gluon_emulator`, against float64."""

import itertools
import random

import numpy as np
import pytest
import torch

pytest.importorskip("triton.experimental.gluon")
from relumt.attention.kernels import key_bounds
from relumt.attention.kernels.hopper import launch, selection
from relumt.attention.kernels.pointwise_params import exponent
from tests.attention import gluon_emulator
from tests.attention.gluon_values import Pointer, Value, integer

H = 2
POSITIONS = np.array([0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15])
"""Bits of columns 8k + c of a word, for each k."""
TOLERANCE = {torch.bfloat16: 5e-3, torch.float16: 6e-4}
tiles = gluon_emulator.import_emulated("relumt.attention.kernels.hopper.tiles")
layouts = gluon_emulator.import_emulated("relumt.attention.kernels.hopper.layouts")
gl = gluon_emulator.LANGUAGE


@pytest.fixture(autouse=True)
def emulated(monkeypatch):
    """Launch kernels in the emulator, with three programs for all tiles, and fill new tensors with NaN."""

    def emulate(kernel, num_tiles, *arguments):
        gluon_emulator.emulate(kernel, min(3, num_tiles), arguments, seed=num_tiles)

    monkeypatch.setattr(launch, "num_multiprocessors", lambda device: 3)
    monkeypatch.setattr(launch, "launch", emulate)
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("is_causal", [False, True])
def test_each_tile_is_visited_once_in_an_order_that_gives_programs_equal_work(is_causal):
    """132 programs take 128 heads in turns; with a causal mask, a tile at position p takes p + 1 units of time."""
    for tiles_per_head in (1, 3, 6, 8, 11, 16, 22, 32):
        order = [tiles.locate(tile, tiles_per_head, is_causal) for tile in range(128 * tiles_per_head)]
        assert sorted(order) == [(bh, position) for bh in range(128) for position in range(tiles_per_head)]
        work = [sum(position + 1 for _, position in order[program::132]) for program in range(132)]
        if is_causal and tiles_per_head > 3:
            assert max(work) < 1.25 * sum(work) / 132


def visible_pairs(first_real, after_real, T, S, is_causal):
    keys = torch.arange(S)
    visible = ((keys >= first_real) & (keys < after_real)).expand(T, S)
    return visible.tril(S - T) if is_causal else visible


LENGTHS = (1, 127, 128, 129, 300, 513)
BOUNDS = [(0, 1.0), (0, 0.0), (0.3, 0.4), (0.5, 1.0), (0.99, 1.0)]


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("tile", [128, 192])
def test_every_visible_pair_is_in_a_tile_that_is_visited_and_no_other_tile_is(is_causal, tile):
    """A tile of queries visits one block even if it sees no key, so that the pipeline always has one."""
    for T, S, (start, stop) in itertools.product(LENGTHS, LENGTHS, BOUNDS):
        bounds = int(start * S), int(stop * S)
        visible = visible_pairs(*bounds, T, S, is_causal)
        for first in range(0, T, tile):
            start, stop = tiles.key_blocks(*bounds, first + tile - 1, T, S, is_causal)
            seen = [bool(x.any()) for x in visible[first : first + tile].split(128, dim=1)]
            forced = bounds[0] // 128
            expected = {j for j, is_seen in enumerate(seen) if is_seen} | {forced}
            assert set(range(start, stop)) == set(range(min(expected), max(expected) + 1))
            assert stop <= -(-S // 128) or stop == start + 1


@pytest.mark.parametrize("is_causal", [False, True])
def test_gradients_of_keys_visit_the_same_tiles_as_those_of_queries(is_causal):
    """`dq` reads the bits of the tiles that it visits, which `dkdv` must have written."""
    for T, S, (start, stop) in itertools.product(LENGTHS, LENGTHS, BOUNDS):
        bounds = int(start * S), int(stop * S)
        by_queries = {
            (i, j)
            for i in range(-(-T // 128))
            for j in range(*tiles.key_blocks(*bounds, 128 * i + 127, T, S, is_causal))
        }
        by_keys = {(i, j) for j in range(-(-S // 128)) for i in range(*tiles.query_blocks(*bounds, j, T, S, is_causal))}
        assert by_queries == by_keys


def masks_of(pairs):
    """Return 0xFFFF for True, two columns in an int32: [64, N] bool -> [64, N/2]."""
    return Value(pairs.short().neg().view(torch.int32))


def numpy_bits(pairs):
    """Return the words of a block [rows, 128] of pairs: [rows/2, 8, 2] uint16."""
    bits = np.asarray(pairs).reshape(len(pairs) // 2, 2, 16, 8)  # [row // 2, row % 2, k, c]
    return (bits.astype(np.uint32) << POSITIONS[:, None]).sum(2).transpose(0, 2, 1).astype(np.uint16)


@pytest.mark.parametrize("N", [64, 128])
def test_bits_are_stored_as_documented_and_read_back_by_rows_and_by_columns(N):
    """A tile of 64 rows, the second one of a block of 128, in the third of four blocks; its columns or their halves."""
    pairs = torch.rand(64, 128) > 0.3
    words = torch.zeros(4, 64, 8, 2, dtype=torch.int16)
    previous = Value(torch.full((64, 4), -1, dtype=torch.int32))  # of another block
    for part in pairs.split(N, dim=1):
        previous = layouts.store_bits(Pointer.from_tensor(words), masks_of(part), integer(2), 64, 128, previous)
    assert np.array_equal(words[2, 32:].numpy().view(np.uint16), numpy_bits(pairs))
    assert words.count_nonzero() == words[2, 32:].count_nonzero()

    ones = Value(torch.full((64, 64), -1, dtype=torch.int32))
    by_rows = layouts.load_row_words(Pointer.from_tensor(words), integer(2), 64, 128, 128)
    assert torch.equal(layouts.keep_columns(ones, by_rows).x, masks_of(pairs).x)

    pointer = Pointer.from_tensor(launch.in_pairs(words))
    for first in (0, 64):  # columns of the bits are rows now
        ones = Value(torch.full((64, 32), -1, dtype=torch.int32))
        by_columns = layouts.load_words(pointer, integer(2), 64, 128, 64)
        expected = masks_of(pairs[:, first : first + 64].T.contiguous())
        assert torch.equal(layouts.keep(ones, by_columns, first).x, expected.x)


def make_call(dtype, options, B, T, S, seed, D=64):
    """Return the arguments of both directions, and the gradients of what it returns."""
    generator = torch.Generator().manual_seed(seed)
    q, k, v, grad = (torch.randn(B, n, H, D, generator=generator).to(dtype).transpose(1, 2) for n in (T, S, S, T))
    activation = next((x for x in options if x.startswith("relu")), "relu")
    factor = (D * S / 2) ** -0.5 * (1 + torch.rand(B, T if "per_query" in options else 1, generator=generator))
    bias = 0.5 + torch.rand(B, 1, generator=generator) if "bias" in options else None
    key_mask = None
    if "padded" in options:
        key_mask = torch.rand(B, S, generator=generator) > 0.1
        key_mask[0, : S // 2], key_mask[-1, S // 3 :] = False, False
        for x in (k, v):
            x.masked_fill_(~key_mask[:, None, :, None], float("nan"))
    dropout_p = 0.3 if "dropout" in options else 0.0
    seed_tensor = torch.randint(2**62, (), generator=generator) if dropout_p else None
    row_grads = [torch.randn(B, H, T, generator=generator) for _ in range(2)]
    bounds = key_bounds.key_bounds(key_mask)
    call = (q, k, v, factor, bias, key_mask, bounds, seed_tensor, activation, "causal" in options, dropout_p)
    num_row_grads = 2 * ("row_grads" in options) + ("sum_grad" in options)
    return call, grad, row_grads[:num_row_grads] + [None] * (2 - num_row_grads)


def unpack(kept, T, S):
    """Return which pairs are kept, [B·H, T, S] of 0 and 1."""
    words = kept.unflatten(0, (-1, -(-S // 128))).numpy().view(np.uint16)  # [B·H, S/128, T/2, 8, 2]
    bits = words[..., None] >> POSITIONS & 1
    heads, blocks, half = words.shape[:3]
    pairs = bits.transpose(0, 2, 4, 1, 5, 3).reshape(heads, 2 * half, 128 * blocks)
    return torch.from_numpy(pairs[:, :T, :S].copy()).double()


def reference(call, grad, row_grads, kept):
    """Return what the kernels compute, in float64."""
    q, k, v, factor, bias, key_mask, *_, activation, is_causal, dropout_p = call
    T, S = q.shape[2], k.shape[2]
    visible = torch.ones(T, S, dtype=torch.bool).tril(S - T if is_causal else S)[None, None]
    if key_mask is not None:
        visible = visible & key_mask[:, None, None]
        k, v = (x.masked_fill(~key_mask[:, None, :, None], 0) for x in (k, v))
    inputs = [x.double().requires_grad_() for x in (q, k, v)]
    scores = inputs[0] @ inputs[1].mT * factor.double()[:, None, :, None]
    scores = scores if bias is None else scores + bias.double()[:, None, :, None]
    weights = scores.relu() ** exponent(activation) * visible
    level = round(dropout_p * 128) / 128
    dropped = weights if kept is None else weights * kept.view_as(weights) / (1 - level)
    outputs = [dropped @ inputs[2], weights.sum(-1), torch.xlogy(weights, weights.clamp(min=1e-300)).sum(-1)]
    used = [(x, g.double()) for x, g in zip(outputs, (grad, *row_grads), strict=True) if g is not None]
    return [*outputs, *torch.autograd.grad([x for x, _ in used], inputs, [g for _, g in used])]


CASES = [
    (torch.bfloat16, ""),
    (torch.bfloat16, "padded"),
    (torch.bfloat16, "causal per_query"),
    (torch.bfloat16, "dropout"),
    (torch.bfloat16, "row_stats row_grads"),
    (torch.bfloat16, "row_stats row_grads dropout"),
    (torch.float16, "padded causal per_query dropout row_stats"),
    (torch.float16, "padded causal per_query dropout row_stats row_grads"),
    (torch.bfloat16, "padded causal dropout row_stats row_grads"),
]


POWERS = [
    "relu2 padded per_query dropout",
    "relu2 per_query causal row_stats row_grads dropout",
    "relu3 row_stats row_grads",
    "relu4 bias padded row_stats row_grads",
    "relu8 bias sums sum_grad",
    "relu8 bias sums sum_grad padded causal dropout",
    "relu8 bias sums sum_grad padded",
    "relu3 bias causal dropout",
    "relu bias padded",
    "relu bias padded dropout sums sum_grad",
]
SHAPES = [(129, 129, 64), (300, 140, 64), (150, 400, 64), (1, 256, 64), (300, 140, 128), (150, 400, 128)]


def combine(cases, shapes):
    """Return all combinations; all but one of a case are slow, so that the fast tests see each case and each shape."""
    return [
        pytest.param(*case, *shape, marks=[pytest.mark.slow] * ((i + j) % len(shapes) > 0))
        for i, case in enumerate(cases)
        for j, shape in enumerate(shapes)
    ]


@pytest.mark.usefixtures("bfloat16")
@pytest.mark.parametrize(
    ("dtype", "options", "T", "S", "D"),
    combine(CASES, SHAPES)
    + combine([(torch.bfloat16, x) for x in POWERS], [(129, 129, 64), (300, 140, 64), (150, 400, 128)]),
)
def test_kernels_agree_with_float64(dtype, options, T, S, D):
    """Hidden keys and new memory are NaN, so nothing hidden or unwritten reaches a result."""
    call, grad, row_grads = make_call(dtype, options.split(), 2, T, S, T + S, D)
    *outputs, bits = launch.run_forward(*call, 2 * ("row_stats" in options) + ("sums" in options), dtype)
    grads = launch.run_backward(grad, *row_grads, *call, bits)
    kept = None if bits is None else unpack(bits, T, S)
    expected = reference(call, grad, row_grads, kept)
    for actual, exact in zip((*outputs, *grads), expected, strict=True):
        if actual is not None:
            assert (actual.double() - exact).norm() <= TOLERANCE[dtype] * exact.norm()


@pytest.mark.usefixtures("bfloat16")
@pytest.mark.parametrize("is_causal", [False, True])
def test_hidden_keys_have_no_weight_and_no_gradient_although_a_score_of_zero_has(is_causal):
    """A sentence has all keys, one has some, and one has none; of 140 keys the last block has 12."""
    call, grad, row_grads = make_call(torch.bfloat16, ["relu4", "bias", "sum_grad"], 3, 150, 140, seed=1)
    key_mask = torch.arange(140) < torch.tensor([140, 130, 0])[:, None]
    call = (*call[:5], key_mask, key_bounds.key_bounds(key_mask), None, "relu4", is_causal, 0.0)
    output, weight_sum, _, _ = launch.run_forward(*call, 1, torch.float32)
    _, grad_k, grad_v = launch.run_backward(grad, *row_grads, *call)
    hidden = ~key_mask[:, None].expand(3, H, 140)
    assert not weight_sum[2].any() and not output[2].any()
    assert not grad_k[hidden].any() and not grad_v[hidden].any() and grad_k[~hidden].any(-1).all()
    expected = reference(call, grad, row_grads, None)[1]
    assert (weight_sum.double() - expected).norm() <= 1e-5 * expected.norm()


def test_dropout_keeps_the_rounded_share_and_depends_on_the_seed_alone():
    call, *_ = make_call(torch.bfloat16, ["dropout"], 1, 200, 300, seed=1)
    kept = [unpack(launch.run_forward(*call, 0, torch.bfloat16)[3], 200, 300) for _ in range(2)]
    call[7].add_(1 << 40)  # in place, as a CUDA graph would see it; only the upper half changes
    kept.append(unpack(launch.run_forward(*call, 0, torch.bfloat16)[3], 200, 300))
    assert torch.equal(kept[0], kept[1])
    share = 1 - 38 / 128  # 0.3 in multiples of 1/128
    for x in kept[1:]:
        assert x.mean().item() == pytest.approx(share, abs=0.01)
    both = (kept[1] * kept[2]).mean().item()
    assert both == pytest.approx(share**2, abs=0.01), "decisions of two seeds are not independent"
    for step in (1, 8, 16):  # neither are neighbors in a row, nor decisions of one call
        assert (kept[1][..., step:] * kept[1][..., :-step]).mean().item() == pytest.approx(share**2, abs=0.015)


def test_float16_weights_beyond_its_range_are_scaled_before_they_are_rounded():
    """s = 64·64² > 65504, and w = s·f is not."""
    q, k, v = (torch.full((1, H, n, 64), x, dtype=torch.float16) for n, x in ((130, 64), (140, 64), (140, 1)))
    factor = torch.full((1, 1), 2.0**-12)
    output = launch.run_forward(q, k, v, factor, None, None, None, None, "relu", False, 0.0, 0, torch.float32)[0]
    assert torch.equal(output, torch.full_like(output, 64 * 140))


@pytest.mark.parametrize("D", selection.HEAD_DIMS)
@pytest.mark.parametrize("seed", range(3))
def test_copies_are_made_of_what_tma_cannot_read(seed, D):
    """The last dimension must be contiguous, strides multiples of 16 bytes, and sizes of 1 may have any stride."""
    generator = random.Random(seed)
    shape = [generator.choice([1, 2, 3]) for _ in range(3)]
    x = torch.randn(*shape, D).to(torch.bfloat16)
    views = [
        (x, True), (x.transpose(1, 2), True), (x.expand(4, *shape[1:], D)[:4] if shape[0] == 1 else x, shape[0] != 1),
        (torch.randn(*shape[:2], D, shape[2]).to(torch.bfloat16).transpose(2, 3), D * shape[2] == D),
        (torch.randn(*shape, D + 1).to(torch.bfloat16)[..., :D], shape == [1, 1, 1]),
    ]  # fmt: skip
    for view, is_readable in views:
        usable = launch.with_strides_for_tma(view)
        assert torch.equal(usable, view) and (usable is view) == is_readable
        descriptor = launch.describe(usable, 64)
        assert descriptor.shape == list(view.shape)
        assert torch.equal(torch.as_strided(usable, descriptor.shape, descriptor.strides), view)
