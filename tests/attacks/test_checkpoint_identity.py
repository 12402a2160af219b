"""Checkpoints of other runs in a run's folder: refused in one line, neither translated nor resumed."""

import shutil
from argparse import Namespace
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from fairseq.criterions import CRITERION_DATACLASS_REGISTRY

from relumt.options import VARIANT_CHOICES
from relumt.runs.checkpoint_identity import refuse_foreign_checkpoint
from relumt.runs.flags import join_flag_values, parse_flags
from relumt.runs.record import EnvironmentChange, RunRecord, save_record
from tests.models.build import SMALL, arguments, write_checkpoint, write_data_bin
from tests.runs.cases import scored_record

pytestmark = pytest.mark.attack("checkpoints")

RELU = ("--arch", "reluformer")
REGULARIZED = "label_smoothed_cross_entropy_with_attention_regularization"


def make_record(*flags: str, seed: int = 1) -> RunRecord:
    """Return the record of a trained run with these flags."""
    record = scored_record(seed=seed)
    resolved = parse_flags([*SMALL, "--seed", str(seed)], "test") | parse_flags(flags, "test")
    return replace(record, provenance=replace(record.provenance, flags=join_flag_values(resolved)), evaluations={})


def make_checkpoint(*flags: str) -> dict[str, Any]:
    """Return the settings of a checkpoint of a run with these flags, as fairseq stores them."""
    args = arguments(*flags)
    for choice in VARIANT_CHOICES:
        choice.record_defaults(args)
    names = {field.name for field in fields(CRITERION_DATACLASS_REGISTRY[args.criterion])}
    criterion = {name: value for name, value in vars(args).items() if name in names}
    config = {
        "model": Namespace(**vars(args) | {"_name": args.arch}),
        "task": {"_name": args.task},
        "criterion": criterion | {"_name": args.criterion},
        "common": {"seed": args.seed},
    }
    return {"model": {}, "cfg": config}


SAME = {
    "softmax": ("--arch", "transformer"),
    "reluformer": RELU,
    "rela": ("--arch", "rela", "--attention-cross", "softmax"),
    "inhibitor": ("--arch", "inhibitor", "--inhibitor-gamma", "2"),
    "feedforward": (*RELU, "--feedforward", "softmax", "--no-memory-bias"),
    "regularized": (*RELU, "--criterion", REGULARIZED),
    "seed": (*RELU, "--seed", "2"),
}


@pytest.mark.parametrize("flags", SAME.values(), ids=SAME)
def test_own_checkpoints_are_accepted(attack, flags):
    assert not attack.reads(refuse_foreign_checkpoint, Path("c.pt"), make_checkpoint(*flags), make_record(*flags))
    legacy = {"args": arguments(*flags), "model": {}}
    assert not attack.reads(refuse_foreign_checkpoint, Path("c.pt"), legacy, make_record(*flags))


@pytest.mark.parametrize("criterion", [REGULARIZED, "fused_label_smoothed_cross_entropy"])
def test_the_precision_of_training_does_not_count(attack, criterion):
    """run.json records it in the environment, not among the flags."""
    flags = (*RELU, "--criterion", criterion)
    checkpoint = make_checkpoint(*flags, "--cpu-bf16")
    assert checkpoint["cfg"]["criterion"]["cpu_bf16"] is True
    assert not attack.reads(refuse_foreign_checkpoint, Path("c.pt"), checkpoint, make_record(*flags))


DIFFERENT = [
    (("--arch", "transformer"), RELU, "arch is transformer (run.json: reluformer)"),
    (("--arch", "mechanism_transformer"), RELU, "attention_encoder is softmax (run.json: relu)"),
    (("--arch", "rela"), RELU, "arch is rela"),
    ((*RELU, "--attention", "softmax"), RELU, "attention_encoder is softmax (run.json: relu)"),
    ((*RELU, "--attention-encoder", "softmax"), RELU, "attention_encoder is softmax (run.json: relu)"),
    ((*RELU, "--attention-decoder", "rela_g"), RELU, "attention_decoder is rela_g (run.json: relu)"),
    ((*RELU, "--attention-cross", "sigmoid"), RELU, "attention_cross is sigmoid (run.json: relu)"),
    (RELU, (*RELU, "--attention-cross", "sigmoid"), "attention_cross is relu (run.json: sigmoid)"),
    (RELU, (*RELU, "--relu-gamma", "2"), "relu_gamma is 1.0 (run.json: 2.0)"),
    (RELU, (*RELU, "--relu-scale", "none"), "relu_scale is visible (run.json: none)"),
    (("--arch", "inhibitor"), ("--arch", "inhibitor", "--inhibitor-shift", "1"), "inhibitor_shift is 0.5"),
    (RELU, (*RELU, "--feedforward", "swiglu"), "feedforward_encoder is stock (run.json: swiglu)"),
    (RELU, (*RELU, "--feedforward-decoder", "softmax"), "feedforward_decoder is stock (run.json: softmax)"),
    (
        (*RELU, "--feedforward", "softmax"),
        (*RELU, "--feedforward", "softmax", "--no-memory-bias"),
        "memory_bias is True",
    ),
    (RELU, (*RELU, "--encoder-layers", "3"), "encoder_layers is 2 (run.json: 3)"),
    (RELU, (*RELU, "--decoder-ffn-embed-dim", "64"), "decoder_ffn_embed_dim is 32 (run.json: 64)"),
    (RELU, (*RELU, "--encoder-attention-heads", "4"), "encoder_attention_heads is 2 (run.json: 4)"),
    (RELU, (*RELU, "--encoder-normalize-before"), "encoder_normalize_before is False (run.json: True)"),
    (RELU, (*RELU, "--activation-fn", "gelu"), "activation_fn is relu (run.json: gelu)"),
    (RELU, (*RELU, "--dropout", "0.3"), "dropout is 0.0 (run.json: 0.3)"),
    (RELU, (*RELU, "--share-all-embeddings"), "share_all_embeddings is False (run.json: True)"),
    (RELU, (*RELU, "--seed", "2"), "seed is 1 (run.json: 2)"),
    (RELU, (*RELU, "--criterion", REGULARIZED), f"criterion is cross_entropy (run.json: {REGULARIZED})"),
    (
        (*RELU, "--criterion", REGULARIZED),
        (*RELU, "--criterion", REGULARIZED, "--attention-norm-weight", "0.5"),
        "attention_norm_weight is 0.1 (run.json: 0.5)",
    ),
]


@pytest.mark.parametrize(("trained", "run", "difference"), DIFFERENT, ids=[case[2] for case in DIFFERENT])
def test_checkpoints_of_other_runs_are_refused(attack, trained, run, difference):
    message = attack.reads(refuse_foreign_checkpoint, Path("c.pt"), make_checkpoint(*trained), make_record(*run))
    assert message.startswith("c.pt is not a checkpoint of the run small/softmax/") and difference in message


@pytest.mark.parametrize("change", ["--relu-gamma 1 (now --relu-gamma 2)", "no --relu-gamma (now --relu-gamma 2)"])
def test_accepted_changes_do_not_count(attack, change):
    changes = [EnvironmentChange("2026-01-01T10:00:00+00:00", [change])]
    record = replace(make_record(*RELU, "--relu-gamma", "2"), environment_changes=changes)
    assert not attack.reads(refuse_foreign_checkpoint, Path("c.pt"), make_checkpoint(*RELU), record)
    other = make_checkpoint(*RELU, "--relu-scale", "none")
    assert "relu_scale is none" in attack.reads(refuse_foreign_checkpoint, Path("c.pt"), other, record)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> dict[str, Path]:
    """Real checkpoints of new models with different mechanisms."""
    folder = tmp_path_factory.mktemp("checkpoints")
    return {name: write_checkpoint(folder / name, "--attention", name) for name in ("softmax", "relu")}


@pytest.fixture
def run(attack, checkpoints):
    """Return a function that writes the folder of a run of ReLU attention with a checkpoint of either mechanism."""
    data_bin = attack.folder / "data-bin"
    for subset in ("train", "valid", "test"):
        write_data_bin(data_bin, [(3, 4), (4, 3)], subset)

    def write(name: str, folder: Path = Path("runs/small/relu/1")) -> Path:
        folder = attack.folder / folder
        (folder / "checkpoints").mkdir(parents=True)
        shutil.copyfile(checkpoints[name], folder / "checkpoints" / "checkpoint_last.pt")
        flags = ("--arch", "mechanism_transformer", "--attention", "relu")
        save_record(folder, replace(make_record(*flags), data_bin=str(data_bin)))
        return folder

    return write


def analysis_arguments(command: str, where: Path, folder: Path) -> list[object]:
    """Return the arguments of an analysis command on a run or a checkpoint."""
    texts = [folder / name for name in ("source", "target")]
    for text in texts:
        text.write_text("w1 w2\n")
    (folder / "examples").write_text('{"document": 0, "sentence": 0, "target": "w1", "wrong": ["w2"]}\n')
    return {
        "analyze": ["analyze", where, "--out", folder / "out", "--cpu"],
        "contrast": ["contrast", "--checkpoint", where, "--examples", folder / "examples"],
        "filter": ["filter", "--checkpoint", where, "--src", texts[0], "--tgt", texts[1], "--out", folder / "out"],
    }[command]


@pytest.mark.parametrize("is_file", [False, True], ids=["run", "file"])
@pytest.mark.parametrize("command", ["analyze", "contrast", "filter"])
def test_analyses_refuse_the_checkpoint_of_another_run(attack, run, command, is_file):
    folder = run("softmax")
    where = folder / "checkpoints" / "checkpoint_last.pt" if is_file else folder
    data = ["--data", attack.folder / "data-bin"]
    ended = attack.relumt(*analysis_arguments(command, where, attack.folder), *data)
    assert ended.status == 2 and "attention_encoder is softmax (run.json: relu)" in ended.error


def test_a_link_to_the_checkpoint_of_another_run_is_refused(attack, run, checkpoints):
    last = run("relu") / "checkpoints" / "checkpoint_last.pt"
    last.unlink()
    last.symlink_to(checkpoints["softmax"])
    ended = attack.relumt("analyze", last, "--data", attack.folder / "data-bin", "--out", "out", "--cpu")
    assert ended.status == 2 and "is not a checkpoint of the run" in ended.error


def test_a_run_that_was_moved_is_analyzed(attack, run):
    folder = run("relu").rename(attack.folder / "moved")
    arguments = analysis_arguments("filter", folder, attack.folder)
    assert attack.relumt(*arguments, allow_changes=True).status == 0
