"""`scripts/evaluate.sh … --bf16`: what is recorded, and what is refused."""

import pytest

from relumt.errors import UserError
from relumt.runs.environment import Device
from relumt.runs.evaluation_check import check_evaluation
from relumt.runs.evaluation_setup import describe_evaluation
from relumt.runs.flag_checks import check_generate_flags
from tests.runs.cases import train, write_checkpoint

FP32 = Device("cpu", "x86_64", 1, "fp32")


def generate_command(config, *flags):
    return config.generate_command(config.generate_flags(list(flags), {}), "checkpoint_best.pt", config.folder, FP32)


@pytest.mark.parametrize(("flags", "precision"), [([], "fp32"), (["--bf16"], "bf16")])
@pytest.mark.parametrize("trained_in", ["fp32", "bf16", "fp16"])
def test_an_evaluation_records_its_own_precision(config, flags, precision, trained_in):
    write_checkpoint(config)
    device = Device("cpu", "x86_64", 1, trained_in)
    setup = describe_evaluation(config, config.generate_flags(flags, {}), device, one_by_one=False)
    assert setup.environment.device.precision == precision
    assert ("--bf16" in setup.flags) == (precision == "bf16")


@pytest.mark.parametrize(("is_fast", "reason"), [(True, ""), (False, "--bf16 needs a CPU with AVX512-BF16 or AMX")])
def test_a_slow_cpu_is_refused_before_anything_is_written(config, monkeypatch, is_fast, reason):
    monkeypatch.setattr("relumt.cpu_products.has_fast_bf16", lambda: is_fast)
    command = generate_command(config, "--bf16")
    if is_fast:
        check_generate_flags(command)
    else:
        with pytest.raises(UserError, match=reason):
            check_generate_flags(command)


def test_stock_models_are_refused(config, step, refused):
    train(config, step)
    assert "--bf16 works with relumt's architectures, found --arch transformer" in refused(check_evaluation, "--bf16")


@pytest.mark.parametrize("flag", ["--fp16", "--cpu-bf16"])
def test_other_precisions_are_refused(config, flag):
    with pytest.raises(UserError, match=f"{flag} is set by the scripts"):
        config.generate_flags([flag], {})
