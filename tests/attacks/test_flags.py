"""Flags and settings of `relumt run` that cannot work are refused in one line, before anything is started or written.

What fairseq's own parser refuses is its business; `attack.relumt` compares all files.
"""

import shlex
from pathlib import Path

import pytest

from tests.attacks.attack import Attack
from tests.runs.cases import FakeFairseq, write_configs, write_data_bin, write_dataset

pytestmark = [pytest.mark.attack("flags"), pytest.mark.usefixtures("constant_environment")]


@pytest.fixture
def fairseq(monkeypatch) -> FakeFairseq:
    fake = FakeFairseq()
    for module in ("training", "evaluation"):
        monkeypatch.setattr(f"relumt.runs.{module}.run_fairseq", fake)
    return fake


@pytest.fixture
def run(attack: Attack, fairseq):
    """Call `relumt run` in a folder with a data-bin and configurations."""
    write_data_bin(Path("data-bin/small"))
    write_configs(Path("configs"))

    def call(stage, *flags, settings=(), dataset="small", model="stock", **options):
        return attack.relumt("run", f"--{stage}", *settings, "--", dataset, model, *flags, **options)

    return call


FLAGS = {
    "foo": "expected a flag that begins with --, found 'foo'",
    "--lr 1 --lr 2": "--lr is given twice, as '1' and '2'",
    "--lr ''": "empty value after --lr",
    "--lr=": "empty value after '--lr='",
    "''": "empty value",
    "--lr 'a\nb'": "contains a line break",
    "--valid-subset nope": "the data-bin has no subset 'nope'",
    "--train-subset nope": "the data-bin has no subset 'nope'",
    "--valid-subset ../train": "subset '../train'",
    "-s de": "-s is set by the scripts",
    "--seed 3": "set SEED instead",
    "--save-dir=x": "set RUNS instead",
    "--user-dir x": "--user-dir is set by the scripts",
    "--restore-file x": "--restore-file is set by the scripts",
    "--finetune-from-model=x": "--finetune-from-model is set by the scripts",
    "--source-lang en": "--source-lang is set by the scripts",
    "--target-lang=de": "--target-lang is set by the scripts",
}
"""Flags of fairseq-train → a part of the message."""

SETTINGS = {
    "--seed=abc": "argument --seed: expected a whole number from 0",
    "--seed=-1": "argument --seed: expected a whole number from 0",
    "--seed=4294967296": "argument --seed: expected a whole number from 0",
    "--seed=": "argument --seed: expected a whole number from 0",
    "--seed=٣": "argument --seed: expected a whole number from 0",
    "--precision=fp8": "argument --precision: invalid choice: 'fp8'",
    "--precision=fp16": "PRECISION=fp16 needs a GPU",
    "--runs=a\nb": "RUNS 'a\\nb': expected a path without",
    "--runs=": "expected a path, found ''",
    "--runs=configs/models.toml": "configs/models.toml",
    "--runs=data-bin/small/text/../runs": "inside the data-bin",
    "--configs=nowhere": "nowhere/models.toml",
    "--data-bin=nowhere": "nowhere: no data-bin for 'small'",
    "--run=x": "",
}


@pytest.mark.parametrize(
    ("flags", "settings", "message"),
    [(shlex.split(flags), [], message) for flags, message in FLAGS.items()]
    + [([], [setting], message) for setting, message in SETTINGS.items()],
    ids=[*FLAGS, *SETTINGS],
)
def test_impossible_requests_are_refused(run, fairseq, flags, settings, message):
    ended = run("train", *flags, settings=settings)
    assert ended.status == 2 and ended.stdout == "" and message in ended.error
    assert not fairseq.started


@pytest.mark.parametrize("name", ["-h", "--help", "-x", "--", "usage: relumt run", "", "../small", "a\nb", "/"])
@pytest.mark.parametrize("kind", ["dataset", "model"])
def test_names_are_never_options_or_help(run, kind, name):
    ended = run("train", **{kind: name})
    assert ended.status == 2 and ended.stdout == ""


def test_paths_may_contain_spaces(run, fairseq):
    Path("data-bin").rename("data bin")
    assert run("train", settings=["--data-bin=data bin/small", "--runs=my runs"]).status == 0
    assert fairseq.started[0].value("--save-dir") == "my runs/small/stock/1/checkpoints"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--beam 3 --beam 4", "--beam is given twice"),
        ("--beam ''", "empty value after --beam"),
        ("--path x", "--path is set by the scripts"),
        ("--gen-subset nope", "the data-bin has no subset 'nope'"),
        ("--gen-subset test valid", "--gen-subset needs one value"),
        ("--bf16", "--bf16 works with relumt's architectures"),
    ],
)
def test_impossible_translations_are_refused(run, fairseq, flags, message):
    assert run("train").status == 0
    ended = run("evaluate", *shlex.split(flags))
    assert ended.status == 2 and message in ended.error and len(fairseq.started) == 1


def test_datasets_that_start_from_each_other_are_refused(run):
    for dataset, other in (("small", "default"), ("default", "small"), ("self", "self")):
        write_dataset(Path("configs"), dataset, starts_from=other, data_bin="small")
    for dataset in ("small", "self"):
        assert "which starts from " in run("train", dataset=dataset).error
