"""Checkpoints that name other classes, contain code, paths or odd values: nothing runs, nothing is opened."""

import copy
import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.models.transformer import TransformerConfig
from fairseq.tasks import TASK_REGISTRY

import relumt
from relumt.checkpoints.fairseq_hooks import default_sections
from relumt.checkpoints.settings import (
    CRITERION_TYPES,
    KNOWN_NAMES,
    MODEL_TYPES,
    TASK_TYPES,
    variant_types,
)
from relumt.checkpoints.vetting import vet_checkpoint
from relumt.models.argument_checks import MAX_SIZE
from tests.attacks.checkpoint_cases import refuse, saved
from tests.models.build import sample, trainer, write_data_bin

pytestmark = pytest.mark.attack("checkpoints")


@pytest.fixture
def forge(intact):
    """Return the contents of a checkpoint with other settings, in one of the forms in which fairseq stores them."""

    def forged(form: str = "cfg", component: str = "model", /, **settings: Any) -> dict[str, Any]:
        config = {name: copy.copy(section) for name, section in intact["cfg"].items()}
        if form == "args":
            names = {name: config[name]["_name"] for name in ("task", "criterion", "optimizer", "lr_scheduler")}
            flat = vars(config["model"]) | config["task"] | names | settings
            if "_name" in settings:
                flat["arch" if component == "model" else component] = settings["_name"]
            return intact | {"args": Namespace(**flat), "cfg": None}
        section = config[component] or {}
        values = (vars(section) if isinstance(section, Namespace) else section) | settings
        is_namespace = component == "model" and form == "cfg"
        return intact | {"cfg": config | {component: Namespace(**values) if is_namespace else values}}

    return forged


FORMS = ("cfg", "dictionary", "args")

OTHER_MODELS = (
    "fconv fconv_iwslt_de_en fconv_self_att fconv_lm lightconv lightconv_lm lstm transformer_lm hubert wav2vec2 "
    "transformer_from_pretrained_xlm transformer_iwslt_de_en_pipeline_parallel multilingual_transformer xm_transformer "
    "hf_gpt2 nonautoregressive_transformer dummy_model RELUFORMER reluformer\n ../reluformer"
)


@pytest.mark.parametrize("form", FORMS)
def test_other_models_are_refused(attack, forge, form):
    code = f"__import__('os').system({attack.payload!r})"
    hidden = {"encoder_layers": code, "decoder_layers": code, "decoder_attention": code, "conv_feature_layers": code}
    for name in OTHER_MODELS.split(" "):
        refuse(attack, forge(form, arch=name, _name=name, **hidden), "rejected the model")


def test_names_that_are_no_text_are_refused(attack, forge):
    for name in ("", 5, True, ["reluformer"], {"_name": "fconv"}, Namespace(), 1.0):
        refuse(attack, forge(arch=name, _name=name), "rejected the model")


def test_two_names_of_one_model_are_refused(attack, forge):
    refuse(attack, forge(_name="softmax"), "rejected the model")
    refuse(attack, forge(arch="transformer", _name="reluformer"), "rejected the model 'transformer'")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("component", "name"),
    [
        ("task", "audio_pretraining"),
        ("task", "translation_multi_simple_epoch"),
        ("task", "online_backtranslation"),
        ("task", "text_to_speech"),
        ("task", "translation_lev"),
        ("criterion", "ctc"),
        ("criterion", "model"),
        ("optimizer", "evil"),
        ("lr_scheduler", "evil"),
        ("tokenizer", "evil"),
        ("bpe", "evil"),
        ("scoring", "evil"),
    ],
)
def test_other_components_are_refused(attack, forge, form, component, name):
    refuse(attack, forge(form, component, _name=name), f"rejected the {component} '{name}'")


@pytest.mark.parametrize("form", FORMS)
def test_code_in_a_setting_of_the_model_is_refused(attack, forge, form):
    for name in MODEL_TYPES | variant_types():
        refuse(attack, forge(form, **{name: f"__import__('os').system({attack.payload!r})"}), f"the setting {name}=")


@pytest.mark.parametrize("name", ["encoder_ffn_embed_dim", "max_target_positions", "decoder_output_dim"])
def test_the_largest_size_that_can_be_trained_can_be_loaded(attack, forge, name):
    """fairseq leaves the last one as text."""
    size = str(MAX_SIZE) if name == "decoder_output_dim" else MAX_SIZE
    assert attack.reads(vet_checkpoint, forge(**{name: size}), "large.pt") == ""
    refuse(attack, forge(**{name: 100 * MAX_SIZE}), f"the setting {name}=")


NUMBERS_OF_TASK = (
    "max_source_positions max_target_positions document_length num_batch_buckets required_seq_len_multiple "
    "upsample_primary"
).split()


@pytest.mark.parametrize("name", TASK_TYPES)
def test_other_settings_of_the_task_are_refused(attack, forge, name):
    for value in ("${oc.env:HOME}", "${model}", "a\nb", "\x00", ["a"], {"a": "b"}):
        refuse(attack, forge("cfg", "task", **{name: value}), f"the setting {name}=")
    number = forge("cfg", "task", **{name: 5})
    assert bool(attack.reads(vet_checkpoint, number, "odd.pt")) != (name in NUMBERS_OF_TASK)


def test_code_in_a_setting_of_the_criterion_is_refused(attack, forge):
    for name in CRITERION_TYPES:
        refuse(attack, forge("cfg", "criterion", **{name: attack.payload}), f"the setting {name}=")


def test_languages_that_are_paths_or_commands_are_refused(attack, forge):
    for language in ("de; touch x", "../de", "-de", "$(touch x)", "de/en", "", "de en", "d" * 65):
        refuse(attack, forge("cfg", "task", source_lang=language), "the setting source_lang=")


def test_formats_of_data_that_run_commands_are_refused(attack, forge):
    for name in ("fasta", "huffman", "evil"):
        refuse(attack, forge("cfg", "task", dataset_impl=name), "the setting dataset_impl=")


def nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("name", ["encoder_layers", "decoder_embed_dim"])
def test_sizes_that_are_no_numbers_are_refused(attack, forge, name):
    numbers = (float("nan"), float("inf"), -1, 10**9, 10**40, 2.5, True, None)
    others = ("", "2", [2], (2,), {2: 2}, torch.tensor(2), torch.tensor([2]), Namespace(a=1), b"2", nested(300))
    for value in (*numbers, *others, {"a": nested(300)}):
        refuse(attack, forge(**{name: value}), f"the setting {name}=")


@pytest.mark.parametrize(
    ("name", "size"),
    [("encoder_layers", 60_000), ("decoder_layers", 1), ("encoder_embed_dim", 65_536), ("decoder_embed_dim", 8)],
)
def test_sizes_that_do_not_fit_the_weights_are_refused(attack, forge, name, size):
    refuse(attack, forge(**{name: size}), f"{name}={size}, but")


PATHS = (
    "encoder_embed_path decoder_embed_path pretrained_checkpoint restore_file finetune_from_model lm_path path "
    "quantization_config_path ema_seed_model load_pretrained_encoder_from eval_bleu_detok config_yaml"
).split()
EVALUATED = (
    "adam_betas adam_eps lr update_freq model_overrides optimizer_overrides encoder_attention character_filters "
    "xformers_att_config wer_args conv_feature_layers post_save_script _target_ build_model eval_bleu_args"
).split()


@pytest.mark.parametrize("component", ["model", "task", "criterion"])
@pytest.mark.parametrize("form", FORMS)
def test_settings_that_no_translation_model_reads_are_dropped(attack, forge, data_bin, form, component):
    plugin, fifo = attack.folder / "plugin", attack.folder / "fifo"
    plugin.mkdir()
    code = f"__import__('os').system({attack.payload!r})"
    (plugin / "__init__.py").write_text(code)
    os.mkfifo(fifo)  # opening it would block
    hidden = dict.fromkeys(PATHS, str(fifo)) | dict.fromkeys(EVALUATED, code)
    hidden |= {
        "user_dir": str(plugin),
        "common": {"user_dir": str(plugin)},
        "eval_bleu": True,
        "${oc.env:HOME}": "${x}",
    }
    path = saved(forge(form, component, **hidden))
    (model,), config, _ = load_model_ensemble_and_task([str(path)], arg_overrides={"data": str(data_bin)})
    defaults = default_sections()
    assert set(config) == {"model", "task", "criterion", *defaults}
    assert {name: config[name] for name in defaults} == defaults, "nothing is taken from the file"
    for section in (vars(config.model), config.task, config.criterion):
        assert not any(section.get(name) == value for name, value in hidden.items())
    assert type(model.encoder.layers[0].self_attn.mechanism).__name__ == "ReLUAttention"
    attack.outcomes += ["handled"] * len(hidden)


def test_true_checkpoints_of_all_forms_give_the_same_output(attack, forge, data_bin):
    logits = []
    for form in FORMS:
        (model,), _, _ = load_model_ensemble_and_task([str(saved(forge(form)))], arg_overrides={"data": str(data_bin)})
        logits.append(model.eval()(**sample([(3, 4)])["net_input"])[0])
        attack.outcomes.append("handled")
    assert torch.equal(logits[0], logits[1]) and torch.equal(logits[0], logits[2])


@pytest.mark.parametrize("command", ["analyze", "contrast", "filter", "average"])
@pytest.mark.parametrize("form", FORMS)
def test_commands_do_not_run_what_a_checkpoint_contains(attack, forge, data_bin, command, form):
    code = f"__import__('os').system({attack.payload!r})"
    hidden = {"encoder_layers": code, "decoder_layers": code, "decoder_attention": code}
    path = saved(forge(form, arch="fconv", _name="fconv", **hidden))
    text = attack.folder / "text"
    other = attack.folder / "other"
    for file in (text, other):
        file.write_text("w1 w2\n")
    arguments = {
        "analyze": [path, "--data", data_bin, "--out", "out"],
        "contrast": ["--checkpoint", path, "--data", data_bin, "--examples", text],
        "filter": ["--checkpoint", path, "--data", data_bin, "--src", text, "--tgt", other, "--out", "out"],
        "average": ["--out", "out.pt", path],
    }[command]
    ended = attack.relumt(command, *arguments)
    assert ended.status == 2 and "rejected the model 'fconv'" in ended.error, ended.stderr


@pytest.mark.parametrize("form", FORMS)
def test_training_does_not_start_from_weights_with_another_model(attack, forge, capfd, form):
    code = f"__import__('os').system({attack.payload!r})"
    path = saved(forge(form, arch="fconv", _name="fconv", encoder_layers=code))
    started = trainer(attack.folder / "run", "--arch", "reluformer", "--source-lang", "de", "--target-lang", "en")
    with pytest.raises(SystemExit) as exit_status:
        started.load_checkpoint(str(path))
    assert exit_status.value.code == 2 and "rejected the model 'fconv'" in capfd.readouterr().err
    attack.outcomes.append("refused")


def test_the_lists_of_names_and_settings_are_complete(attack):
    """A new architecture of relumt, or a new setting of fairseq's Transformer, has to be added to the lists."""
    own = {name for name, model in ARCH_MODEL_REGISTRY.items() if model.__module__.startswith("relumt.")}
    assert own <= KNOWN_NAMES["model"] <= set(ARCH_MODEL_REGISTRY)
    own = {name for name, task in TASK_REGISTRY.items() if task.__module__.startswith("relumt.")}
    assert own <= KNOWN_NAMES["task"] <= set(TASK_REGISTRY)
    nested_fields = {"encoder", "decoder", "quant_noise"}
    settings = set(TransformerConfig.__dataclass_fields__) - nested_fields - {"_name"}
    for name in nested_fields:
        fields = TransformerConfig.__dataclass_fields__[name].type.__dataclass_fields__
        settings |= {f"{name}_{field}" for field in fields if field not in ("_name", "embed_path")}
    assert settings <= set(MODEL_TYPES)
    attack.outcomes.append("handled")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["generate", "interactive", "validate", "train"])
def test_fairseq_does_not_run_what_a_checkpoint_contains(attack, forge, data_bin, command):
    """Without the scripts, fairseq's own commands load checkpoints with --user-dir."""
    code = f"__import__('os').system({attack.payload!r})"
    path = saved(forge("args", arch="fconv", _name="fconv", encoder_layers=code, decoder_layers=code))
    arguments: list[object] = [data_bin, "--user-dir", Path(relumt.__file__).parent]
    if command == "train":
        for subset in ("train", "valid"):
            write_data_bin(data_bin, [(3, 4)], subset)
        arguments += ["--arch", "reluformer_tiny", "--optimizer", "adam", "--max-tokens", "100", "--max-epoch", "1"]
        arguments += ["--restore-file", path, "--save-dir", attack.folder / "run"]
    else:
        arguments += ["--path", path, "--task", "translation", "--max-tokens", "100"]
    words = [sys.executable, "-P", "-m", f"fairseq_cli.{command}", *arguments]
    ended = attack.process(words, allow_changes=True)
    assert ended.status in (1, 2) and "rejected the model 'fconv'" in ended.error
