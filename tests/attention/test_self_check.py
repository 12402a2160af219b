"""The self-check finds faulty kernels, and training goes on without them."""

import functools
import logging

import pytest
import torch

from relumt.attention import MECHANISMS, AttentionMask, Need
from relumt.attention.kernels import (
    checked_calls,
    dispatch,
    inhibitor_naive,
    self_check,
    self_check_inhibitor,
    self_check_pointwise,
)
from relumt.attention.kernels.self_check import check_config
from relumt.attention.kernels.self_check_inhibitor import InhibitorConfig
from relumt.attention.kernels.self_check_pointwise import PointwiseConfig
from relumt.errors import AttemptFailedError

pytest.importorskip("triton")
from triton.runtime.errors import OutOfResources

from relumt.attention.kernels import inhibitor_triton, pointwise_triton
from relumt.attention.kernels.triton_arguments import Dropout

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="fakes a GPU with Triton's interpreter")
CPU = torch.device("cpu")
FUSED = ["relu", "relu_l1", "sigmoid", "inhibitor"]
CONFIG = PointwiseConfig("relu", torch.float32, torch.float32, 16, "float32", "float32", row_sums=2)


@pytest.fixture(autouse=True)
def auto_on_the_interpreter(monkeypatch):
    """Let `auto` choose Triton in its interpreter, as on a GPU, with small cases and no verdicts."""
    monkeypatch.setenv("RELUMT_KERNELS", "auto")
    monkeypatch.setattr(dispatch, "_is_triton_wanted", lambda device: True)
    monkeypatch.setattr(dispatch, "fused_inhibitor_without_triton", lambda device: dispatch.inhibitor_cdist.attend)
    monkeypatch.setattr(self_check_pointwise, "LENGTHS", dict.fromkeys(("short", "float32"), 20))
    monkeypatch.setattr(self_check_pointwise, "LONG", 70)
    for name in ("T", "S"):
        monkeypatch.setattr(self_check_inhibitor, name, 8)
    self_check.verdicts.cache_clear()
    yield
    self_check.verdicts.cache_clear()


def train_step(name, compiled=lambda mechanism: mechanism):
    """Return the output, the row sums and the gradients of one step; `name` is a registered mechanism."""
    mechanism = compiled(MECHANISMS[name](2, 16))
    mask = AttentionMask(torch.arange(9) < torch.tensor([9, 6])[:, None], is_causal=True)
    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(2, 2, 9, 16, generator=generator).div(3).requires_grad_() for _ in range(3))
    output, _, row_stats = mechanism(q, k, v, mask, Need.ROW_STATS)
    outputs = [output] if row_stats is None else [output, row_stats.weight_sum]
    return [*outputs, *torch.autograd.grad(sum(x.square().sum() for x in outputs), (q, k, v))]


def reference_step(name, monkeypatch):
    with monkeypatch.context() as context:
        context.setattr(dispatch, "_is_triton_wanted", lambda device: False)
        context.setattr(dispatch, "fused_inhibitor_without_triton", lambda device: inhibitor_naive.attend)
        return train_step(name)


class FaultyKernel:
    """Stands in for a Triton kernel; `fault` is called at each launch."""

    def __init__(self, fault):
        self.fault = fault

    def __getitem__(self, grid):
        return lambda *args, **kwargs: self.fault()


def raising(error):
    def launch():
        raise error

    return launch


FAULTS = {
    "writes nothing": lambda: None,
    "too many resources": raising(OutOfResources(300_000, 232_448, "shared memory")),
    "does not compile": raising(SyntaxError("at 12:7: unsupported operation\nsource code")),
    "cache cannot be written": raising(PermissionError(13, "Permission denied", "/root/.triton/cache")),
}


KERNELS = ("forward", "backward_dq", "backward_dkdv")


def break_kernels(monkeypatch, fault, names=KERNELS):
    for name in names:
        if hasattr(pointwise_triton, name):
            monkeypatch.setattr(pointwise_triton, name, FaultyKernel(fault))
        monkeypatch.setattr(inhibitor_triton.inhibitor_triton_fp32, name, FaultyKernel(fault))


@pytest.mark.parametrize("name", FUSED)
def test_without_faults_the_kernels_are_used_and_nothing_is_logged(name, monkeypatch, caplog):
    calls = []
    for module in (pointwise_triton, inhibitor_triton):
        original = module.run_forward
        monkeypatch.setattr(module, "run_forward", lambda *args, f=original: calls.append(f) or f(*args))
    results = train_step(name)
    assert calls and not caplog.records
    num_calls = len(calls)
    train_step(name)
    assert len(calls) == num_calls + 1  # no second check
    torch.testing.assert_close(results, reference_step(name, monkeypatch), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("fault", "kernels", "reason"),
    [
        *((fault, KERNELS, "using PyTorch operators") for fault in FAULTS),
        *(("writes nothing", [kernel], "differs from float64 by inf") for kernel in KERNELS),
    ],
)
@pytest.mark.parametrize("name", ["relu", "inhibitor"])
def test_training_goes_on_with_the_reference_and_one_warning(name, fault, kernels, reason, monkeypatch, caplog):
    expected = reference_step(name, monkeypatch)
    break_kernels(monkeypatch, FAULTS[fault], kernels)
    caplog.set_level(logging.WARNING, "relumt")  # `relumt` commands in earlier tests lower it
    for _ in range(2):
        torch.testing.assert_close(train_step(name), expected, rtol=1e-5, atol=1e-5)
    assert len(caplog.records) == 1
    assert "\n" not in caplog.text.strip() and reason in caplog.text


@pytest.mark.parametrize("fault", [None, "writes nothing", "too many resources"])
def test_float32_takes_over_where_half_precision_fails(fault, monkeypatch, inline_assembly, caplog):
    monkeypatch.setattr(inhibitor_triton, "supports_ptx", lambda: True)
    q, k, v = (torch.randn(1, 1, 5, 4, generator=torch.Generator().manual_seed(i)) for i in range(3))
    call = functools.partial(
        checked_calls.attend_inhibitor, q, k, v, 2.0, torch.full((1, 1, 1), 0.5), AttentionMask(), 0.0
    )
    expected = call(False)
    assert torch.equal(call(True), expected)  # off by default
    monkeypatch.setenv("RELUMT_KERNELS", "experimental")
    if fault:
        monkeypatch.setattr(inhibitor_triton.inhibitor_triton_fp16, "forward", FaultyKernel(FAULTS[fault]))
    outputs = [call(True) for _ in range(2)]
    assert all(torch.equal(output, expected) == bool(fault) for output in outputs)
    torch.testing.assert_close(outputs[0], expected, rtol=1e-2, atol=1e-3)
    assert ["or other kernels" in x.message for x in caplog.records] == [True] * bool(fault)


@pytest.mark.parametrize(
    ("name", "is_faulty"),
    [("relu", True), *(pytest.param(*x, marks=pytest.mark.slow) for x in (("relu", False), ("inhibitor", True)))],
)
def test_compiled_calls_are_checked_while_they_are_traced(name, is_faulty, monkeypatch, caplog):
    expected = reference_step(name, monkeypatch)
    calls = []
    for module in (pointwise_triton, inhibitor_triton):
        original = module.run_forward
        monkeypatch.setattr(module, "run_forward", lambda *args, f=original: calls.append(f) or f(*args))
    if is_faulty:
        break_kernels(monkeypatch, FAULTS["writes nothing"])
    caplog.set_level(logging.WARNING, "relumt")
    torch._dynamo.reset()
    compiled = functools.partial(torch.compile, backend="aot_eager", fullgraph=True, dynamic=True)
    for _ in range(2):
        torch.testing.assert_close(train_step(name, compiled), expected, rtol=1e-4, atol=1e-4)
    assert len(calls) == (1 if is_faulty else 3)
    assert len([x for x in caplog.records if "differs from float64" in x.message]) == is_faulty


@pytest.mark.usefixtures("bfloat16")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_finds_an_error_of_one_percent_in_every_type(dtype, monkeypatch):
    kind = "float32" if dtype == torch.float32 else "short"
    config = PointwiseConfig("relu", dtype, dtype, 16, kind, kind)
    assert check_config(config, CPU) == ""
    original = pointwise_triton.run_forward

    def scaled(*args):
        output, *row_stats = original(*args)
        return output * 1.01, *row_stats

    monkeypatch.setattr(pointwise_triton, "run_forward", scaled)
    assert check_config(config, CPU).startswith("the output differs from float64 by 0.01 ")


def test_finds_dropout_that_differs_between_the_passes(monkeypatch):
    config = PointwiseConfig("relu", torch.float32, torch.float32, 16, "float32", "float32", has_dropout=True)
    assert check_config(config, CPU) == ""

    class OtherSeed:
        """The kernel of k's and v's gradients with dropout of its own."""

        def __getitem__(self, grid):
            kernel = original[grid]
            return lambda *args, **options: kernel(*map(with_other_seed, args), **options)

    def with_other_seed(argument):
        return Dropout(argument.p, argument.seed + 1) if isinstance(argument, Dropout) else argument

    original = pointwise_triton.backward_dkdv
    monkeypatch.setattr(pointwise_triton, "backward_dkdv", OtherSeed())
    assert check_config(config, CPU).startswith("the gradient of k differs from float64")


def test_leaves_random_numbers_and_settings_alone(monkeypatch):
    state = torch.get_rng_state()
    for run_forward, expected in ((pointwise_triton.run_forward, ""), (raising(RuntimeError()), "TypeError")):
        monkeypatch.setattr(pointwise_triton, "run_forward", run_forward)
        assert check_config(CONFIG, CPU).partition(":")[0] == expected
        assert torch.equal(torch.get_rng_state(), state) and not torch.are_deterministic_algorithms_enabled()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        config = InhibitorConfig(False, 16, 16)
        assert check_config(config, CPU) == ""
        assert torch.is_inference_mode_enabled() and torch.is_autocast_enabled("cpu")


def test_a_kernel_that_crashes_the_gpu_ends_the_process_with_advice(monkeypatch):
    monkeypatch.setattr(self_check, "check_config", lambda config, device: "an illegal memory access")
    monkeypatch.setattr(self_check, "is_usable", lambda device: False)
    with pytest.raises(
        AttemptFailedError, match=r"made cpu unusable .*illegal memory access.*RELUMT_KERNELS=reference"
    ):
        self_check.verdicts(CPU).run(CONFIG, lambda: 1)


def test_a_launch_that_fails_later_is_not_tried_again(monkeypatch, caplog):
    train_step("relu")
    break_kernels(monkeypatch, FAULTS["cache cannot be written"])
    expected = reference_step("relu", monkeypatch)
    for _ in range(2):
        torch.testing.assert_close(train_step("relu"), expected)
    assert len(caplog.records) == 1 and "Permission denied" in caplog.text


def test_running_out_of_memory_is_not_the_kernels_fault(monkeypatch):
    monkeypatch.setattr(self_check, "check_config", lambda config, device: "")
    verdicts = self_check.verdicts(CPU)
    with pytest.raises(torch.OutOfMemoryError):
        verdicts.run(CONFIG, raising(torch.OutOfMemoryError("CUDA out of memory")))
    assert verdicts.run(CONFIG, lambda: 1) == 1
