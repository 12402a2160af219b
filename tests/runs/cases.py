"""Data-bins, checkpoints and run records for tests; files contain only what relumt reads."""

import dataclasses
import json
import struct
from argparse import Namespace
from collections.abc import Callable, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import torch

from relumt.arguments import ArgumentParser
from relumt.commands import run
from relumt.git_revision import Revision
from relumt.runs.environment import Device, Environment, find_device
from relumt.runs.evaluation_record import Evaluation, EvaluationSetup, Score
from relumt.runs.evaluation_steps import score_pending, start_evaluation
from relumt.runs.record import Initialization, Provenance, RunRecord, TrainingSummary
from relumt.runs.run_config import RunConfig
from relumt.runs.training_results import finish_training
from relumt.runs.training_steps import start_training

CPU = Device("cpu", "x86_64", 1, "fp32")
ENVIRONMENT = Environment({"torch": "2"}, Revision("c", "c"), CPU)
SIGNATURES = {"bleu_tokenized": "tok:none", "bleu_detokenized": "tok:13a", "chrf": "nc:6"}

LOG = """\
2026-01-01 10:00:00 | INFO | fairseq_cli.train | num. shared model params: 1,000 (num. trained: 1,000)
2026-01-01 10:00:01 | INFO | fairseq_cli.train | training on 1 devices (GPUs/TPUs)
2026-01-01 10:00:11 | INFO | valid | {"epoch": 1, "valid_loss": "8.5"}
2026-01-01 10:00:11 | INFO | train | {"epoch": 1, "train_wps": "640.2", "train_num_updates": "6"}
"""

OUTPUT = "T-0\ta b c d e\nD-0\t-1\ta b c d f\nGenerate test with beam=5: BLEU4 = 0\n"
"""What fairseq-generate writes about a test set of one sentence."""


def scored_record(
    dataset: str = "small",
    model: str = "softmax",
    seed: int = 1,
    bleu: float = 30.0,
    flags: dict[str, str] | None = None,
    signatures: dict[str, str] = SIGNATURES,
) -> RunRecord:
    """The record of a run that is trained and scored on the test set with checkpoint "c"."""
    setup = EvaluationSetup("test", {"--beam": "5"}, "data", "checkpoint_best.pt", "c", ENVIRONMENT, one_by_one=False)
    scores = {metric: Score(bleu, signature, "") for metric, signature in signatures.items()}
    return RunRecord(
        dataset=dataset,
        model=model,
        seed=seed,
        data_bin="data-bin",
        started="2026-01-01T10:00:00+00:00",
        provenance=Provenance(
            flags={"--lr": "1", "--seed": str(seed)} | (flags or {}),
            data={},
            dictionaries={"de": "d", "en": "d"},
            initialization=Initialization(),
            environment=ENVIRONMENT,
        ),
        training=TrainingSummary(2_340_000, 1000.4, 60.0, 7, 2, 4.5),
        evaluations={"test": Evaluation(setup, 6, scores, {}, "r", 100.0)},
    )


def with_value(record: Any, path: str, value: Any) -> Any:
    """A copy of nested dataclasses and dictionaries with one value replaced: "provenance.flags.--lr"."""
    name, _, rest = path.partition(".")
    is_dict = isinstance(record, dict)
    new = with_value(record[name] if is_dict else getattr(record, name), rest, value) if rest else value
    return record | {name: new} if is_dict else dataclasses.replace(record, **{name: new})


def write_data_bin(folder: Path, symbols=("a@@", "b", "c"), record: dict | None = None, sentences: int = 1) -> Path:
    """A data-bin of sentences without tokens; with `record` as its prepare.json if there is one."""
    folder.mkdir(parents=True)
    for language in ("de", "en"):
        (folder / f"dict.{language}.txt").write_text("".join(f"{symbol} 1\n" for symbol in symbols), encoding="utf-8")
        for subset in ("train", "valid", "test"):
            (folder / f"{subset}.de-en.{language}.idx").write_bytes(index(sentences))
            (folder / f"{subset}.de-en.{language}.bin").write_bytes(bytes(2 * sentences))
    if record is not None:
        (folder / "prepare.json").write_text(json.dumps(record), encoding="utf-8")
    return folder


PREPARED = {
    "source": "de",
    "target": "en",
    "bpe": "none",
    "tokenized": True,
    "lowercased": False,
    "plain_references": False,
}
"""prepare.json of a data-bin with tokenized texts."""


def write_prepared(folder: Path, lowercased: bool = False, **references: str) -> None:
    """Write the prepare.json of a data-bin, and reference texts by subset."""
    (folder / "text").mkdir(exist_ok=True)
    for subset, text in references.items():
        (folder / "text" / f"{subset}.en").write_text(text)
    (folder / "prepare.json").write_text(json.dumps(PREPARED | {"lowercased": lowercased}))


def reverse_data_bin(folder: Path) -> None:
    """Let a data-bin of `write_data_bin` translate in the opposite direction, with the same dictionaries."""
    for path in folder.glob("*.de-en.*"):
        path.rename(path.with_name(path.name.replace(".de-en.", ".en-de.")))


def index(sentences: int) -> bytes:
    """fairseq's index of so many sentences of one token, in the format mmap with tokens of two bytes."""
    header = b"MMIDIDX\0\0" + struct.pack("<QBQ", 1, 8, sentences)
    return (
        header
        + struct.pack(f"<{sentences}i", *[1] * sentences)
        + struct.pack(f"<{sentences}q", *range(0, 2 * sentences, 2))
    )


def write_dataset(configs: Path, name: str, **settings: str | int) -> None:
    """Write configs/datasets/NAME.toml; `settings` are added to the flags, or replace them."""
    flags = {"train": "--lr 1e-3 --dropout 0.3 --max-epoch 2 --max-tokens 100 --optimizer adam", "generate": "--beam 5"}
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in (flags | settings).items()]
    (configs / "datasets" / f"{name}.toml").write_text("".join(lines), encoding="utf-8")


def write_configs(folder: Path, model: str = "--arch transformer") -> Path:
    """Write the datasets "default" and "small", and the model "stock" with the flags `model`."""
    (folder / "datasets").mkdir(parents=True)
    for dataset in ("default", "small"):
        write_dataset(folder, dataset)
    (folder / "models").mkdir()
    (folder / "models" / "stock.args").write_text(f"{model}\n")
    return folder


def write_checkpoint(config: RunConfig, name: str = "checkpoint_best.pt", updates: int = 6) -> Path:
    config.checkpoints.mkdir(parents=True, exist_ok=True)
    settings = {"model": Namespace(arch="transformer", dropout=0.1), "task": {"_name": "translation"}}
    state = {
        "optimizer_history": [{"num_updates": updates}],
        "extra_state": {"train_iterator": {"epoch": 1}, "val_loss": 8.5, "best": 8.5},
        "last_optimizer_state": {"state": {}},
    }
    torch.save({"model": {"weight": torch.zeros(2)}, "cfg": settings, **state}, config.checkpoints / name)
    return config.checkpoints / name


def take_step(step: Callable[..., Any], arguments: Sequence[object]) -> Any:
    """Take one step of the run that the arguments of `relumt run` name; return its result.

    A step is a function with some of the parameters below.
    """
    parser = ArgumentParser(prog="relumt run", allow_abbrev=False)
    run.add_arguments(parser)
    parsed = parser.parse_args([str(argument) for argument in arguments])
    config, flags = run.resolve_run(parsed)
    settings = {
        "config": config,
        "device": find_device(parsed.precision),
        "extra_flags": flags,
        "accept_changes": parsed.accept_mixed,
        "one_by_one": parsed.one_by_one,
        "data_bin": parsed.data_bin,
    }
    return step(**{name: settings[name] for name in signature(step).parameters})


def train(config: RunConfig, step: Callable) -> None:
    """Take the steps of scripts/train.sh, with files in place of fairseq-train."""
    step(start_training)
    write_checkpoint(config)
    (config.folder / "train.log").write_text(LOG)
    step(finish_training)


def translate(config: RunConfig, step: Callable) -> Any:
    """Take the steps of scripts/evaluate.sh, with a file in place of fairseq-generate; return what scoring prints."""
    step(start_evaluation)
    (config.folder / "generate-test.txt").write_text(OUTPUT)
    (config.folder / "generate-test.log").write_text("")
    return step(score_pending)
