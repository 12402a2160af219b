"""PRECISION=bf16 on a CPU, from the device to the flags of fairseq-train."""

import pytest

from relumt.errors import UserError
from relumt.runs.environment import Device
from relumt.runs.flag_checks import check_train_flags

BF16 = Device("cpu", "x86_64", 1, "bf16")
FUSED = "fused_label_smoothed_cross_entropy"
REGULARIZED = "label_smoothed_cross_entropy_with_attention_regularization"


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ([], "cross_entropy"),
        (["--criterion", "label_smoothed_cross_entropy"], "label_smoothed_cross_entropy"),
        (["--criterion=adaptive_loss"], "adaptive_loss"),
        (["--criterion", "nonsense"], "nonsense"),
    ],
)
def test_a_criterion_that_knows_only_fp32_is_named(config, flags, found):
    command = config.train_command(config.train_flags(flags), BF16)
    with pytest.raises(UserError) as refused:
        check_train_flags(command)
    message = str(refused.value)
    assert message.startswith("PRECISION=bf16 on a CPU (--cpu-bf16) needs --criterion ")
    assert f"{FUSED} or {REGULARIZED}, found {found}; change the criterion" in message and "\n" not in message


def test_fp32_needs_no_certain_criterion(config):
    check_train_flags(config.train_command(config.train_flags([]), Device("cpu", "x86_64", 1, "fp32")))


@pytest.mark.parametrize("criterion", [FUSED, REGULARIZED])
@pytest.mark.parametrize(("is_fast", "reason"), [(False, "needs a CPU with AVX512-BF16 or AMX"), (True, "")])
def test_the_trial_of_the_flags_finds_slow_cpus(config, monkeypatch, criterion, is_fast, reason):
    monkeypatch.setattr("relumt.cpu_products.has_fast_bf16", lambda: is_fast)
    flags = ["--arch", "reluformer_tiny", "--criterion", criterion, "--label-smoothing", "0.1"]
    command = config.train_command(config.train_flags(flags), BF16)
    if is_fast:
        check_train_flags(command)
    else:
        with pytest.raises(UserError, match=reason):
            check_train_flags(command)


@pytest.mark.parametrize("flag", ["--cpu-bf16", "--bf16"])
def test_the_flag_is_set_by_precision_only(config, flag):
    with pytest.raises(UserError, match=f"{flag} is set by the scripts; set PRECISION"):
        config.train_flags([flag])
