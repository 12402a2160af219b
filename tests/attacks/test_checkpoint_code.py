"""Checkpoints with code in pickled objects, in settings that fairseq evaluates or in names of files: nothing runs.

What fairseq evaluates is found in its source, so that another release cannot add a setting unnoticed.
"""

import ast
import copy
import os
import pickle
import re
import warnings
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fairseq
import numpy as np
import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task

from relumt.plugin.checkpoints.fairseq_hooks import default_sections
from relumt.plugin.checkpoints.loading import check_value, load_checkpoint_safely, vet_checkpoint
from tests.attacks.attack import error_of, problem_of
from tests.plugin.model.build import sample, trainer

CODE = "__import__('os').mkdir('created-by-the-checkpoint')"
ODD = Path("odd.pt")


class Payload:
    def __reduce__(self):
        return os.mkdir, ("created-by-the-checkpoint",)


@pytest.fixture(autouse=True)
def nothing_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield
    assert not Path("created-by-the-checkpoint").exists()


@pytest.fixture
def intact(model) -> dict[str, Any]:
    return torch.load(model, weights_only=True)


@pytest.fixture(params=["cfg", "dictionary", "args"])
def forge(request, intact):
    """Return the contents of a checkpoint with other settings of a component.

    fairseq stores settings as sections with a namespace, as sections without one, or all in one namespace.
    """

    def forged(component: str = "model", /, **settings: Any) -> dict[str, Any]:
        config = {name: copy.copy(section) for name, section in intact["cfg"].items()}
        if request.param == "args":
            names = {name: config[name]["_name"] for name in ("task", "criterion", "optimizer", "lr_scheduler")}
            flat = vars(config["model"]) | config["task"] | names | settings
            if "_name" in settings:
                flat["arch" if component == "model" else component] = settings["_name"]
            return intact | {"args": Namespace(**flat), "cfg": None}
        section = config[component] or {}
        values = (vars(section) if isinstance(section, Namespace) else section) | settings
        is_namespace = component == "model" and request.param == "cfg"
        return intact | {"cfg": config | {component: Namespace(**values) if is_namespace else values}}

    return forged


NAMES = [
    *(("model", name) for name in ("evil", "../reluformer", "", "os.system", 5, ["reluformer"], {"_name": "fconv"})),
    *(("model", None), ("task", "evil"), ("task", "translation ")),
]


def test_names_that_are_not_registered_are_refused(forge):
    for component, name in NAMES:
        message = problem_of(lambda c=component, n=name: vet_checkpoint(forge(c, arch=n, _name=n), "odd.pt"))
        assert message.startswith("odd.pt: rejected the "), (name, message)
    assert vet_checkpoint(forge("criterion", _name="evil"), "odd.pt")["cfg"]["criterion"] is None


REFUSED = [
    *(("model", "fconv", name, CODE) for name in ("encoder_layers", "decoder_layers", "decoder_attention")),
    *(("model", "fconv", "encoder_layers", text) for text in ("9**9**9", "exit()", "[(512, 3)] * f()")),
    *(("model", "lstm", name, CODE) for name in ("adaptive_softmax_cutoff", "decoder_layers")),
    ("model", "wav2vec2", "w2v_args", {"model": {"conv_feature_layers": CODE}}),
    ("model", "transformer_lm", "character_filters", CODE),
    ("model", "reluformer", "encoder", {"xformers_att_config": CODE}),
    *(("model", "reluformer", "own_setting", text) for text in ("${oc.env:HOME}", "a\nb", [["${x}"]])),
    *(("model", "reluformer", "own_setting", value) for value in (b"x", {1}, torch.ones(1))),
    ("task", "translation", "dataset_impl", "fasta"),
    ("task", "multilingual_translation", "left_pad_source", CODE),
    ("task", "speech_to_text", "config_yaml", "/etc/evil.yaml"),
]
"""Component, its name, and a setting with a value that must not reach fairseq."""


def test_settings_that_could_run_code_are_refused(forge):
    for component, name, setting, value in REFUSED:
        forged = forge(component, arch=name, _name=name, **{setting: value})
        assert "odd.pt: rejected the" in problem_of(lambda odd=forged: vet_checkpoint(odd, "odd.pt")), (name, setting)


def test_settings_that_fairseq_stores_are_accepted(forge):
    for name, settings in {
        "lstm": {"decoder_attention": "True", "adaptive_softmax_cutoff": "10000,50000", "encoder_embed_path": None},
        "fconv": {"encoder_layers": "[(512, 3)] * 20 + [(64, 1)]", "decoder_attention": "True", "share_input": False},
    }.items():
        vetted = vet_checkpoint(forge(arch=name, _name=name, **settings), "own.pt")["cfg"]["model"]
        assert vars(vetted).items() >= settings.items()


def evaluated_settings() -> Iterator[str]:
    """Yield the names of what fairseq passes to `eval`, directly or in a function of its own."""
    for part in ("models", "tasks", "criterions", "data", "modules"):  # what is built from a checkpoint
        for path in Path(fairseq.__file__).parent.joinpath(part).rglob("*.py"):
            if "eval" not in (source := path.read_text()):
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escape sequences
                calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and node.args]
            for call in calls:
                if re.fullmatch(r"(utils\.|options\.)?(eval|exec|eval_bool|eval_str_\w+)", ast.unparse(call.func)):
                    yield ast.unparse(call.args[0]).rpartition(".")[2]


def test_every_setting_that_fairseq_evaluates_is_restricted():
    evaluated = set(evaluated_settings()) - {"x", "uf", "strip()"}  # flags of the command line, and a line of data
    assert {"encoder_layers", "left_pad_source", "xformers_att_config", "wer_args"} <= evaluated
    for name in evaluated:
        try:
            assert check_value(name, "f()") is None, f"{name} reaches eval"
        except ValueError:
            continue


FILES = "encoder_embed_path pretrained_checkpoint load_pretrained_encoder_from label_dir post_save_script user_dir"


@pytest.mark.parametrize("component", ["model", "task", "criterion"])
def test_files_and_settings_of_training_are_dropped(forge, workshop, component):
    os.mkfifo("fifo")  # opening it would block
    hidden = dict.fromkeys(FILES.split(), "fifo") | {"restore_file": "fifo", "adam_betas": CODE, "eval_bleu": True}
    torch.save(forge(component, **hidden, common={"user_dir": "fifo"}), "checkpoint_last.pt")
    overrides = {"data": str(workshop / "bin")}
    (model,), config, _ = load_model_ensemble_and_task(["checkpoint_last.pt"], arg_overrides=overrides)
    defaults = default_sections()
    assert set(config) == {"model", "task", "criterion", *defaults}
    assert {name: config[name] for name in defaults} == defaults, "nothing is taken from the file"
    for section in (vars(config.model), config.task, config.criterion):
        assert not [name for name in hidden if section.get(name) == hidden[name]]
    assert type(model.encoder.layers[0].self_attn.mechanism).__name__ == "ReLUAttention"


def test_pickled_code_is_rejected(intact):
    metrics = {"metrics": {"valid": [(0, "_bleu_counts", "SumMeter", {"sum": np.array([Payload()])})]}}
    for write, message in (
        (lambda: torch.save(intact | {"extra": Payload()}, ODD), "rejected, it contains code"),
        (lambda: torch.save(intact | {"extra_state": intact["extra_state"] | metrics}, ODD), "it contains code"),
        (lambda: ODD.write_bytes(pickle.dumps(Payload())), "in a format other than"),
        (lambda: torch.save(Payload(), ODD, _use_new_zipfile_serialization=False), "in a format other than"),
        (lambda: torch.save([1, 2], ODD), "not a fairseq checkpoint"),
    ):
        write()
        assert message in problem_of(lambda: load_checkpoint_safely(ODD))


@pytest.mark.parametrize("name", ["optimizer_history", "extra_state", "last_optimizer_state"])
def test_without_a_training_state_a_checkpoint_translates(intact, workshop, name):
    torch.save({entry: value for entry, value in intact.items() if entry != name}, ODD)
    (model,), _, _ = load_model_ensemble_and_task([str(ODD)], arg_overrides={"data": str(workshop / "bin")})
    assert model.eval()(**sample([(3, 4)])["net_input"])[0].isfinite().all()


@pytest.mark.parametrize("forge", ["cfg"], indirect=True)
def test_training_does_not_start_from_weights_with_code(forge, capfd, tmp_path):
    torch.save(forge(arch="fconv", _name="fconv", encoder_layers=CODE), ODD)
    started = trainer(tmp_path / "run", "--arch", "reluformer", "--source-lang", "de", "--target-lang", "en")
    assert "rejected the setting encoder_layers" in error_of(lambda: started.load_checkpoint(str(ODD)), capfd)
