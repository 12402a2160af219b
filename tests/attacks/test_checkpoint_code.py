"""Checkpoints that contain code, name other classes or have odd settings: nothing runs, nothing is opened."""

import copy
import os
import pickle
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task

import relumt
from relumt.plugin.checkpoints.fairseq_hooks import default_sections
from relumt.plugin.checkpoints.loading import count_updates, load_checkpoint_safely, vet_checkpoint
from tests.plugin.model.build import sample, trainer, write_data_bin

pytestmark = pytest.mark.attack("checkpoints")

FORMS = ("cfg", "dictionary", "args")
"""Forms in which fairseq stores settings: sections with a namespace, without one, and all in one namespace."""

CODE = "__import__('os').mkdir('created-by-the-checkpoint')"


class Payload:
    def __reduce__(self):
        return os.mkdir, ("created-by-the-checkpoint",)


@pytest.fixture(autouse=True)
def nothing_runs(attack):
    yield
    assert not Path("created-by-the-checkpoint").exists()


@pytest.fixture
def forge(intact):
    """Return the contents of a checkpoint with other settings of a component, in one of the forms."""

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


NAMES = [
    *(("model", name) for name in ("evil", "RELUFORMER", "reluformer\n", "../reluformer", "", "os.system")),
    *(("task", name) for name in ("evil", "translation ", "speech")),
    *(("model", name) for name in (5, True, ["reluformer"], {"_name": "fconv"}, None)),
]


@pytest.mark.parametrize("form", FORMS)
def test_names_that_are_not_registered_are_refused(attack, forge, form):
    for component, name in NAMES:
        message = attack.reads(vet_checkpoint, forge(form, component, arch=name, _name=name), "odd.pt")
        assert message.startswith(("odd.pt: rejected the", f"odd.pt: does not name its {component}")), (name, message)
    assert vet_checkpoint(forge("cfg", "criterion", _name="evil"), "odd.pt")["cfg"]["criterion"] is None


REFUSED = [
    *(("fconv", name, CODE) for name in ("encoder_layers", "decoder_layers", "decoder_attention")),
    *(("fconv", "encoder_layers", text) for text in ("9**9**9", "exit()", "[x for x in y]", "[(512, 3)] * f()")),
    *(("lstm", name, CODE) for name in ("decoder_attention", "adaptive_softmax_cutoff", "decoder_layers")),
    *(("wav2vec2", name, CODE) for name in ("conv_feature_layers", "dropout")),
    *(("transformer_lm", name, CODE) for name in ("character_filters", "adaptive_input_cutoff")),
    *(("reluformer", name, CODE) for name in ("encoder_xformers_att_config", "adaptive_softmax_cutoff", "relu_gamma")),
    *(("reluformer", name, CODE) for name in ("encoder_embed_dim", "share_all_embeddings", "attention_cross")),
    ("wav2vec2", "w2v_args", {"model": {"conv_feature_layers": CODE}}),
    ("reluformer", "encoder", {"xformers_att_config": CODE}),
    *(("reluformer", "own_setting", text) for text in ("${oc.env:HOME}", "a\nb", "\0", [["${x}"]], {"a": "\x1b"})),
    *(("reluformer", "own_setting", value) for value in (b"x", torch.ones(1), Namespace(a=1), {1}, 1j)),
]
"""Model, setting and value that must not reach fairseq."""

REFUSED_OF_TASKS = [
    *(("translation", "dataset_impl", name) for name in ("fasta", "evil")),
    *(("multilingual_translation", name, CODE) for name in ("left_pad_source", "left_pad_target")),
    ("speech_to_text", "config_yaml", "/etc/evil.yaml"),
]


@pytest.mark.parametrize("form", FORMS)
def test_settings_that_could_run_code_are_refused(attack, forge, form):
    for model, name, value in REFUSED:
        settings = {"arch": model, "_name": model, name: value}
        assert "rejected the setting" in attack.reads(vet_checkpoint, forge(form, **settings), "odd.pt"), (model, name)
    for task, name, value in REFUSED_OF_TASKS:
        forged = forge(form, "task", _name=task, **{name: value})
        assert "rejected the setting" in attack.reads(vet_checkpoint, forged, "odd.pt"), (task, name)


@pytest.mark.parametrize("form", FORMS)
def test_settings_that_fairseq_stores_are_accepted(attack, forge, form):
    for model, settings in {
        "lstm": {"decoder_attention": "True", "adaptive_softmax_cutoff": "10000,50000", "encoder_embed_path": None},
        "fconv": {"encoder_layers": "[(512, 3)] * 20 + [(64, 1)]", "decoder_attention": "True", "share_input": False},
    }.items():
        vetted = vet_checkpoint(forge(form, arch=model, _name=model, **settings), "own.pt")["cfg"]["model"]
        assert vars(vetted).items() >= settings.items()
        attack.outcomes.append("handled")


FILES = (
    "encoder_embed_path decoder_embed_path pretrained_checkpoint load_pretrained_encoder_from w2v_path label_dir "
    "save_predictions sampling_weights_from_file post_save_script user_dir wer_args wer_lexicon"
).split()


@pytest.mark.parametrize("component", ["model", "task", "criterion"])
@pytest.mark.parametrize("form", FORMS)
def test_files_and_settings_of_training_are_dropped(attack, forge, data_bin, form, component):
    os.mkfifo("fifo")  # opening it would block
    hidden = dict.fromkeys(FILES, "fifo") | {"restore_file": "fifo", "adam_betas": CODE, "eval_bleu_args": CODE}
    hidden |= {"eval_bleu": True, "common": {"user_dir": "fifo"}}
    torch.save(forge(form, component, **hidden), "checkpoint_last.pt")
    overrides = {"data": str(data_bin)}
    (model,), config, _ = load_model_ensemble_and_task(["checkpoint_last.pt"], arg_overrides=overrides)
    defaults = default_sections()
    assert set(config) == {"model", "task", "criterion", *defaults}
    assert {name: config[name] for name in defaults} == defaults, "nothing is taken from the file"
    for section in (vars(config.model), config.task, config.criterion):
        assert not [name for name in hidden if name != "common" and section.get(name) == hidden[name]]
    assert type(model.encoder.layers[0].self_attn.mechanism).__name__ == "ReLUAttention"
    assert model.eval()(**sample([(3, 4)])["net_input"])[0].isfinite().all()
    attack.outcomes += ["handled"] * len(hidden)


def test_pickled_code_is_rejected(attack, intact):
    odd = Path("odd.pt")
    metrics = {"metrics": {"valid": [(0, "_bleu_counts", "SumMeter", {"sum": np.array([Payload()])})]}}
    evil = {"extra": Payload()} | {"extra_state": intact["extra_state"] | metrics}
    for write, message in (
        (lambda: torch.save(intact | {"extra": Payload()}, odd), "rejected, it contains code"),
        (lambda: torch.save(intact | {"extra_state": evil}, odd), "rejected, it contains code"),
        (lambda: odd.write_bytes(pickle.dumps(Payload())), "of another format"),
        (lambda: torch.save(Payload(), odd, _use_new_zipfile_serialization=False), "in the format of PyTorch before"),
        (lambda: torch.save([1, 2], odd), "not a fairseq checkpoint"),
        (lambda: torch.save({"model": {"weight": 1.0}}, odd), "not a fairseq checkpoint"),
    ):
        write()
        assert message in attack.reads(load_checkpoint_safely, odd)


def test_the_log_cannot_name_other_classes(attack, intact):
    """fairseq looks up a meter's class among all names in a module. --eval-bleu stores arrays in SumMeters."""
    for meter, value, is_read in (("SumMeter", np.arange(4.0), True), ("MetersDict", 1, False), ("os", 1, False)):
        extra_state = intact["extra_state"] | {"metrics": {"valid": [(0, "x", meter, {"sum": value})]}}
        torch.save(intact | {"extra_state": extra_state}, "bleu.pt")
        message = attack.reads(vet_checkpoint, load_checkpoint_safely("bleu.pt"), "bleu.pt")
        assert (message == "") == is_read and ("rejected its log" in message) != is_read


@pytest.mark.parametrize("name", ["optimizer_history", "extra_state", "last_optimizer_state"])
def test_without_a_training_state_a_checkpoint_translates_but_does_not_resume(attack, intact, data_bin, name):
    torch.save({entry: value for entry, value in intact.items() if entry != name}, "stripped.pt")
    message = attack.reads(count_updates, load_checkpoint_safely("stripped.pt"), Path("stripped.pt"))
    assert f"training cannot resume from it, since it has no {name}" in message
    (model,), _, _ = load_model_ensemble_and_task(["stripped.pt"], arg_overrides={"data": str(data_bin)})
    assert model.eval()(**sample([(3, 4)])["net_input"])[0].isfinite().all()


def test_training_does_not_start_from_weights_with_code(attack, forge, capfd):
    torch.save(forge(arch="fconv", _name="fconv", encoder_layers=CODE), "odd.pt")
    started = trainer(attack.folder / "run", "--arch", "reluformer", "--source-lang", "de", "--target-lang", "en")
    with pytest.raises(SystemExit) as exit_status:
        started.load_checkpoint("odd.pt")
    assert exit_status.value.code == 2 and "rejected the setting encoder_layers" in capfd.readouterr().err
    attack.outcomes.append("refused")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["generate", "validate", "train"])
def test_fairseq_does_not_run_what_a_checkpoint_contains(attack, forge, data_bin, command):
    """Without the scripts, fairseq's own commands load checkpoints with --user-dir."""
    torch.save(forge("args", arch="fconv", _name="fconv", encoder_layers=CODE), "odd.pt")
    arguments: list[object] = [data_bin, "--user-dir", Path(relumt.__file__).parent]
    if command == "train":
        for subset in ("train", "valid"):
            write_data_bin(data_bin, [(3, 4)], subset)
        arguments += ["--arch", "reluformer_tiny", "--optimizer", "adam", "--max-tokens", "100", "--max-epoch", "1"]
        arguments += ["--restore-file", "odd.pt", "--save-dir", attack.folder / "run"]
    else:
        arguments += ["--path", "odd.pt", "--task", "translation", "--max-tokens", "100"]
    words = [sys.executable, "-P", "-m", f"fairseq_cli.{command}", *arguments]
    ended = attack.process(words, allow_changes=True)
    assert ended.status == 2 and "rejected the setting encoder_layers" in ended.error
