"""Data-bins, checkpoints and run records for tests; files contain only what relumt reads."""

import dataclasses
import json
import struct
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from relumt.installation import Revision
from relumt.plugin.checkpoints.recovery import save_checkpoint_durably
from relumt.runs.environment import Device, Environment, Kernels
from relumt.runs.evaluation_record import Evaluation, EvaluationSetup, Score
from relumt.runs.launch import FairseqCommand
from relumt.runs.record import Initialization, Provenance, RunRecord, TrainingSummary

CPU = Device("cpu", "x86_64", 1, "fp32")
ENVIRONMENT = Environment({"torch": "2"}, Revision("c", "c"), CPU, Kernels("auto", None))
SIGNATURES = {"bleu_tokenized": "tok:none", "bleu_detokenized": "tok:13a", "chrf": "nc:6"}

LOG = """\
2026-01-01 10:00:00 | INFO | fairseq_cli.train | num. shared model params: 1,000 (num. trained: 1,000)
2026-01-01 10:00:01 | INFO | fairseq_cli.train | training on 1 devices (GPUs/TPUs)
2026-01-01 10:00:11 | INFO | valid | {"epoch": 1, "valid_loss": "8.5"}
2026-01-01 10:00:11 | INFO | train | {"epoch": 1, "train_wps": "640.2", "train_num_updates": "6"}
"""
DONE = "2026-01-01 10:00:12 | INFO | fairseq_cli.train | done training in 12.0 seconds\n"
DIVERGED = """\
2026-01-01 10:00:05 | INFO | train_inner | {"epoch": 1, "update": 0.4, "loss": "9", "num_updates": "20", "wall": "4"}
Traceback (most recent call last):
FloatingPointError: gradients are Nan/Inf
"""


def write_output(hypotheses: Sequence[str] = ("a b c d f",), references: Sequence[str] = ("a b c d e",)) -> str:
    """Return what fairseq-generate writes about a test set."""
    pairs = enumerate(zip(hypotheses, references, strict=True))
    lines = (f"T-{n}\t{reference}\nD-{n}\t-1\t{hypothesis}\n" for n, (hypothesis, reference) in pairs)
    return f"{''.join(lines)}Generate test with beam=5: BLEU4 = 0\n"


SHORT, LONG = "a b c", "a b c d"
NBEST = (
    "S-0\tx\nT-0\ta b c d\n"
    f"H-0\t-3.0\t{SHORT}\nD-0\t-3.0\t{SHORT}\nP-0\t-1.0 -1.0 -0.5 -0.5\n"
    f"H-0\t-3.5\t{LONG}\nD-0\t-3.5\t{LONG}\nP-0\t-1.0 -1.0 -0.5 -0.5 -0.5\n"
    "Generate valid with beam=2: BLEU4 = 0\n"
)
"""SHORT has the higher log-probability. A penalty of len^p prefers LONG if p > log(3.5 / 3) / log(5 / 4) = 0.69."""


class Killed(BaseException):
    """Ends relumt in the middle of a command of fairseq."""


class Step(NamedTuple):
    """What a command of fairseq does: it logs, it saves checkpoints or translations, and it ends."""

    log: str = LOG + DONE
    checkpoints: tuple[str, ...] = ("checkpoint_best.pt",)
    output: str = write_output()
    status: int = 0
    killed: bool = False


class Started(NamedTuple):
    """A command that was started."""

    tool: str
    arguments: list[str]
    append: bool

    def value(self, flag: str) -> str | None:
        """Return the value of a flag, None if it was not given."""
        return self.arguments[self.arguments.index(flag) + 1] if flag in self.arguments else None


class FakeFairseq:
    """Stands in for `run_fairseq`: records the commands, and writes what fairseq would.

    Attributes:
        started: the commands so far.
        steps: what the next commands do; after these, what `Step()` says.
    """

    def __init__(self) -> None:
        self.started: list[Started] = []
        self.steps: list[Step] = []

    def __call__(self, tool: str, command: FairseqCommand, *, append: bool) -> int:
        self.started.append(Started(tool, command.arguments, append))
        step = self.steps.pop(0) if self.steps else Step()
        with command.log.open("a" if append else "w") as log:
            log.write(f"\n$ fairseq-{tool} …\n{step.log if tool == 'train' or step.status else ''}")
        if tool == "train":
            for name in step.checkpoints:
                write_checkpoint(command.log.parent, name)
        elif not step.status:
            command.log.with_suffix(".txt").write_text(step.output)
        if step.killed:
            raise Killed
        return step.status


def replace_fairseq(monkeypatch: pytest.MonkeyPatch) -> FakeFairseq:
    """Let relumt start a stand-in for fairseq-train and fairseq-generate; return it."""
    fake = FakeFairseq()
    for module in ("training", "evaluation"):
        monkeypatch.setattr(f"relumt.runs.{module}.run_fairseq", fake)
    return fake


def scored_record(
    dataset: str = "small",
    model: str = "softmax",
    seed: int = 1,
    bleu: float = 30.0,
    flags: dict[str, str] | None = None,
    signatures: dict[str, str] = SIGNATURES,
) -> RunRecord:
    """The record of a run that is trained and scored on the test set with checkpoint "c"."""
    setup = EvaluationSetup("test", {"--beam": "5"}, "data", "checkpoint_best.pt", "c", ENVIRONMENT)
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


def index(sentences: int, length: int = 1) -> bytes:
    """fairseq's index of so many sentences of one length, in the format mmap with tokens of two bytes."""
    header = b"MMIDIDX\0\0" + struct.pack("<QBQ", 1, 8, sentences)
    return (
        header
        + struct.pack(f"<{sentences}i", *[length] * sentences)
        + struct.pack(f"<{sentences}q", *range(0, 2 * length * sentences, 2 * length))
    )


def write_dataset(configs: Path, name: str, **settings: str | int) -> None:
    """Write configs/datasets/NAME.toml; `settings` are added to the flags, or replace them."""
    flags = {"train": "--lr 1e-3 --dropout 0.3 --max-epoch 2 --max-tokens 100 --optimizer adam", "generate": "--beam 5"}
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in (flags | settings).items()]
    (configs / "datasets" / f"{name}.toml").write_text("".join(lines), encoding="utf-8")


def write_models(configs: Path, **flags: str) -> None:
    """Write configs/models.toml with these flags of fairseq-train by model."""
    sections = (f"[{json.dumps(name)}]\ntrain = {json.dumps(value)}\n" for name, value in flags.items())
    (configs / "models.toml").write_text("".join(sections), encoding="utf-8")


def write_configs(folder: Path, model: str = "--arch transformer") -> Path:
    """Write the datasets "default" and "small", and the model "stock" with the flags `model`."""
    (folder / "datasets").mkdir(parents=True)
    for dataset in ("default", "small"):
        write_dataset(folder, dataset)
    write_models(folder, stock=model)
    return folder


def write_checkpoint(run: Path, name: str = "checkpoint_best.pt", updates: int = 6) -> Path:
    """Write a checkpoint to a run's folder."""
    path = run / "checkpoints" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    settings = {"model": Namespace(arch="transformer", dropout=0.1), "task": {"_name": "translation"}}
    state = {
        "optimizer_history": [{"num_updates": updates}],
        "extra_state": {"train_iterator": {"epoch": 1}, "val_loss": 8.5, "best": 8.5},
        "last_optimizer_state": {"state": {}},
    }
    save_checkpoint_durably({"model": {"weight": torch.zeros(2)}, "cfg": settings, **state}, path)
    return path
