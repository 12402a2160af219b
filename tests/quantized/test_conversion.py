"""A Transformer whose attention and linear layers compute with integers."""

from argparse import Namespace

import pytest
import torch
from torch import nn

from relumt.errors import UserError
from relumt.quantized.attention import IntegerInhibitor, SignedIntegerInhibitor
from relumt.quantized.calibration import observe_ranges
from relumt.quantized.conversion import quantize_
from relumt.quantized.linear import IntegerLinear
from relumt.quantized.quantization import Quantization
from tests.models.build import build, sample, task

LENGTHS = [(5, 6), (3, 4), (7, 3)]


def float_model(*flags):
    return build("inhibitor", "--inhibitor-implementation", "naive", *flags).eval()


def calibrated(model, lengths=LENGTHS):
    with torch.no_grad(), observe_ranges(model) as ranges:
        model(**sample(lengths)["net_input"])
    return ranges


@torch.no_grad()
def logits(model):
    return model(**sample(LENGTHS)["net_input"])[0]


@pytest.mark.parametrize("part", ["attention", "all"])
def test_logits_are_close_and_the_named_modules_are_replaced(part):
    model = float_model("--attention-cross", "inhibitor_signed")
    expected, ranges = logits(model), calibrated(model)
    converted = quantize_(model, Quantization(16, part), ranges)
    torch.testing.assert_close(logits(model), expected, atol=5e-3, rtol=0)
    assert not torch.equal(logits(model), expected)
    kinds = [type(module) for module in model.modules()]
    assert kinds.count(IntegerInhibitor) == 4 and kinds.count(SignedIntegerInhibitor) == 2  # 2+2 layers
    # q, k, v and output of 6 attentions, fc1 and fc2 of 4 layers, the output projection
    assert len(converted.linears) == kinds.count(IntegerLinear) == (33 if part == "all" else 0)
    assert kinds.count(nn.Linear) == 33 - len(converted.linears)


def test_fewer_bits_are_less_accurate():
    errors = []
    for bits in (16, 8, 4):
        model = float_model()
        expected, ranges = logits(model), calibrated(model)
        quantize_(model, Quantization(bits), ranges)
        errors.append((logits(model) - expected).abs().mean())
    assert errors[0] < errors[1] / 50 < errors[2] / 200


def test_settings_in_a_checkpoint_build_a_model_that_loads_it():
    model = float_model()
    quantize_(model, Quantization(12), calibrated(model))
    args = model.args
    args.quantized_bits, args.quantized_part = 12, "all"
    loaded = task().build_model(args).eval()
    loaded.load_state_dict(model.state_dict())
    assert torch.equal(logits(loaded), logits(model))


def test_calibration_takes_the_largest_values_of_all_batches():
    model = float_model()
    inputs = []
    model.encoder.layers[0].fc1.register_forward_pre_hook(lambda _, args: inputs.append(args[0].abs().max()))
    with torch.no_grad(), observe_ranges(model) as ranges:
        for seed in (1, 2):
            model(**sample(LENGTHS, seed)["net_input"])
    assert ranges.inputs["encoder.layers.0.fc1"] == max(inputs)
    assert {len(heads.pairs) for heads in ranges.heads.values()} == {2} and len(ranges.heads) == 6
    model(**sample(LENGTHS, 3)["net_input"])
    assert len(inputs) == 3 and ranges.inputs["encoder.layers.0.fc1"] == max(inputs[:2])


def test_a_model_without_the_inhibitor_is_refused():
    model = build("reluformer")
    with pytest.raises(UserError, match=r"expected a model with Inhibitor attention .* found none; choose another run"):
        quantize_(model, Quantization(16), calibrated(model))


@pytest.mark.parametrize(("bits", "part"), [(1, "all"), (17, "all"), (16, "values")])
def test_other_widths_and_parts_are_refused(bits, part):
    with pytest.raises(UserError, match="expected 2 to 16 bits of attention or all; choose these"):
        Quantization(bits, part)


def test_modules_without_usable_ranges_are_refused():
    model = float_model()
    ranges = calibrated(model)
    ranges.inputs["encoder.layers.0.fc1"] = torch.tensor(torch.inf)
    with pytest.raises(UserError, match=r"encoder.layers.0.fc1 has inputs that are not finite"):
        quantize_(model, Quantization(16), ranges)
    del ranges.heads["encoder.layers.1.self_attn.mechanism"]
    with pytest.raises(UserError, match=r"encoder.layers.1.self_attn.mechanism was not used in calibration"):
        quantize_(float_model(), Quantization(16), ranges)


def test_half_precision_is_refused(capsys):
    model = float_model()
    settings = Namespace(common=Namespace(fp16=True, bf16=False), generation=Namespace(print_alignment=None))
    quantize_(model, Quantization(16), calibrated(model))
    with pytest.raises(SystemExit):
        model.prepare_for_inference_(settings)
    assert "--fp16 would round the scales of a quantized model; drop the flag" in capsys.readouterr().err
