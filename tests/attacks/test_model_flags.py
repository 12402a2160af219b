"""Flags of models, criterions and tasks: values that no model can be built with, or that would train another one."""

import copy
import math
import shlex
import sys

import pytest
import torch

from relumt.attention import MECHANISMS
from relumt.attention.feedforward import FEEDFORWARDS
from relumt.attention.variant_spec import FINITE, POSITIVE, flag_name
from relumt.plugin.options import VARIANT_CHOICES
from relumt.plugin.tasks.documents import DocumentsConfig, DocumentsTask
from relumt.plugin.training_device import check_training_device
from tests.plugin.model.build import arguments, dictionary, sample, task

pytestmark = pytest.mark.attack("flags")

REGULARIZED = "--criterion label_smoothed_cross_entropy_with_attention_regularization"
SMOOTHED = "--criterion label_smoothed_cross_entropy"


def train_step(flags: str) -> float:
    """Build the model and the criterion that `flags` describe, as fairseq-train does; return the loss of a batch."""
    args, translation = arguments(*shlex.split(flags)), task()
    model = translation.build_model(args)
    criterion = translation.build_criterion(args)
    loss, *_ = criterion(model.train(), sample([(5, 4), (2, 3)]))
    loss.backward()
    return loss.item()


def refuse(attack, flags: str) -> str:
    """Return the error line for `flags`."""
    ended = attack.calls(lambda: train_step(flags))
    assert ended.status == 2
    return ended.error


NAMES = {
    "": "is empty",
    " ": "unknown",
    "softmax,": "did you mean 'softmax'?",
    "softmax,relu": "unknown",
    "softmax relu": "unknown",
    " relu": "did you mean 'relu'?",
    "RELU": "did you mean 'relu'?",
    "sotfmax": "did you mean 'softmax'?",
    "ѕoftmax": "'\\u0455oftmax' in",  # Cyrillic s
    "ｒｅｌｕ": "did you mean 'relu'?",  # full width
    "re\u200blu": "'re\\u200blu' in",
    "relu\n": "did you mean 'relu'?",
    "None": "unknown",
    "__class__": "unknown",
    "0": "unknown",
    "x" * 5000: "unknown",
}


@pytest.mark.parametrize("flag", ["--attention", "--attention-cross", "--feedforward", "--feedforward-decoder"])
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_only_the_exact_name_of_a_variant_is_accepted(attack, flag, name):
    error = refuse(attack, f"--arch reluformer {flag} {shlex.quote(name)}")
    expected = NAMES[name] if "feedforward" not in flag or "soft" not in name else "unknown"
    assert flag in error and expected in error and len(error) < 500


@pytest.mark.parametrize("choice", VARIANT_CHOICES, ids=lambda choice: choice.name)
def test_an_empty_name_is_refused_even_if_every_site_has_one(attack, choice):
    sites = " ".join(f"--{choice.name}-{site} relu" for site in choice.sites)
    assert f"--{choice.name} is empty" in refuse(attack, f"--arch mechanism_transformer --{choice.name} '' {sites}")


def numeric_options():
    """Return the flags that choose a variant, and the flag and range of each of its options that is a number."""
    found = []
    for choice, registry in zip(VARIANT_CHOICES, (MECHANISMS, FEEDFORWARDS), strict=True):
        for attribute, (option, owners) in choice.options().items():
            if option.type is float:
                assert owners[0] in registry
                limits = option.metadata.get("range", FINITE)
                found.append((f"--{choice.name} {owners[0]}", flag_name(attribute), limits))
    return found


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e30", "-1e30"])
@pytest.mark.parametrize(("variant", "flag"), [one[:2] for one in numeric_options()])
def test_options_of_variants_must_be_in_range(attack, variant, flag, value):
    assert f"{flag} must be a number from" in refuse(attack, f"--arch mechanism_transformer {variant} {flag}={value}")


@pytest.mark.parametrize("value", ["0", "-1", "1e-30", "-0.0"])
@pytest.mark.parametrize(("variant", "flag"), [one[:2] for one in numeric_options() if one[2] == POSITIVE])
def test_divisors_must_be_positive_and_not_tiny(attack, variant, flag, value):
    assert f"{flag} must be a number from 1e-06" in refuse(
        attack, f"--arch mechanism_transformer {variant} {flag} {value}"
    )


def test_the_ends_of_the_ranges_of_options_give_finite_losses(attack):
    losses = []
    for variant, flag, limits in numeric_options():
        naive = "--inhibitor-implementation naive" if "inhibitor" in flag else ""
        for value in limits:
            flags = f"--arch mechanism_transformer {variant} {flag}={value} {naive}"
            assert attack.calls(lambda flags=flags: losses.append(train_step(flags))).status == 0
    assert len(losses) == 2 * len(numeric_options()) and all(map(math.isfinite, losses))


INVALID = {
    "--encoder-embed-dim 0": "--encoder-embed-dim is 0; choose a number from 4",
    "--encoder-embed-dim 2": "--encoder-embed-dim is 2",
    "--decoder-embed-dim 3": "--decoder-embed-dim is 3",
    "--encoder-embed-dim -16": "--encoder-embed-dim is -16",
    "--decoder-embed-dim 0": "--decoder-embed-dim is 0",
    "--encoder-embed-dim 99999999": "--encoder-embed-dim is 99999999; choose a number from 4 to 1048576",
    "--encoder-embed-dim 15": "--encoder-attention-heads 2 does not divide --encoder-embed-dim 15",
    "--encoder-attention-heads 0": "--encoder-attention-heads is 0",
    "--encoder-attention-heads -2": "--encoder-attention-heads is -2",
    "--decoder-attention-heads 3": "--decoder-attention-heads 3 does not divide",
    "--encoder-layers 0": "--encoder-layers is 0",
    "--decoder-layers 0": "--decoder-layers is 0",
    "--decoder-layers -1": "--decoder-layers is -1",
    "--encoder-layers 1000000": "--encoder-layers is 1000000; choose a number from 1 to 1024",
    "--encoder-ffn-embed-dim 0": "--encoder-ffn-embed-dim is 0",
    "--encoder-ffn-embed-dim -1": "--encoder-ffn-embed-dim is -1",
    "--decoder-ffn-embed-dim 1000000000000": "--decoder-ffn-embed-dim is 1000000000000",
    "--feedforward softmax --encoder-ffn-embed-dim 0": "--encoder-ffn-embed-dim is 0",
    "--feedforward swiglu --decoder-ffn-embed-dim -1": "--decoder-ffn-embed-dim is -1",
    "--max-source-positions 0": "--max-source-positions is 0",
    "--max-target-positions 0": "--max-target-positions is 0",
    "--max-source-positions -5": "--max-source-positions is -5",
    "--max-target-positions 10000000000": "--max-target-positions is 10000000000",
    "--decoder-output-dim 0": "--decoder-output-dim is 0",
    "--decoder-output-dim 12a": "--decoder-output-dim is 12a",
    "--share-decoder-input-output-embed --decoder-output-dim 8": "needs equal sizes, but --decoder-output-dim is 8",
    "--dropout 2": "--dropout is 2.0",
    "--dropout nan": "--dropout is nan",
    "--dropout -0.1": "--dropout is -0.1",
    "--attention-dropout nan": "--attention-dropout is nan",
    "--attention-dropout 1.5": "--attention-dropout is 1.5",
    "--activation-dropout inf": "--activation-dropout is inf",
    "--encoder-layerdrop nan": "--encoder-layerdrop is nan",
    "--decoder-layerdrop 2": "--decoder-layerdrop is 2.0",
    "--quant-noise-pq 0.1 --quant-noise-pq-block-size 7": "7 does not divide 16, --encoder-embed-dim",
    "--quant-noise-pq 0.1 --quant-noise-pq-block-size 5": "5 does not divide 16, --encoder-embed-dim",
    "--quant-noise-pq 0.1 --quant-noise-pq-block-size 0": "--quant-noise-pq-block-size is 0",
    "--quant-noise-pq 0.1 --quant-noise-pq-block-size -8": "--quant-noise-pq-block-size is -8",
    "--quant-noise-pq 0.1 --feedforward swiglu --gated-equal-parameters": "8 does not divide 21, the number of slots",
    "--quant-noise-pq nan": "--quant-noise-pq is nan",
    "--quant-noise-pq 2": "--quant-noise-pq is 2.0",
    "--quant-noise-pq 1": "--quant-noise-pq is 1, which drops every weight",
    "--quant-noise-scalar -1": "--quant-noise-scalar is -1.0",
    f"{SMOOTHED} --adaptive-softmax-cutoff 5,10": "works with --criterion adaptive_loss only",
    f"{REGULARIZED} --adaptive-softmax-cutoff 5,10": "works with --criterion adaptive_loss only",
    "--adaptive-softmax-cutoff 5,10": "works with --criterion adaptive_loss only, not with cross_entropy",
    "--criterion adaptive_loss --adaptive-softmax-cutoff 5,10 --share-all-embeddings": "writes checkpoints that",
    "--criterion adaptive_loss --adaptive-softmax-cutoff 5,100": "cannot specify cutoff larger than vocab size",
    f"{SMOOTHED} --label-smoothing nan": "--label-smoothing is nan",
    f"{SMOOTHED} --label-smoothing 2": "--label-smoothing is 2.0",
    f"{SMOOTHED} --label-smoothing -1": "--label-smoothing is -1.0",
    f"{SMOOTHED} --label-smoothing 1": "--label-smoothing is 1.0",
    f"{SMOOTHED} --label-smoothing inf": "--label-smoothing is inf",
    f"{SMOOTHED} --ignore-prefix-size -1": "--ignore-prefix-size is -1",
    "--log-attention-interval 0": "--log-attention-interval must be at least 1",
    "--log-attention-interval -9": "--log-attention-interval must be at least 1",
    "--encoder-embed-path nowhere.txt": "nowhere.txt",
    "--fp16": "--fp16 needs a GPU",
    "--bf16": "--bf16 needs a GPU",
    "--amp": "--amp needs a GPU",
    "--tpu": "--tpu asks for a TPU",
    "--bf16 --tpu": "--bf16 needs a GPU",
    "--memory-efficient-fp16": "--memory-efficient-fp16 needs a GPU",
    "--memory-efficient-bf16": "--memory-efficient-bf16 needs a GPU",
}


@pytest.mark.parametrize("flags", INVALID)
def test_a_model_that_cannot_be_trained_is_refused(attack, flags, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert INVALID[flags] in refuse(attack, f"--arch reluformer {flags}")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "-1", "1e30"])
@pytest.mark.parametrize("flag", ["--attention-norm-weight", "--attention-entropy-weight", "--attention-entropy-bound"])
def test_weights_and_bound_of_the_regularizer_must_be_in_range(attack, flag, value):
    assert f"{flag} must be a number from 0 to" in refuse(attack, f"--arch reluformer {REGULARIZED} {flag}={value}")


@pytest.mark.parametrize(
    "flags",
    [
        "--dropout 1 --attention-dropout 1 --activation-dropout 1",
        "--encoder-layerdrop 1 --decoder-layerdrop 1",
        "--encoder-ffn-embed-dim 1 --decoder-ffn-embed-dim 1",
        "--encoder-embed-dim 4 --decoder-embed-dim 4",
        "--feedforward reglu --gated-equal-parameters --encoder-ffn-embed-dim 1 --decoder-ffn-embed-dim 1",
        "--quant-noise-pq 0.9 --quant-noise-pq-block-size 16",
        "--no-cross-attention",
        "--cross-self-attention",
        f"{REGULARIZED} --attention-norm-weight 0 --attention-entropy-weight 0 --attention-entropy-bound 0",
        f"{REGULARIZED} --attention-entropy-bound 1",
        f"{SMOOTHED} --label-smoothing 0",
    ],
)
def test_extreme_but_valid_flags_train(attack, flags):
    losses = []
    assert attack.calls(lambda: losses.append(train_step(f"--arch reluformer {flags}"))).status == 0
    assert losses[0] == losses[0]


OVERRIDES = {
    "relu_gamma": ["1", "inf", True, None, [1.0], {}],
    "relu_scale": ["", "VISIBLE", None, 1, ["visible"]],
    "attention": ["", "relu ", 1, True],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in OVERRIDES.items() for value in values])
def test_values_of_other_types_in_a_checkpoint_are_refused(attack, name, value):
    args = copy.copy(arguments("--arch", "reluformer"))
    setattr(args, name, value)
    assert attack.calls(lambda: task().build_model(args)).status == 2


@pytest.mark.parametrize(
    ("length", "separator", "reason"),
    [
        (-1, "", "--document-length must be positive"),
        (-(10**9), "", "--document-length must be positive"),
        (10**9, "", "--document-length 1000000000 exceeds the model's 1024 positions"),
        (0, "w1", "--document-separator has no effect"),
    ],
)
def test_impossible_documents_are_refused(attack, length, separator, reason):
    config = DocumentsConfig(data="nowhere", source_lang="de", target_lang="en")
    config.document_length, config.document_separator = length, separator
    documents = DocumentsTask(config, dictionary(), dictionary())
    assert reason in attack.calls(lambda: documents.build_model(arguments("--arch", "reluformer"))).error


@pytest.mark.parametrize("value", ["nan", "inf", "1.5", "", "1e3", "٣"])
def test_a_document_length_that_is_no_whole_number_is_refused(attack, value):
    """The last value is a digit in another script, which int() takes."""
    flags = ["--arch", "reluformer", "--task", "translation_documents", "--document-length", value]
    assert attack.calls(lambda: arguments(*flags)).status == (0 if value == "٣" else 2)


@pytest.mark.parametrize("flag", ["--fp16", "--bf16", "--amp", "--memory-efficient-fp16"])
@pytest.mark.parametrize("cpu", ["--cpu", ""])
def test_a_stock_model_in_half_precision_needs_a_gpu_too(attack, flag, cpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(cpu))
    args = arguments("--arch", "transformer", flag, *cpu.split())
    documents = DocumentsTask(DocumentsConfig(data="nowhere", source_lang="de", target_lang="en"), *[dictionary()] * 2)
    assert f"{flag} needs a GPU" in attack.calls(lambda: documents.build_model(args)).error
    assert attack.calls(lambda: documents.build_model(args, from_checkpoint=True)).status == 0


def test_a_tpu_is_left_to_fairseq_if_its_library_is_installed(attack, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: sys if name == "torch_xla" else None)
    assert not attack.reads(check_training_device, arguments("--arch", "transformer", "--bf16"))
