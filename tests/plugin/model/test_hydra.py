"""`fairseq-hydra-train` trains what its configuration asks for, as `fairseq-train` does with the same flags."""

import copy
import sys
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq import options
from fairseq.dataclass.initialize import hydra_init
from fairseq.dataclass.utils import convert_namespace_to_omegaconf, omegaconf_no_object_check
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer
from fairseq_cli import generate, hydra_train, train
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf, open_dict

import relumt
from relumt.attention import GATES, MECHANISMS
from relumt.attention.feedforward import FEEDFORWARDS
from relumt.plugin.checkpoints.loading import fairseq_config, load_checkpoint_safely
from relumt.plugin.model import mechanism_transformer
from relumt.plugin.model.hooks import named_attentions
from relumt.plugin.model.mechanism_transformer import MechanismTransformer
from tests.plugin.model.build import task, write_data_bin

SIZES = {"layers": 1, "embed_dim": 16, "ffn_embed_dim": 32, "attention_heads": 2}
FLAT = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in SIZES.items()}
NESTED = {"encoder": SIZES, "decoder": SIZES}
CRITERION = "label_smoothed_cross_entropy"
REGULARIZER = "label_smoothed_cross_entropy_with_attention_regularization"
VARIANTS = {
    **{name: {"attention": name} for name in MECHANISMS},
    **{f"feedforward {name}": {"feedforward": name} for name in FEEDFORWARDS},
    **{f"{gate} gate": {"attention_gate": gate} for gate in GATES},
    "each site": {"attention_encoder": "relu", "attention_decoder": "softmax", "attention_cross": "rela_g"},
    "options": {"attention": "relu2", "relu_gamma": 0.5, "feedforward": "swiglu", "gated_equal_parameters": True},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for subset in ("train", "valid", "test"):
        write_data_bin(folder, [(4, 5), (7, 3), (6, 6), (2, 3)] * 4, subset)
    return folder


@pytest.fixture
def trained(monkeypatch):
    """Return a list to which each training adds its model and the losses of its updates."""
    trainings = []

    class RecordingTrainer(Trainer):
        def __init__(self, cfg, task, model, *arguments):
            super().__init__(cfg, task, model, *arguments)
            trainings.append((model, []))

        def train_step(self, samples, raise_oom=False):
            log = super().train_step(samples, raise_oom)
            trainings[-1][1].append(float(log["loss"]))
            return log

    monkeypatch.setattr(train, "Trainer", RecordingTrainer)
    return trainings


def parse_flags(data, arch, settings, criterion):
    words = f"""{data} --cpu --seed 3 --source-lang de --target-lang en --arch {arch} --criterion {criterion}
    --optimizer adam --lr 0.01 --max-tokens 40 --max-update 2 --num-workers 0
    --log-format none --dropout 0.1 --disable-validation --no-save""".split()
    for name, value in settings.items():
        words += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return options.parse_args_and_arch(options.get_training_parser(), words)


def write_config(folder, data, model, criterion, save_dir=None, updates=2):
    config = {
        "common": {"cpu": True, "seed": 3, "log_format": "none"},
        "task": {"_name": "translation", "data": str(data), "source_lang": "de", "target_lang": "en"},
        "criterion": {"_name": criterion},
        "optimizer": {"_name": "adam"},
        "lr_scheduler": {"_name": "fixed"},
        "optimization": {"lr": [0.01], "max_update": updates},
        "dataset": {"max_tokens": 40, "num_workers": 0, "disable_validation": save_dir is None},
        "checkpoint": {"save_dir": str(save_dir), "no_save": save_dir is None},
        "model": {"dropout": 0.1} | model,
    }
    text = "# @package _group_\n" + OmegaConf.to_yaml(OmegaConf.create(config))
    (folder / "experiment.yaml").write_text(text)


def train_with_hydra(monkeypatch, tmp_path, *overrides):
    GlobalHydra.instance().clear()
    monkeypatch.chdir(tmp_path)
    command = ["fairseq-hydra-train", "--config-dir", str(tmp_path), "--config-name", "experiment", *overrides]
    monkeypatch.setattr(sys, "argv", command)
    hydra_train.cli_main()


def compare(trainings):
    """Check that both trainings had the same layers at each site, and losses that differ by at most 1e-5."""
    (by_flags, losses), (by_hydra, hydra_losses) = trainings
    assert len(losses) == 2
    assert hydra_losses == pytest.approx(losses, abs=1e-5)
    assert str(by_hydra) == str(by_flags)


@pytest.fixture(scope="module")
def composed(data, tmp_path_factory):
    """Return what fairseq's two commands make of the same settings; composing it takes most of a short training."""
    arch = {"_name": "mechanism_transformer"}
    by_flags = convert_namespace_to_omegaconf(parse_flags(data, arch["_name"], FLAT, CRITERION))
    folder = tmp_path_factory.mktemp("config")
    write_config(folder, data, arch | NESTED, CRITERION)
    GlobalHydra.instance().clear()
    hydra_init("experiment")
    with initialize_config_dir(str(folder)):
        return by_flags, compose("experiment")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_configuration_trains_what_the_same_flags_train(variant, data, composed, trained):
    by_flags, by_hydra = copy.deepcopy(composed)
    with omegaconf_no_object_check():
        by_flags.model = parse_flags(data, by_flags.model.arch, FLAT | VARIANTS[variant], CRITERION)
    distributed_utils.call_main(by_flags, train.main)
    with open_dict(by_hydra):
        by_hydra.model.update(VARIANTS[variant])
    hydra_train._hydra_main(by_hydra)
    compare(trained)


@pytest.mark.parametrize("sizes", [FLAT, NESTED], ids=["flat", "nested"])
def test_an_architecture_has_its_mechanism_and_the_regularizer_reads_it(sizes, data, trained, tmp_path, monkeypatch):
    args = parse_flags(data, "reluformer_tiny", FLAT, REGULARIZER)
    distributed_utils.call_main(convert_namespace_to_omegaconf(args), train.main)
    write_config(tmp_path, data, {"_name": "reluformer_tiny"} | sizes, REGULARIZER)
    train_with_hydra(monkeypatch, tmp_path)
    compare(trained)
    assert {type(a.mechanism) for a in named_attentions(trained[1][0]).values()} == {type(MECHANISMS["relu"](1, 1))}


def test_a_checkpoint_resumes_and_translates(data, trained, tmp_path, monkeypatch, capsys):
    model = {"_name": "rela", "attention_cross": "relu"} | NESTED
    write_config(tmp_path, data, model, CRITERION, tmp_path / "whole", updates=2)
    train_with_hydra(monkeypatch, tmp_path)
    whole = load_checkpoint_safely(tmp_path / "whole" / "checkpoint_last.pt")["model"]
    for max_update in (1, 2):  # within an epoch
        overrides = f"checkpoint.save_dir={tmp_path}/resumed", f"optimization.max_update={max_update}"
        train_with_hydra(monkeypatch, tmp_path, *overrides)
    path = tmp_path / "resumed" / "checkpoint_last.pt"
    resumed = load_checkpoint_safely(path)
    assert all(torch.equal(resumed["model"][name], whole[name]) for name in whole)
    stored = resumed["cfg"]["model"]
    assert (stored["attention"], stored["attention_cross"], stored["encoder_layers"]) == ("rela_g", "relu", 1)

    words = [str(data), "--path", str(path), "--cpu", "--beam", "1", "--max-len-b", "3"]
    monkeypatch.setattr(sys, "argv", ["fairseq-generate", *words])
    capsys.readouterr()
    generate.cli_main()
    assert capsys.readouterr().out.count("\nH-") == 16


def test_the_example_configuration_trains(data, trained, tmp_path, monkeypatch):
    sizes = [f"model.{side}={{layers: 1, embed_dim: 16}}" for side in ("encoder", "decoder")]
    monkeypatch.chdir(tmp_path)
    examples = Path(__file__).parents[3] / "configs" / "hydra"
    words = f"""--config-dir {examples} --config-name reluformer common.user_dir={Path(relumt.__file__).parent}
    task.data={data} common.cpu=true optimization.max_update=2 dataset.max_tokens=40 model.share_all_embeddings=false
    checkpoint.no_save=true dataset.disable_validation=true""".split()
    GlobalHydra.instance().clear()
    monkeypatch.setattr(sys, "argv", ["fairseq-hydra-train", *words, *sizes])
    hydra_train.cli_main()
    ((model, losses),) = trained
    assert len(losses) == 2
    assert {type(a.mechanism) for a in named_attentions(model).values()} == {type(MECHANISMS["relu"](1, 1))}


def test_nested_sizes_of_a_stock_checkpoint_are_read():
    config = {"model": {"_name": "transformer", "encoder": {"layers": 3}}, "task": {"_name": "translation"}}
    assert fairseq_config({"cfg": config}, "checkpoint.pt")["model"].encoder_layers == 3


def test_overrides_of_a_sweep_choose_the_attention(data, trained, tmp_path, monkeypatch):
    model = {"_name": "mechanism_transformer", "attention": "softmax"} | NESTED
    write_config(tmp_path, data, model, CRITERION)
    train_with_hydra(monkeypatch, tmp_path, "-m", "model.attention=rela_g,relu", "+model.attention_gate=headwise")
    built = [{type(attention.mechanism) for attention in named_attentions(model).values()} for model, _ in trained]
    assert built == [{type(MECHANISMS[name](1, 1))} for name in ("rela_g", "relu")]
    assert all(attention.gate is not None for model, _ in trained for attention in named_attentions(model).values())


@pytest.mark.parametrize(
    ("model", "criterion", "message"),
    [
        ({"attention": "rela_h"}, "cross_entropy", "unknown attention 'rela_h' in --attention; did you mean 'rela_"),
        ({"attention_crss": "relu"}, "cross_entropy", "model.attention_crss is no setting of this model; did you mean"),
        ({"encoder": {"layer": 1}}, "cross_entropy", "model.encoder_layer is no setting of this model; did you mean"),
        (
            {"relu_gamma": 2.0},
            "cross_entropy",
            "--relu-gamma is an option of relu, relu2, but the attention is softmax",
        ),
        ({"attention": "inhibitor"}, REGULARIZER, "attention regularization needs non-negative weights"),
        ({"_name": "transformer"}, REGULARIZER, "attention regularization needs non-negative weights"),
    ],
)
def test_what_would_have_no_effect_is_refused(model, criterion, message, data, tmp_path, monkeypatch, capsys):
    write_config(tmp_path, data, {"_name": "mechanism_transformer"} | FLAT | model, criterion)
    with pytest.raises(SystemExit) as stopped:
        train_with_hydra(monkeypatch, tmp_path)
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("attention", ["rela_g", None])
def test_a_namespace_without_sizes_gets_those_of_its_architecture(attention):
    args = Namespace(arch="reluformer_tiny", **({"attention": attention} if attention else {}))
    model = MechanismTransformer.build_model(args, task())
    expected = type(MECHANISMS[attention or "relu"](1, 1))
    assert {type(a.mechanism) for a in named_attentions(model).values()} == {expected}
    assert len(model.encoder.layers) == 2


@pytest.mark.parametrize("lost", ["attention", "attention_gate", "relu_gamma", "feedforward", "gated_equal_parameters"])
def test_a_setting_that_is_lost_on_the_way_to_the_layers_is_noticed(lost, monkeypatch, capsys):
    """The layers are compared with what was asked for, whatever loses a setting in between."""
    build = mechanism_transformer.TransformerModel.build_model.__func__

    def lose(cls, args, task):
        return build(cls, Namespace(**{name: value for name, value in vars(args).items() if name != lost}), task)

    monkeypatch.setattr(mechanism_transformer.TransformerModel, "build_model", classmethod(lose))
    settings = VARIANTS["options"] | {"attention_gate": "headwise"} | FLAT
    with pytest.raises(SystemExit) as stopped:
        MechanismTransformer.build_model(Namespace(arch="mechanism_transformer", **settings), task())
    assert stopped.value.code == 2
    assert "but the settings ask for" in capsys.readouterr().err


def test_a_configuration_without_other_sections_builds_a_model():
    config = DictConfig({"_name": "reluformer_tiny", "encoder": {"layers": 1}})
    model = task().build_model(config)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (1, 2)
    assert config.attention == "relu"
