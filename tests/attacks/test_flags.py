"""Flags of fairseq-train and fairseq-generate, and settings of the scripts, that cannot work are refused in one line.

A refused request leaves nothing behind, neither a folder nor a lock; `attack.relumt` compares all files.
"""

import shlex
from pathlib import Path

import pytest
from relumt.runs.evaluation_check import check_evaluation
from relumt.runs.training_results import finish_training, record_divergence
from relumt.runs.training_steps import check_training, start_training

from relumt.errors import exit_on_user_error
from relumt.runs.record import load_record
from relumt.runs.run_config import resolve_run_config
from tests.attacks.attack import Attack
from tests.runs.cases import LOG, take_step, write_checkpoint, write_data_bin, write_dataset

pytestmark = pytest.mark.attack("flags")

SMALL = "--max-tokens 100 --max-update 3 --optimizer adam --lr 1e-3 --task translation"


@pytest.fixture
def record(attack: Attack):
    """Take a step of the run of a small model with these flags, and the options of `relumt run` in `settings`."""
    write_data_bin(Path("data-bin") / "small")
    Path("configs/datasets").mkdir(parents=True)
    Path("configs/models").mkdir()
    for dataset in ("small", "default"):
        write_dataset(Path("configs"), dataset, train=SMALL)
    Path("configs/models/tiny.args").write_text("--arch mechanism_transformer_tiny --dropout 0.1\n")

    def run(step, *flags, dataset="small", model="tiny", settings=(), **options):
        def take() -> None:
            with exit_on_user_error():
                take_step(step, [*settings, "--", dataset, model, *flags])

        return attack.calls(take, **options)

    return run


REFUSED = {
    "--dropout 2": "--dropout is 2.0; give a number from 0 to 1",
    "--dropout -0.1": "--dropout is -0.1",
    "--dropout nan": "--dropout is nan; give a finite number",
    "--dropout": "argument --dropout: expected one argument",
    "--attention-dropout 1.5": "--attention-dropout is 1.5",
    "--encoder-layerdrop 7": "--encoder-layerdrop is 7.0",
    "--label-smoothing 2 --criterion label_smoothed_cross_entropy": "--label-smoothing is 2.0",
    "--encoder-embed-dim 0": "--encoder-embed-dim is 0; give a number from 1",
    "--encoder-embed-dim -4": "--encoder-embed-dim is -4",
    "--encoder-embed-dim x": "argument --encoder-embed-dim: invalid int value: 'x'",
    "--encoder-ffn-embed-dim 0": "--encoder-ffn-embed-dim is 0",
    "--decoder-attention-heads 0": "--decoder-attention-heads is 0",
    "--encoder-layers -1": "--encoder-layers is -1",
    "--arch nonsense": "invalid choice: 'nonsense'",
    "--criterion nonsense": "invalid choice: 'nonsense'",
    "--optimizer nonsense": "invalid choice: 'nonsense'",
    "--lr-scheduler nonsense": "invalid choice: 'nonsense'",
    "--task nonsense": "invalid choice: 'nonsense'",
    "--ddp-backend nonsense": "invalid choice: 'nonsense'",
    "--activation-fn nonsense": "invalid choice: 'nonsense'",
    "--lr abc": "argument --lr: invalid",
    "--lr inf": "argument --lr",
    "--lr -1": "--lr is -1.0; give a number from 0",
    "--adam-eps nan": "--adam-eps is nan",
    "--clip-norm inf": "--clip-norm is inf",
    "--weight-decay x": "invalid float value: 'x'",
    "--max-update 0": "training would never end",
    "--max-update -1": "--max-update is -1",
    "--max-update 1e3": "invalid int value: '1e3'",
    "--max-update nan": "invalid int value: 'nan'",
    "--max-epoch -3": "--max-epoch is -3",
    "--max-tokens 0": "--max-tokens is 0",
    "--batch-size 0": "--batch-size is 0",
    "--batch-size 3 --max-sentences 4": "--batch-size and --max-sentences are the same flag",
    "--max-source-positions 0": "--max-source-positions is 0",
    "--update-freq 0": "--update-freq is 0",
    "--update-freq 1 2": "unrecognized arguments: 2",
    "--warmup-updates -1 --lr-scheduler inverse_sqrt": "--warmup-updates is -1",
    "--num-workers -1": "--num-workers is -1",
    "--max-up 3": "unrecognized arguments: --max-up 3",
    "--se 3": "unrecognized arguments: --se 3",
    "--save-d x": "unrecognized arguments: --save-d x",
    "--nonsense": "unrecognized arguments: --nonsense",
    "-sde": "-sde is not one of its flags",
    "-s de": "-s is set by the scripts",
    "--help": "",
    "foo": "expected a flag that begins with --, found 'foo'",
    "--lr 1 foo": "unrecognized arguments: foo",
    "--lr 1 --lr 2": "--lr is given twice, as '1' and '2'",
    "--lr ''": "empty value after --lr",
    "--lr=": "empty value after '--lr='",
    "''": "empty value",
    "--lr 'a\nb'": "contains a line break",
    "--no-save": "--no-save cannot be used: nothing could be translated with",
    "--no-last-checkpoints": "--no-last-checkpoints cannot be used: training could not resume",
    "--no-save-optimizer-state": "training could not resume",
    "--save-interval 0": "--save-interval is 0",
    "--validate-interval 0": "--validate-interval is 0",
    "--log-interval 0": "--log-interval is 0",
    "--reset-optimizer": "--reset-optimizer cannot be used",
    "--reset-dataloader": "--reset-dataloader cannot be used",
    "--restore-file x": "--restore-file is set by the scripts",
    "--finetune-from-model x": "--finetune-from-model is set by the scripts",
    "--checkpoint-suffix x": "--checkpoint-suffix cannot be used",
    "--tpu": "",
    "--seed 3": "set SEED instead",
    "--save-dir=x": "set RUNS instead",
    "--valid-subset nope": "nope",
    "--train-subset nope": "nope",
}
"""Flags of fairseq-train → a part of the message."""


@pytest.mark.parametrize("flags", REFUSED)
def test_flags_of_training_are_refused_before_anything_is_written(record, flags):
    ended = record(check_training, *shlex.split(flags))
    assert ended.status == 2 and ended.stdout == ""
    assert REFUSED[flags] in ended.error


REFUSED_BY_TRIAL = {
    "--encoder-embed-dim 63": "does not divide --encoder-embed-dim 63",
    "--attention nonsense": "'nonsense'",
    "--adam-betas 1": "",
    "--adam-betas '(2, 3)'": "math domain error",
    "--quant-noise-pq 0.5 --quant-noise-pq-block-size 7": "block",
    "--arch nonautoregressive_transformer": "of this training: it rejects the model 'nonautoregressive_transformer'",
}
"""Flags that fail only when the model is built or trained → a part of the message."""


@pytest.mark.slow
@pytest.mark.parametrize("flags", REFUSED_BY_TRIAL)
def test_flags_with_which_an_update_would_fail_are_refused(record, flags):
    ended = record(check_training, *shlex.split(flags))
    assert ended.status == 2 and REFUSED_BY_TRIAL[flags] in ended.error


ACCEPTED = [
    "--dropout 0 --attention-dropout 1 --label-smoothing 0.1 --criterion label_smoothed_cross_entropy",
    "--lr 1e-3 --lr 1e-3",
    "--max-update 0 --max-epoch 1",
    "--no-epoch-checkpoints",
    "--disable-validation --valid-subset nope",
    "--lr-scheduler cosine --warmup-updates 2",
    "--optimizer sgd --momentum 0.9",
    "--attention relu",
    "--decoder-output-dim 3",
    "--encoder-embed-dim 64 --decoder-embed-dim 32",
]


@pytest.mark.slow
@pytest.mark.parametrize("flags", ACCEPTED)
def test_unusual_flags_that_work_are_accepted(record, flags):
    assert record(check_training, *shlex.split(flags)).status == 0
    assert not Path("runs").exists()


SETTINGS = {
    "--seed=abc": "SEED is 'abc'",
    "--seed=-1": "SEED is '-1'",
    "--seed=1e3": "SEED is '1e3'",
    "--seed=2147483648": "SEED is '2147483648'",
    "--seed=4294967296": "SEED is '4294967296'",
    "--seed=": "SEED is ''",
    "--seed=٣": "SEED is '٣'",
    "--precision=fp8": "PRECISION is 'fp8'",
    "--precision=": "PRECISION is ''",
    "--runs=-x": "RUNS is '-x'",
    "--runs=./-x": "RUNS is '-x'",
    "--runs=a\nb": "RUNS is 'a\\nb'",
    "--runs=": "expected a path, found ''",
    "--runs=configs/models/tiny.args": "configs/models/tiny.args",
    "--runs=data-bin/small": "inside the data-bin",
    "--configs=-x": "CONFIGS is '-x'",
    "--configs=nowhere": "no model 'tiny' in nowhere/models",
    "--data-bin=-x": "DATA_BIN is '-x'",
    "--data-bin=nowhere": "nowhere: no data-bin for 'small'",
    "--run=x": "",
    "--nonsense": "",
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_are_refused_before_anything_is_written(record, setting):
    ended = record(check_training, settings=[setting])
    assert ended.status == 2 and SETTINGS[setting] in ended.error


@pytest.mark.parametrize("name", ["-h", "--help", "-x", "--", "usage: relumt run", "", "../small", "a\nb", "/"])
@pytest.mark.parametrize("kind", ["dataset", "model"])
def test_names_are_never_options_or_help(record, kind, name):
    ended = record(check_training, **{kind: name})
    assert ended.status == 2 and ended.stdout == ""


def test_paths_may_contain_spaces(record):
    Path("data-bin").rename("data bin")
    settings = ["--data-bin=data bin/small", "--runs=my runs"]
    assert record(start_training, settings=settings, allow_changes=True).status == 0
    assert load_record(Path("my runs/small/tiny/1")).data_bin == "data bin/small"


def test_a_dataset_that_starts_from_itself_is_refused(record):
    for dataset, other in (("small", "default"), ("default", "small"), ("self", "self")):
        write_dataset(Path("configs"), dataset, train=SMALL, starts_from=other, data_bin="small")
        if (dataset, other) != ("small", "default"):
            assert "which starts from this dataset" in record(check_training, dataset=dataset).error


def start(record, *flags):
    return record(start_training, *flags, allow_changes=True)


def test_a_failed_start_leaves_nothing_in_the_way_of_a_corrected_one(record):
    start(record, "--dropout", "0.2")
    folder = Path("runs/small/tiny/1")
    (folder / "train.log").write_text("ValueError: dropout probability has to be between 0 and 1\n")
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "crash.pt").write_bytes(b"PK")
    ended = record(record_divergence)
    assert ended.status == 1 and "(ValueError: dropout probability has to be between 0 and 1)" in ended.error
    assert record(check_training, "--dropout", "0.3").status == 0
    assert start(record, "--dropout", "0.3").status == 0
    assert load_record(folder).provenance.flags["--dropout"] == "0.3"
    assert "ValueError" not in (folder / "train.log").read_text()


def test_a_run_without_checkpoints_is_not_recorded_as_trained(record):
    start(record)
    folder = Path("runs/small/tiny/1")
    (folder / "train.log").write_text(LOG)
    assert "fairseq-train saved no checkpoint" in record(finish_training).error
    assert load_record(folder).training is None


def write_finished_run(record):
    start(record)
    config = resolve_run_config("small", "tiny", 1, Path("configs"), Path("runs"), None)
    write_checkpoint(config)
    (config.folder / "train.log").write_text(LOG)
    assert record(finish_training).status == 0


GENERATE_REFUSED = {
    "--beam 0": "--beam is 0",
    "--beam x": "invalid int value: 'x'",
    "--nbest 7": "--nbest 7 is more than --beam 5",
    "--lenpen nan": "--lenpen is nan",
    "--temperature 0": "--temperature is 0.0; give a number above 0",
    "--min-len 300": "--min-len 300 is more than --max-len-b 200",
    "--lm-path lm.pt": "--lm-path cannot be used: relumt loads no language models",
    "--diverse-beam-groups 3": "--diverse-beam-groups 3 does not divide --beam 5; choose a number that does",
    "--length-penalty wu": "unknown --length-penalty 'wu'; choose from length, gnmt",
    "--length-penalty gnmt --unnormalized": "--length-penalty gnmt has no effect with --unnormalized",
    "--max-tokens -1": "--max-tokens is -1",
    "--bea 3": "unrecognized arguments: --bea 3",
    "--path x": "--path is set by the scripts",
    "--quiet": "--quiet cannot be used: no translations would be written",
    "--score-reference": "--score-reference cannot be used",
    "--num-shards 2": "--num-shards cannot be used",
    "--lr 3": "unrecognized arguments: --lr 3",
    "--gen-subset nope": "nope",
    "--gen-subset test valid": "--gen-subset needs one value",
    "--beam 3 --beam 4": "--beam is given twice",
    "--beam ''": "empty value after --beam",
}


@pytest.mark.parametrize("flags", GENERATE_REFUSED)
def test_flags_of_translation_are_refused_before_anything_is_written(record, flags):
    write_finished_run(record)
    ended = record(check_evaluation, *shlex.split(flags))
    assert ended.status == 2 and GENERATE_REFUSED[flags] in ended.error


@pytest.mark.slow
def test_flags_of_translation_that_work_are_accepted(record):
    write_finished_run(record)
    gnmt = ["--length-penalty", "gnmt", "--lenpen", "0.6"]
    for flags in ([], ["--beam", "1", "--nbest", "1"], ["--lenpen", "-1"], gnmt):
        assert record(check_evaluation, *flags).status == 0
