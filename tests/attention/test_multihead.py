"""`MultiheadAttention` and `attend` in the place of PyTorch's, and mechanisms that other packages define."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relumt.attention import MECHANISMS, QK_NORMS, AttentionMask, MultiheadAttention, Need, attend
from relumt.attention.registry import EXTENSIONS, load_extensions
from relumt.attention.softmax import SoftmaxAttention
from tests.attention import oracle

E, H, B, T, S = 8, 2, 3, 4, 5
PADDING = torch.arange(S) >= torch.tensor([[5], [3], [1]])
FUTURE = torch.ones(T, T, dtype=torch.bool).triu(1)
ALIBI = torch.tensor([[-0.5 * abs(i - j) for j in range(S)] for i in range(T)])


def same_weights(theirs: nn.MultiheadAttention, ours: MultiheadAttention) -> None:
    """Give our module the parameters of PyTorch's."""
    weights = theirs.in_proj_weight.chunk(3)
    biases = theirs.in_proj_bias.chunk(3)
    for projection, weight, bias in zip((ours.q_proj, ours.k_proj, ours.v_proj), weights, biases, strict=True):
        projection.weight.data, projection.bias.data = weight.clone(), bias.clone()
    ours.out_proj.load_state_dict(theirs.out_proj.state_dict())


def both_modules(batch_first=False):
    torch.manual_seed(1)
    theirs, ours = (
        nn.MultiheadAttention(E, H, batch_first=batch_first),
        MultiheadAttention(E, H, batch_first=batch_first),
    )
    nn.init.normal_(theirs.in_proj_bias)
    same_weights(theirs, ours)
    return theirs.eval(), ours.eval()


@pytest.mark.parametrize(
    ("arguments", "batch_first"),
    [
        ({}, False),
        ({"key_padding_mask": PADDING}, False),
        ({"key_padding_mask": PADDING}, True),
        ({"key_padding_mask": torch.zeros(B, S).masked_fill(PADDING, -math.inf)}, False),
        ({"attn_mask": ALIBI.gt(-1).roll(1, 1)}, False),
        ({"attn_mask": ALIBI}, False),
        ({"attn_mask": ALIBI.masked_fill(ALIBI < -1, -math.inf), "average_attn_weights": False}, False),
        ({"attn_mask": (ALIBI * torch.tensor([1.0, 2.0])[:, None, None]).repeat(B, 1, 1)}, False),
        ({"need_weights": False, "attn_mask": ALIBI}, False),
    ],
    ids=str,
)
def test_softmax_is_pytorchs_module(arguments, batch_first):
    theirs, ours = both_modules(batch_first)
    query, key = (torch.randn(B, n, E) if batch_first else torch.randn(n, B, E) for n in (T, S))
    expected, found = (module(query, key, key, **arguments) for module in (theirs, ours))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_every_mechanism_serves_pytorchs_encoder_layer(name):
    """With padding and a causal mask; the output does not depend on either's content."""
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(E, H, 16, dropout=0.0, batch_first=True)
    layer.self_attn = MultiheadAttention(E, H, mechanism=name, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(B, S, E)
    causal = nn.Transformer.generate_square_subsequent_mask(S)
    with torch.no_grad():
        before = encoder(x, causal, src_key_padding_mask=PADDING)
        changed = torch.where(PADDING[..., None], 7.0, x)
        changed[0, 3:] += 1
        after = encoder(changed, causal, src_key_padding_mask=PADDING)
    torch.testing.assert_close(after[0, :3], before[0, :3])
    torch.testing.assert_close(after[1, :3], before[1, :3])
    assert not torch.allclose(after[0, 3:], before[0, 3:])


SCORED = [name for name in sorted(MECHANISMS) if MECHANISMS[name](1, 4).has_weights]


@pytest.mark.parametrize("name", SCORED)
def test_a_bias_is_added_to_the_scores_of_the_equation(name):
    """The oracle sees it as the product of one more dimension of queries and keys, with heads of the same size."""
    torch.manual_seed(1)
    D = 4
    q, k, v = (torch.randn(1, H, n, D, dtype=torch.float64) for n in (T, S, S))
    q[..., -1] = k[..., -1] = 0
    slope, position = torch.randn(1, H, T, 1, dtype=torch.float64), torch.arange(S).double().view(1, 1, 1, S)
    mask = AttentionMask(PADDING[1:2].logical_not(), bias=slope * position)
    mechanism = MECHANISMS[name](H, D).double()
    found = mechanism(q, k, v, mask, Need.WEIGHTS)
    q[..., -1:], k[..., -1] = slope * math.sqrt(D), position.view(1, 1, S)
    visible = mask.to_dense(T, S).expand(1, 1, T, S)
    weights, output = oracle.attend(oracle.ORACLES[name].attend, q, k, v, visible)
    torch.testing.assert_close(found.weights, weights, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(
        mechanism(q * 1, k, v, AttentionMask(mask.key_mask)).output, output, rtol=1e-6, atol=1e-9
    )
    torch.testing.assert_close(found.output, output, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_a_pattern_for_each_sentence_is_that_of_the_sentence_alone(name):
    torch.manual_seed(1)
    q, k, v = (torch.randn(B, H, n, 4) for n in (T, S, S))
    patterns = torch.rand(B, T, S) > 0.4
    mechanism = MECHANISMS[name](H, 4).eval()
    together = mechanism(q, k, v, AttentionMask(attn_mask=patterns)).output
    for b in range(B):
        alone = mechanism(q[b : b + 1], k[b : b + 1], v[b : b + 1], AttentionMask(attn_mask=patterns[b])).output
        torch.testing.assert_close(together[b : b + 1], alone)


def test_grouped_queries_share_keys_and_values():
    torch.manual_seed(1)
    grouped = MultiheadAttention(16, 4, mechanism="rela_g", num_kv_heads=2)
    every = MultiheadAttention(16, 4, mechanism="rela_g")
    for projection in ("k_proj", "v_proj"):
        for name, parameter in getattr(grouped, projection).named_parameters():
            repeated = parameter.unflatten(0, (2, 4)).repeat_interleave(2, 0).flatten(0, 1)
            getattr(getattr(every, projection), name).data = repeated
    every.q_proj, every.out_proj, every.mechanism = grouped.q_proj, grouped.out_proj, grouped.mechanism
    x = torch.randn(T, B, 16)
    torch.testing.assert_close(grouped(x, x, x), every(x, x, x))


@pytest.mark.parametrize("options", [{"gate": "headwise"}, *({"qk_norm": kind} for kind in QK_NORMS)])
def test_options_are_trained(options):
    module, x = MultiheadAttention(E, H, mechanism="relu_l1", **options), torch.randn(T, B, E)
    module(x, x, x)[0].square().sum().backward()
    assert all(parameter.grad.any() for parameter in module.parameters() if parameter is not module.k_proj.bias)


def test_the_functional_form_is_pytorchs():
    torch.manual_seed(1)
    q, k, v = torch.randn(B, 4, T, 8), torch.randn(B, 2, T, 8), torch.randn(B, 2, T, 8)
    for mask in (None, ~FUTURE, ALIBI[:, :T], torch.rand(B, 1, T, T).gt(0.3) | torch.eye(T, dtype=torch.bool)):
        expected = F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)
        torch.testing.assert_close(attend(q, k, v, mask, enable_gqa=True), expected)
    causal = attend(q, q, q, is_causal=True, mechanism="relu", gamma=2.0)
    torch.testing.assert_close(causal, attend(q, q, q, ~FUTURE, mechanism="relu", gamma=2.0))
    torch.testing.assert_close(causal * 2, attend(q, q, q, ~FUTURE, mechanism="relu"))


def test_what_cannot_be_computed_is_refused():
    x = torch.randn(1, 2, 3, 4)
    with pytest.raises(
        ValueError, match=r"'rela_g' has parameters or a norm; build MECHANISMS\['rela_g'\]\(2, 4\) once"
    ):
        attend(x, x, x, mechanism="rela_g")
    with pytest.raises(KeyError, match=r"unknown attention mechanism 'softmx'; did you mean 'softmax'\?"):
        MultiheadAttention(E, H, mechanism="softmx")
    with pytest.raises(ValueError, match="hides the same keys from all heads"):
        attend(x, x, x, torch.tensor([True, False]).view(1, 2, 1, 1).expand(1, 2, 3, 3))
    with pytest.raises(ValueError, match="expected a mask for B, H, T, S = 1, 2, 3, 3, found"):
        attend(x, x, x, torch.ones(3, 4, dtype=torch.bool))
    with pytest.raises(TypeError, match=r"expected a mask of torch\.bool or of .* numbers, got torch\.int64"):
        attend(x, x, x, torch.ones(3, 3, dtype=torch.long))
    for num_heads, num_kv_heads in ((2, 3), (2, 0), (0, None)):
        with pytest.raises(ValueError, match=f"got 8, {num_heads} and {num_kv_heads or 0}"):
            MultiheadAttention(8, num_heads, num_kv_heads=num_kv_heads)
    with pytest.raises(ValueError, match="QK norm needs products of queries and keys, which InhibitorAttention lacks"):
        MultiheadAttention(E, H, mechanism="inhibitor", qk_norm="constant")
    with pytest.raises(ValueError, match="computes distances, not scores"):
        MECHANISMS["inhibitor"](2, 4)(x, x, x, AttentionMask(bias=torch.ones(1, 1, 1, 3)))
    with pytest.raises(ValueError, match="expected a key_padding_mask of 0 and -inf"):
        MultiheadAttention(E, H)(*[torch.randn(T, B, E)] * 3, key_padding_mask=torch.ones(B, T))


def test_an_installed_package_can_define_a_mechanism(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from relumt.attention.softmax import SoftmaxAttention\nclass Mine(SoftmaxAttention): pass\n"
    )
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{EXTENSIONS}]\nmine = mine:Mine\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        load_extensions()
        assert isinstance(MECHANISMS["mine"](2, 4), SoftmaxAttention)
    finally:
        MECHANISMS.pop("mine", None)
