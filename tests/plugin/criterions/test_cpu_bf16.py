"""Training with --cpu-bf16: what is in bf16 and what is not, and when it is refused.

Few CPUs have instructions for bf16. On the others such products are slow but have the same value, so these tests
pretend that the CPU has them.
"""

from collections import defaultdict
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relumt.attention import MECHANISMS, Need
from relumt.attention.feedforward import FEEDFORWARDS
from relumt.errors import UserError
from relumt.plugin.model.hooks import attention_hook
from relumt.plugin.training_device import check_training_device
from tests.plugin.criterions.cases import fused_criterion, regularized_criterion
from tests.plugin.model.build import arguments, sample
from tests.plugin.model.build import build as build_model

BATCH = [(5, 6), (4, 3), (7, 7)]


@pytest.fixture
def bf16_cpu(monkeypatch):
    monkeypatch.setattr("relumt.plugin.cpu_products.has_fast_bf16", lambda: True)


def loss_and_gradients(model, **settings) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss per token and the gradients by kind of parameter, such as "q_proj.weight", of all layers."""
    model.zero_grad()
    criterion = fused_criterion(**settings)
    loss, sample_size, _ = criterion(model, sample(BATCH))
    loss.backward()
    assert loss.dtype == torch.float32
    gradients = defaultdict(list)
    for name, weight in model.named_parameters():
        assert weight.dtype == weight.grad.dtype == torch.float32
        gradients[".".join(name.split(".")[-2:])].append(weight.grad.flatten())
    return loss.item() / sample_size, {kind: torch.cat(found) for kind, found in gradients.items()}


VARIANTS = {
    **{name: ("mechanism_transformer", "--attention", name) for name in MECHANISMS},
    **{f"ffn {name}": ("reluformer", "--feedforward", name) for name in FEEDFORWARDS},
    "QK norm": (
        *("mechanism_transformer", "--attention", "relu_l1", "--relu-l1-power", "8"),
        *("--attention-qk-norm", "log_n"),
    ),
    "pre-norm": ("reluformer", "--encoder-normalize-before", "--decoder-normalize-before"),
    "shared embeddings": ("rela", "--share-all-embeddings"),
    "with logits": ("transformer",),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_loss_and_gradients_are_those_of_fp32_up_to_rounding(bf16_cpu, variant):
    model, settings = build_model(*VARIANTS[variant]), {"report_accuracy": variant == "with logits"}
    expected, expected_gradients = loss_and_gradients(model, **settings)
    loss, gradients = loss_and_gradients(model, cpu_bf16=True, **settings)
    assert loss == pytest.approx(expected, rel=5e-3) and loss != expected
    similarity = {kind: F.cosine_similarity(gradients[kind], expected_gradients[kind], dim=0) for kind in gradients}
    del similarity["k_proj.bias"]  # where weights sum to 1, its gradient is 0 but for rounding
    # Norms of attention amplify rounding in queries whose weights are close to 0.
    assert {kind: cosine for kind, cosine in similarity.items() if cosine < 0.9} == {}


def dtypes(model, cpu_bf16: bool = True) -> dict[str, torch.dtype]:
    """The types of what layers return in a forward pass."""
    found: dict[str, torch.dtype] = {}

    def record(name):
        return lambda _module, _inputs, output: found.update({name: output.dtype})

    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.LayerNorm | nn.Embedding):
            module.register_forward_hook(record(name))
    fused_criterion(cpu_bf16=cpu_bf16)(model, sample(BATCH))
    return found


def test_products_are_in_bf16_and_norms_and_embeddings_in_fp32(bf16_cpu):
    found = dtypes(build_model("reluformer"))
    for name, dtype in found.items():
        assert dtype == (torch.float32 if "norm" in name or "embed" in name else torch.bfloat16), name
    assert set(dtypes(build_model("reluformer"), cpu_bf16=False).values()) == {torch.float32}


@pytest.mark.parametrize("name", ["relu", "rela_g", "softmax"])
def test_weights_and_their_statistics_are_in_fp32(bf16_cpu, name):
    """The logarithms of the regularizer take sums of weights, which bf16 would round to 3 digits."""
    model = build_model("mechanism_transformer", "--attention", name)
    results = []
    with attention_hook(model, lambda *given: results.append(given[2]), Need.ROW_STATS | Need.WEIGHTS):
        fused_criterion(cpu_bf16=True)(model, sample(BATCH))
    assert len(results) == 6
    for result in results:
        stats = result.row_stats
        assert {x.dtype for x in (result.weights, stats.weight_sum, stats.weight_log_weight_sum)} == {torch.float32}
        assert torch.equal(stats.is_null, result.weights.sum(-1) <= 1e-6)
        assert not torch.equal(result.weights, result.weights.bfloat16().float())


@pytest.mark.parametrize("arch", ["reluformer", "mechanism_transformer"])
def test_the_penalty_is_that_of_fp32_up_to_rounding(bf16_cpu, arch):
    logs = []
    model = build_model(arch)
    for cpu_bf16 in (False, True):
        criterion = regularized_criterion(cpu_bf16=cpu_bf16)
        _, sample_size, log = criterion(model, sample(BATCH))
        assert all(torch.isfinite(torch.as_tensor(value)).all() for value in log.values())
        logs.append({name: float(log[name]) / sample_size for name in ("norm_reg", "entropy", "null_rate")})
    assert logs[1] == pytest.approx(logs[0], rel=2e-2, abs=2e-3)


def test_training_is_refused_where_bf16_is_slow_and_validation_is_not(monkeypatch):
    monkeypatch.setattr("relumt.plugin.cpu_products.has_fast_bf16", lambda: False)
    model = build_model("transformer")
    criterion = fused_criterion(cpu_bf16=True)
    with pytest.raises(UserError, match="--cpu-bf16 needs a CPU with AVX512-BF16 or AMX"):
        criterion(model, sample(BATCH))
    criterion(model.eval(), sample(BATCH))


@pytest.mark.parametrize(
    ("more", "has_gpu", "is_fast", "reason"),
    [
        ([], False, False, "needs a CPU with AVX512-BF16 or AMX, because bf16 is slower than fp32"),
        ([], True, True, "there is a GPU; use --bf16, or add --cpu"),
        (["--cpu"], True, True, None),
        (["--checkpoint-activations"], False, True, "cannot be combined with --checkpoint-activations"),
        (["--bf16", "--cpu"], False, True, "--bf16 needs a GPU, and none was found"),
    ],
)
def test_impossible_flags_are_refused(monkeypatch, more, has_gpu, is_fast, reason):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    monkeypatch.setattr("relumt.plugin.cpu_products.has_fast_bf16", lambda: is_fast)
    with pytest.raises(UserError, match=reason) if reason else nullcontext():
        flags = "--arch reluformer --criterion fused_label_smoothed_cross_entropy --cpu-bf16".split()
        check_training_device(arguments(*flags, *more))
