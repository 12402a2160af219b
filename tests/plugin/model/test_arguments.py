"""Command-line arguments of models: what they select, and what is rejected with one line."""

import pytest
import torch
from fairseq import options
from fairseq.modules.fairseq_dropout import FairseqDropout
from omegaconf import OmegaConf

from relumt.attention import MECHANISMS
from relumt.plugin.model.dropout import Dropout
from relumt.plugin.model.hooks import named_attentions
from relumt.plugin.model.mechanism_transformer import vocabulary_fingerprint
from tests.plugin.model.build import arguments, build, dictionary, sample, task


def mechanisms_by_site(model):
    return {attention.site: type(attention.mechanism) for attention in named_attentions(model).values()}


def test_each_site_can_have_another_mechanism():
    relu, softmax = (type(MECHANISMS[name](1, 1)) for name in ("relu", "softmax"))
    model = build("mechanism_transformer", "--attention", "relu", "--attention-cross", "softmax")
    assert mechanisms_by_site(model) == {"encoder": relu, "decoder": relu, "cross": softmax}


@pytest.mark.parametrize(
    ("arch", "name"),
    [("mechanism_transformer", "softmax"), ("reluformer", "relu"), ("rela", "rela_g"), ("inhibitor", "inhibitor")],
)
def test_an_architecture_has_its_mechanism_at_all_sites(arch, name):
    assert set(mechanisms_by_site(build(arch)).values()) == {type(MECHANISMS[name](1, 1))}


def test_options_reach_the_mechanism():
    model = build("reluformer", "--relu-gamma", "0.5", "--relu-scale", "none")
    options = next(iter(named_attentions(model).values())).mechanism.options
    assert (options.gamma, options.scale) == (0.5, "none")


@pytest.mark.parametrize("prefix", ["reluformer", "mechanism_transformer", "rela", "inhibitor"])
@pytest.mark.parametrize(
    ("suffix", "expected"),
    [
        ("_tiny", (2, 64, 64, 2)),
        ("_iwslt_de_en", (6, 512, 1024, 4)),
        ("_wmt_en_de", (6, 512, 2048, 8)),
    ],
)
def test_architectures_have_the_papers_sizes(prefix, suffix, expected):
    args = options.parse_args_and_arch(options.get_training_parser(), ["nowhere", "--arch", prefix + suffix])
    for side in ("encoder", "decoder"):
        sizes = tuple(
            getattr(args, f"{side}_{size}") for size in ("layers", "embed_dim", "ffn_embed_dim", "attention_heads")
        )
        assert sizes == expected
    assert args.decoder_output_dim == expected[1]


def build_rejected(capsys, *flags, arch):
    """Return the message with which building the model exits."""
    with pytest.raises(SystemExit) as stopped:
        build(arch, *flags)
    message = capsys.readouterr().err
    assert stopped.value.code == 2 and message.count("\n") == 1
    return message


@pytest.mark.parametrize(
    ("arch", "flags", "message"),
    [
        (
            "mechanism_transformer",
            "--relu-gamma 2",
            "--relu-gamma is an option of relu, relu2, but the attention is softmax",
        ),
        ("reluformer", "--relu-gamma -1", "--relu-gamma must be a number from 1e-06 to 1e+06, not -1.0"),
        ("reluformer", "--relu-gamma inf", "--relu-gamma must be a number from 1e-06 to 1e+06, not inf"),
        ("reluformer", "--relu-initial-gain nan", "--relu-initial-gain must be a number from -1e+06 to 1e+06, not nan"),
        ("inhibitor", "--inhibitor-shift nan", "--inhibitor-shift must be a number from -1e+06 to 1e+06, not nan"),
        ("rela", "--attention-dropout 1.5", "1.5"),
        ("rela", "--share-all-embeddings --decoder-embed-dim 32", "--share-all-embeddings needs equal sizes"),
        ("rela", "--encoder-attention-heads 3", "--encoder-attention-heads 3 does not divide --encoder-embed-dim 16"),
        ("rela", "--decoder-attention-heads 0", "--decoder-attention-heads is 0; choose a number from 1"),
        ("rela", "--criterion label_smoothed_cross_entropy_with_alignment", "use --arch transformer_align"),
        ("rela", "--log-attention-interval 0", "--log-attention-interval must be at least 1, not 0"),
        (
            "rela",
            "--log-attention-interval 5 --checkpoint-activations",
            "cannot observe layers under --checkpoint-activations",
        ),
        (
            "rela",
            "--log-attention-interval 5 --offload-activations",
            "cannot observe layers under --offload-activations",
        ),
        (
            "rela",
            "--no-cross-attention --attention-cross softmax",
            "--attention-cross has no effect with --no-cross-attention; drop one of them",
        ),
    ],
)
def test_invalid_arguments_are_rejected_with_one_line(capsys, arch, flags, message):
    assert message in build_rejected(capsys, *flags.split(), arch=arch)


def test_an_unknown_mechanism_is_rejected_with_a_list_of_the_known_ones(capsys):
    message = build_rejected(capsys, "--attention", "sotfmax", arch="mechanism_transformer")
    assert "'sotfmax'" in message
    assert all(name in message for name in MECHANISMS)


def test_an_unknown_choice_of_kernels_is_rejected_before_the_first_step(capsys, monkeypatch):
    monkeypatch.setenv("RELUMT_KERNELS", "fast")
    assert "RELUMT_KERNELS is 'fast'; it must be one of" in build_rejected(capsys, arch="reluformer")


def test_overrides_for_another_model_of_an_ensemble_are_ignored():
    checkpoint_args = arguments("--arch", "reluformer")
    checkpoint_args.vocabulary_fingerprint = vocabulary_fingerprint(dictionary(), dictionary())
    checkpoint_args.inhibitor_implementation = "naive"  # --model-overrides sets it for all models
    assert task().build_model(checkpoint_args)


def test_a_vocabulary_fingerprint_depends_on_the_symbols_only():
    one, other = dictionary(20), dictionary(21)
    assert vocabulary_fingerprint(one, one) == vocabulary_fingerprint(dictionary(20), one)
    assert vocabulary_fingerprint(one, one) != vocabulary_fingerprint(one, other)


def test_a_checkpoint_of_another_vocabulary_is_rejected(capsys):
    args = arguments("--arch", "reluformer")
    task(20).build_model(args)
    with pytest.raises(SystemExit):
        task(21).build_model(args)
    assert "the checkpoint's vocabulary" in capsys.readouterr().err


def test_one_embedding_for_two_dictionaries_is_rejected(capsys):
    two_dictionaries = task()
    two_dictionaries.tgt_dict = dictionary(21)
    with pytest.raises(SystemExit):
        two_dictionaries.build_model(arguments("--arch", "reluformer", "--share-all-embeddings"))
    assert "--share-all-embeddings needs one dictionary for both languages" in capsys.readouterr().err


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


def test_the_last_batch_is_translated_whatever_its_size():
    """fairseq-generate skips one whose size is no multiple of 8."""
    settings = OmegaConf.create({"common": {"bf16": False}, "dataset": {"required_batch_size_multiple": 8}})
    settings.generation = {"print_alignment": None, "retain_dropout_modules": None}
    build("reluformer").prepare_for_inference_(settings)
    assert settings.dataset.required_batch_size_multiple == 1


def test_replacement_of_unknown_words_is_refused(capsys):
    with pytest.raises(SystemExit):
        prepare_for_generation(build("reluformer"), replace_unk="@@ ")
    assert "--replace-unk fails in fairseq with the alignments of its Transformers" in capsys.readouterr().err


def test_retain_dropout_includes_the_dropout_of_attention():
    batch = sample([(7, 5), (3, 8)])["net_input"]
    model = build("mechanism_transformer", "--attention-dropout", "0.5").eval()
    assert torch.equal(model(**batch)[0], model(**batch)[0])
    prepare_for_generation(model, retain_dropout=True)
    assert not torch.equal(model(**batch)[0], model(**batch)[0])


def test_an_alignment_of_attention_without_weights_is_rejected(capsys):
    model = prepare_for_generation(build("inhibitor", "--inhibitor-implementation", "naive"), print_alignment="soft")
    with pytest.raises(SystemExit) as stopped:
        model(**sample([(3, 2)])["net_input"])
    assert stopped.value.code == 2
    assert "InhibitorAttention has no attention weights to align with" in capsys.readouterr().err


@pytest.mark.parametrize("flags", ["", "--checkpoint-activations", "--encoder-layerdrop 0.5"])
def test_all_dropouts_of_a_model_are_the_fast_ones(flags):
    model = build("reluformer", *flags.split())
    dropouts = [module for module in model.modules() if isinstance(module, FairseqDropout)]
    assert dropouts
    assert all(type(module) is Dropout for module in dropouts)
