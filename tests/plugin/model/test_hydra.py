"""`fairseq-hydra-train` trains what its configuration asks for, as `fairseq-train` does with the same flags."""

import copy
import sys
from pathlib import Path

import pytest
import torch
from fairseq import options
from fairseq.dataclass.initialize import hydra_init
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer
from fairseq_cli import hydra_train, train
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf, open_dict

import relumt
from relumt.attention import MECHANISMS
from relumt.errors import UserError
from relumt.plugin.checkpoints.loading import fairseq_config, load_checkpoint_safely
from relumt.plugin.model.hooks import named_attentions
from tests.plugin.model.build import task, write_data_bin

SIZES = {"layers": 1, "embed_dim": 16, "ffn_embed_dim": 32, "attention_heads": 2}
FLAT = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in SIZES.items()}
NESTED = {"encoder": SIZES, "decoder": SIZES}
REGULARIZER = "label_smoothed_cross_entropy_with_attention_regularization"
VARIANTS = {
    "gate": {"attention_gate": "headwise"},
    "each site": {"attention_encoder": "relu", "attention_decoder": "softmax", "attention_cross": "rela_g"},
    "options": {"attention": "relu2", "relu_gamma": 0.5, "feedforward": "swiglu", "gated_equal_parameters": True},
    "architecture": {"_name": "reluformer_tiny"},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for subset in ("train", "valid"):
        write_data_bin(folder, [(4, 5), (7, 3), (6, 6), (2, 3)] * 4, subset)
    return folder


@pytest.fixture
def trained(monkeypatch):
    """Return a list to which each training adds its model."""
    models = []
    monkeypatch.setattr(train, "Trainer", lambda *given: models.append(given[2]) or Trainer(*given))
    return models


def parse_flags(data, settings, criterion=REGULARIZER):
    words = f"""{data} --cpu --seed 3 --source-lang de --target-lang en --criterion {criterion} --optimizer adam
    --lr 0.01 --max-tokens 40 --max-update 2 --num-workers 0 --log-format none --dropout 0.1
    --disable-validation --no-save""".split()
    for name, value in ({"arch": settings.get("_name", "mechanism_transformer")} | settings).items():
        if name != "_name":
            words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return options.parse_args_and_arch(options.get_training_parser(), words)


def write_config(folder, data, model):
    config = {
        "common": {"cpu": True, "seed": 3, "log_format": "none"},
        "task": {"_name": "translation", "data": str(data), "source_lang": "de", "target_lang": "en"},
        "criterion": {"_name": REGULARIZER},
        "optimizer": {"_name": "adam"},
        "lr_scheduler": {"_name": "fixed"},
        "optimization": {"lr": [0.01], "max_update": 2},
        "dataset": {"max_tokens": 40, "num_workers": 0, "disable_validation": True},
        "checkpoint": {"save_dir": str(folder / "checkpoints")},
        "model": {"_name": "mechanism_transformer", "dropout": 0.1} | model,
    }
    text = "# @package _group_\n" + OmegaConf.to_yaml(OmegaConf.create(config))
    (folder / "experiment.yaml").write_text(text)


def train_with_hydra(monkeypatch, folder, *overrides, config=None):
    GlobalHydra.instance().clear()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")  # as relumt.tasks.user_dir does
    where = ["--config-dir", str(config.parent if config else folder), "--config-name"]
    command = ["fairseq-hydra-train", *where, config.stem if config else "experiment", *overrides]
    monkeypatch.setattr(sys, "argv", command)
    hydra_train.cli_main()


@pytest.fixture(scope="module")
def composed(data, tmp_path_factory):
    """Return what Hydra makes of the configuration, for variants to be added; composing it takes seconds."""
    folder = tmp_path_factory.mktemp("config")
    write_config(folder, data, NESTED)
    GlobalHydra.instance().clear()
    hydra_init("experiment")
    with initialize_config_dir(str(folder)):
        return compose("experiment")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_configuration_builds_what_the_same_flags_build(variant, data, composed):
    by_hydra = copy.deepcopy(composed)
    with open_dict(by_hydra):
        by_hydra.model.update(VARIANTS[variant])
    models = []
    by_flags = parse_flags(data, FLAT | VARIANTS[variant])
    for settings in (by_flags, by_hydra.model):
        torch.manual_seed(1)
        models.append(task().build_model(settings))
    assert str(models[0]) == str(models[1])
    pairs = zip(*(model.state_dict().values() for model in models), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)


def test_training_resumes_and_equals_that_of_flags(data, trained, tmp_path, monkeypatch):
    train.main(convert_namespace_to_omegaconf(parse_flags(data, FLAT | {"_name": "rela", "attention_cross": "relu"})))
    write_config(tmp_path, data, {"_name": "rela", "attention_cross": "relu"} | NESTED)
    for max_update in (1, 2):  # within an epoch
        train_with_hydra(monkeypatch, tmp_path, f"optimization.max_update={max_update}")
    model, _, resumed = trained
    checkpoint = load_checkpoint_safely(tmp_path / "checkpoints" / "checkpoint_last.pt")
    assert all(torch.equal(checkpoint["model"][name], weight) for name, weight in model.state_dict().items())
    stored = checkpoint["cfg"]["model"]
    assert (stored["attention"], stored["attention_cross"], stored["encoder_layers"]) == ("rela_g", "relu", 1)
    assert str(resumed) == str(model)


def test_the_example_configuration_and_a_sweep_train(data, trained, tmp_path, monkeypatch):
    words = f"""-m common.user_dir={Path(relumt.__file__).parent} task.data={data} common.cpu=true
    optimization.max_update=1 dataset.max_tokens=40 model.share_all_embeddings=false checkpoint.no_save=true
    dataset.disable_validation=true model.attention=relu,rela_g +model.attention_gate=headwise""".split()
    sizes = [f"model.{side}={{layers: 1, embed_dim: 16}}" for side in ("encoder", "decoder")]
    example = Path(__file__).parents[3] / "configs" / "hydra" / "reluformer.yaml"
    train_with_hydra(monkeypatch, tmp_path, *words, *sizes, config=example)
    built = [{type(attention.mechanism) for attention in named_attentions(model).values()} for model in trained]
    assert built == [{type(MECHANISMS[name](1, 1))} for name in ("relu", "rela_g")]
    assert all(attention.gate is not None for model in trained for attention in named_attentions(model).values())


def test_nested_sizes_of_a_stock_checkpoint_are_read():
    config = {"model": {"_name": "transformer", "encoder": {"layers": 3}}, "task": {"_name": "translation"}}
    assert fairseq_config({"cfg": config}, "checkpoint.pt")["model"].encoder_layers == 3


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"attention_crss": "relu"}, "model.attention_crss is no setting of this model; did you mean"),
        ({"encoder": {"layer": 1}}, "model.encoder_layer is no setting of this model; did you mean"),
    ],
)
def test_a_setting_without_effect_is_refused(model, message, composed):
    changed = copy.deepcopy(composed)
    with open_dict(changed):
        changed.model.update(model)
    with pytest.raises(UserError, match=message):
        task().build_model(changed.model)


def test_a_configuration_without_other_sections_builds_a_model():
    config = DictConfig({"_name": "reluformer_tiny", "encoder": {"layers": 1}})
    model = task().build_model(config)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (1, 2)
    assert config.attention == "relu"
