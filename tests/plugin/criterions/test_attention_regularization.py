"""[RF] Eq. 7 from row statistics against attention weights in float64; what the criterion adds to the loss and logs."""

import math

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.logging import metrics
from hypothesis import given, settings
from hypothesis import strategies as st

from relumt.attention import MECHANISMS, AttentionMask, Need, RowStats
from relumt.errors import UserError
from relumt.plugin.criterions.attention_regularization import AttentionRegularization
from relumt.plugin.criterions.regularizer_terms import RegularizerTerms
from relumt.plugin.model.hooks import attention_hook
from tests.plugin.criterions.cases import regularized_criterion
from tests.plugin.model.build import build, sample, task

UNEVEN = [(7, 5), (3, 8), (1, 2)]


def make_criterion(norm=0.3, entropy=0.2, bound=0.1):
    return regularized_criterion(
        attention_norm_weight=norm, attention_entropy_weight=entropy, attention_entropy_bound=bound
    )


def plain_criterion():
    return LabelSmoothedCrossEntropyCriterion(task(), False, 0.1)


def compute_terms(model, batch, bound=0.1):
    """Return the mean of the terms over all attentions, with padding found independently."""
    terms = []
    source = batch["net_input"]["src_tokens"].ne(1)
    target = batch["net_input"]["prev_output_tokens"].ne(1)

    def collect(name, attention, result, mask):
        is_real = source if name.startswith("encoder") else target
        terms.append(RegularizerTerms.from_row_stats(result.row_stats, is_real, bound))

    with attention_hook(model, collect):
        model(**batch["net_input"])
    return RegularizerTerms.mean(terms)


def test_training_adds_the_weighted_penalty_times_the_sample_size():
    model, batch = build("reluformer").train(), sample(UNEVEN)
    base, size, _ = plain_criterion()(model, batch)
    loss, same_size, log = make_criterion()(model, batch)
    terms = compute_terms(model, batch)
    assert size == same_size
    torch.testing.assert_close(loss, base + (0.3 * terms.norm + 0.2 * terms.entropy_excess) * size)
    assert log["loss"] == loss
    assert terms.entropy_excess > 0


def test_validation_adds_no_penalty_and_logs_all_terms():
    model, batch = build("reluformer").eval(), sample(UNEVEN)
    with torch.no_grad():
        base, _, _ = plain_criterion()(model, batch)
        loss, size, log = make_criterion()(model, batch)
        terms = compute_terms(model, batch)
    torch.testing.assert_close(loss, base, rtol=1e-6, atol=0)
    fields = {"norm_reg": "norm", "entropy_reg": "entropy_excess", "entropy": "entropy", "null_rate": "null_rate"}
    expected = {name: float(getattr(terms, field)) for name, field in fields.items()}
    assert len({round(value, 6) for value in expected.values()}) == 4
    assert {name: float(log[name]) / size for name in fields} == pytest.approx(expected, rel=1e-5)
    assert {"entropy_encoder", "null_rate_decoder", "norm_reg_cross"} <= log.keys()


def test_logs_of_batches_and_workers_can_be_summed():
    model = build("reluformer").eval()
    batches = [sample(UNEVEN), sample([(4, 4), (9, 3)], seed=5)]
    logs = [make_criterion()(model, batch)[2] for batch in batches]
    with metrics.aggregate(new_root=True) as meters:
        AttentionRegularization.reduce_metrics(logs)
    values = meters.get_smoothed_values()
    expected = sum(compute_terms(model, b).norm * b["ntokens"] for b in batches) / sum(b["ntokens"] for b in batches)
    assert values["norm_reg"] == pytest.approx(expected.item(), abs=1e-4)
    summed = {name: sum(log[name] for log in logs) for name in logs[0]}
    with metrics.aggregate(new_root=True) as meters:
        AttentionRegularization.reduce_metrics([summed])
    assert meters.get_smoothed_values()["norm_reg"] == values["norm_reg"]


def test_dropped_layers_neither_add_a_penalty_nor_change_the_mean(monkeypatch):
    model = build("reluformer", "--encoder-layerdrop", "0.5", "--decoder-layerdrop", "0.5").train()
    batch = sample(UNEVEN)
    monkeypatch.setattr(torch.Tensor, "uniform_", lambda self, *_: self.fill_(0.0))  # fairseq drops a layer below 0.5
    base = plain_criterion()(model, batch)[0]
    loss, size, log = make_criterion()(model, batch)
    torch.testing.assert_close(loss, base, rtol=1e-6, atol=0)
    assert log["norm_reg"] == log["attention_sample_size"] == 0
    monkeypatch.undo()
    full_log = make_criterion()(build("reluformer").eval(), batch)[2]
    with metrics.aggregate(new_root=True) as meters:
        AttentionRegularization.reduce_metrics([log, full_log])
    expected = full_log["norm_reg_cross"].item() / size
    assert meters.get_smoothed_values()["norm_reg_cross"] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("arch", "flags", "message"),
    [
        ("transformer", (), "attention regularization needs non-negative weights"),
        ("inhibitor", (), "attention regularization needs non-negative weights"),
        ("reluformer", ("--checkpoint-activations",), "has no gradient: either --checkpoint-activations is set"),
    ],
)
def test_a_penalty_without_effect_is_rejected(arch, flags, message):
    model = build(arch, *flags).train()
    with pytest.raises(UserError, match=message):
        make_criterion()(model, sample(UNEVEN))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_models_have_a_finite_penalty_in_float32(dtype):
    model = build("reluformer").to(dtype).train()
    loss, _, log = make_criterion()(model, sample(UNEVEN))
    assert log["norm_reg"].dtype == torch.float32
    loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


PENALTIES = {"abs": lambda x: abs(x), "square": lambda x: x * x, "hinge": lambda x: max(abs(x) - 0.2, 0.0)}


@pytest.mark.parametrize("shape", PENALTIES)
def test_the_penalty_has_the_chosen_shape(shape):
    model, batch, sums = build("reluformer").train(), sample([(5, 5)]), []
    margin = {"attention_norm_margin": 0.2} if shape == "hinge" else {}
    criterion = regularized_criterion(
        attention_norm_penalty=shape, attention_norm_weight=0.3, attention_entropy_weight=0.0, **margin
    )
    loss, size, _ = criterion(model, batch)
    with attention_hook(model, lambda name, attention, result, mask: sums.append(result.row_stats.weight_sum)):
        base, _, _ = plain_criterion()(model, batch)
    by_attention = [
        sum(PENALTIES[shape](math.log(total)) if total > 1e-6 else 0.0 for total in rows.flatten().tolist())
        / rows.numel()
        for rows in sums
    ]
    torch.testing.assert_close(loss, base + 0.3 * sum(by_attention) / len(by_attention) * size)


def test_the_penalty_follows_the_schedule_by_the_updates_of_the_model():
    model, batch = build("reluformer").train(), sample(UNEVEN)
    criterion = regularized_criterion(attention_norm_final_weight=0.0, attention_schedule_updates=10)
    terms = compute_terms(model, batch, bound=0.7)
    base, size, _ = plain_criterion()(model, batch)
    for num_updates, norm_weight in ((0, 0.1), (5, 0.05), (10, 0.0), (20, 0.0)):
        model.set_num_updates(num_updates)
        loss, _, _ = criterion(model, batch)
        torch.testing.assert_close(loss, base + (norm_weight * terms.norm + 0.1 * terms.entropy_excess) * size)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"attention_schedule_updates": 10}, "--attention-schedule-updates is 10, with no final weight"),
        ({"attention_norm_final_weight": 0.1}, "is 0, with --attention-norm-final-weight; a schedule needs a positive"),
        ({"attention_schedule_updates": -1}, "--attention-schedule-updates is -1"),
        ({"attention_norm_weight": math.nan}, "--attention-norm-weight must be a number from 0 to 1e\\+06, not nan"),
        ({"attention_entropy_bound": 1.5}, "--attention-entropy-bound must be a number from 0 to 1, not 1.5"),
        ({"attention_norm_margin": 0.2}, "margin 0.2 has no effect with --attention-norm-penalty abs; add"),
    ],
)
def test_flags_out_of_range_or_without_effect_are_rejected(flags, message):
    with pytest.raises(UserError, match=message):
        regularized_criterion(**flags)


def compute_from_weights(weights, is_visible, is_real, bound):
    """Return the means of |log Σs| and max(H − C, 0) over heads and real queries, computed row by row.

    Args:
        weights: [B, H, T, S].
        is_visible: [B, 1, T, S] bool.
        is_real: [B, T] bool.
        bound: c.
    """
    norm, excess = [], []
    B, H, T, _ = weights.shape
    for b in range(B):
        for h in range(H):
            for i in range(T):
                if not is_real[b, i]:
                    continue
                total = weights[b, h, i].sum()
                if total <= 1e-6:
                    norm.append(weights.sum() * 0)
                    excess.append(weights.sum() * 0)
                    continue
                p = weights[b, h, i] / total
                p = p[p > 0]
                entropy = -(p * p.log()).sum()
                norm.append(total.log().abs())
                excess.append((entropy - bound * math.log(is_visible[b, 0, i].sum())).clamp(min=0))
    return torch.stack(norm).mean(), torch.stack(excess).mean()


def has_row_stats(name):
    mechanism = MECHANISMS[name](1, 1)
    return mechanism.has_weights and not mechanism.has_negative_weights


@pytest.mark.parametrize("name", [name for name in sorted(MECHANISMS) if has_row_stats(name)])
@settings(max_examples=4)
@given(seed=st.integers(0, 2**32), bound=st.sampled_from([0.3, 0.7]), causal=st.booleans())
def test_values_and_gradients_equal_the_equation(name, seed, bound, causal):
    seeded = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(2, 3, 5, 4, generator=seeded, dtype=torch.float64, requires_grad=True) for _ in range(3))
    keys = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    mask = AttentionMask(keys, causal)
    result = MECHANISMS[name](3, 4)(q, k, v, mask, Need.WEIGHTS | Need.ROW_STATS)
    terms = RegularizerTerms.from_row_stats(result.row_stats, keys, bound)
    norm, excess = compute_from_weights(result.weights, mask.to_dense(5, 5).expand(2, 1, 5, 5), keys, bound)
    torch.testing.assert_close(terms.norm, norm, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(terms.entropy_excess, excess, rtol=1e-6, atol=1e-6)

    def gradients(scalar):
        return torch.autograd.grad(scalar, (q, k), retain_graph=True)

    expected = gradients(norm + 2 * excess)
    torch.testing.assert_close(gradients(terms.norm + 2 * terms.entropy_excess), expected, rtol=1e-6, atol=1e-6)


def test_an_example_computed_by_hand():
    weights = torch.tensor([[[[0.25, 0.25, 0.25, 0.25], [2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]]]).double()
    statistics = RowStats.from_weights(weights, torch.tensor(4))
    terms = RegularizerTerms.from_row_stats(statistics, torch.ones(1, 3, dtype=torch.bool), bound=0.7)
    assert terms.norm.item() == pytest.approx(math.log(2) / 3)
    assert terms.entropy_excess.item() == pytest.approx(0.3 * math.log(4) / 3)
    assert terms.entropy.item() == pytest.approx(math.log(4) / 3)
    assert terms.null_rate.item() == pytest.approx(1 / 3)
