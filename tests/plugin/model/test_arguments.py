"""Command-line arguments of models: what they select, and what is rejected with one line."""

from argparse import Namespace

import pytest
import torch
from fairseq import options
from fairseq.models import ARCH_CONFIG_REGISTRY
from omegaconf import OmegaConf

from relumt.attention import MECHANISMS
from relumt.errors import UserError
from relumt.plugin.model.hooks import named_attentions
from relumt.plugin.model.mechanism_transformer import vocabulary_fingerprint
from relumt.plugin.options import ARCHITECTURES
from tests.plugin.model.build import arguments, build, dictionary, sample, task


def mechanisms_by_site(model):
    return {attention.site: type(attention.mechanism) for attention in named_attentions(model).values()}


def test_each_site_can_have_another_mechanism():
    relu, softmax = (type(MECHANISMS[name](1, 1)) for name in ("relu", "softmax"))
    model = build("mechanism_transformer", "--attention", "relu", "--attention-cross", "softmax")
    assert mechanisms_by_site(model) == {"encoder": relu, "decoder": relu, "cross": softmax}


def test_options_reach_the_mechanism():
    model = build("reluformer", "--relu-gamma", "0.5", "--relu-scale", "none")
    options = next(iter(named_attentions(model).values())).mechanism.options
    assert (options.gamma, options.scale) == (0.5, "none")


@pytest.mark.parametrize("prefix", ARCHITECTURES)
@pytest.mark.parametrize(
    ("suffix", "expected"),
    [("_tiny", (2, 64, 64, 2)), ("_iwslt_de_en", (6, 512, 1024, 4)), ("_wmt_en_de", (6, 512, 2048, 8))],
)
def test_architectures_have_the_papers_sizes(prefix, suffix, expected):
    args = Namespace()
    ARCH_CONFIG_REGISTRY[prefix + suffix](args)
    for side in ("encoder", "decoder"):
        names = ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
        assert tuple(getattr(args, f"{side}_{name}") for name in names) == expected
    assert args.decoder_output_dim == expected[1]
    assert args.attention == ARCHITECTURES[prefix]


REJECTED = {
    "--relu-gamma 2": "--relu-gamma is an option of relu, relu2, but the attention is softmax",
    "--attention relu --relu-gamma -1": "--relu-gamma must be a number from 1e-06 to 1e+06, not -1.0",
    "--attention inhibitor --inhibitor-shift nan": "--inhibitor-shift must be a number from -1e+06 to 1e+06, not nan",
    "--share-all-embeddings --decoder-embed-dim 32": "fairseq cannot build this model: --share-all-embeddings requires",
    "--log-attention-interval 5 --checkpoint-activations": "cannot observe layers under --checkpoint-activations",
    "--attention rela_g --attention-softmax-epochs 2": "would not train the parameters of rela_g attention",
    "--bf16 --cpu": "--bf16 needs a GPU, and none was found or --cpu is set",
}


@pytest.mark.parametrize("flags", REJECTED)
def test_invalid_arguments_are_rejected(flags, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: "--cpu" in flags)
    with pytest.raises(UserError) as rejected:
        build("mechanism_transformer", *flags.split())
    assert REJECTED[flags] in str(rejected.value)


def test_overrides_for_another_model_of_an_ensemble_are_ignored():
    checkpoint_args = arguments("--arch", "reluformer")
    checkpoint_args.vocabulary_fingerprint = vocabulary_fingerprint(dictionary(), dictionary())
    checkpoint_args.inhibitor_implementation = "naive"  # --model-overrides sets it for all models
    assert task().build_model(checkpoint_args)


def test_a_checkpoint_of_another_vocabulary_is_rejected():
    args = arguments("--arch", "reluformer")
    task(20).build_model(args)
    with pytest.raises(UserError, match="the checkpoint's vocabulary"):
        task(21).build_model(args)


def test_activation_checkpointing_does_not_change_the_output():
    batch = sample([(5, 4), (2, 3)])
    plain, checkpointed = build("reluformer"), build("reluformer", "--checkpoint-activations")
    torch.testing.assert_close(plain(**batch["net_input"])[0], checkpointed(**batch["net_input"])[0])


def test_bf16_trains_on_the_gpu_if_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert not arguments("--arch", "reluformer", "--bf16").tpu


def count_base_parameters(attention):
    flags = ["nowhere", "--arch", "mechanism_transformer_wmt_en_de", "--attention", attention]
    args = options.parse_args_and_arch(options.get_training_parser(), flags)
    with torch.device("meta"):
        model = task().build_model(args)
    return sum(parameter.numel() for parameter in model.parameters())


def test_rela_g_adds_a_gain_and_a_gate_to_each_attention_of_the_base_model():
    """18,432; [RL] Table 2's rounding, 72.31 M → 72.34 M, implies 20 to 40 thousand."""
    assert count_base_parameters("rela_g") - count_base_parameters("softmax") == 18 * 2 * 512


def test_a_checkpoint_keeps_the_defaults_it_was_trained_with():
    args = arguments("--arch", "reluformer", "--feedforward-decoder", "softmax")
    task().build_model(args)
    kept = {option: getattr(args, option) for option in ("relu_gamma", "relu_scale", "memory_temperature")}
    assert kept == {"relu_gamma": 1.0, "relu_scale": "visible", "memory_temperature": 1.0}
    assert not hasattr(args, "inhibitor_shift")


def prepare_for_generation(model, **flags):
    generation = {"print_alignment": None, "retain_dropout_modules": None} | flags
    model.prepare_for_inference_(OmegaConf.create({"common": {"bf16": False}, "generation": generation}))
    return model


@pytest.mark.parametrize(
    ("modules", "is_retained"), [(None, True), (["MultiheadAttention"], True), (["TransformerEncoder"], False)]
)
def test_dropout_of_attention_is_retained_if_it_is_chosen(modules, is_retained):
    batch = sample([(7, 5), (3, 8)])["net_input"]
    model = build("mechanism_transformer", "--attention-dropout", "0.5").eval()
    assert torch.equal(model(**batch)[0], model(**batch)[0])
    prepare_for_generation(model, retain_dropout=True, retain_dropout_modules=modules)
    assert torch.equal(model(**batch)[0], model(**batch)[0]) != is_retained


def test_an_alignment_of_attention_without_weights_is_rejected():
    model = prepare_for_generation(build("inhibitor", "--inhibitor-implementation", "naive"), print_alignment="soft")
    with pytest.raises(UserError, match="InhibitorAttention has no attention weights to align with"):
        model(**sample([(3, 2)])["net_input"])
