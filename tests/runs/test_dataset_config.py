"""Datasets: the files of configs/datasets, what they inherit, and what is wrong with them."""

from pathlib import Path

import pytest

from relumt.errors import UserError
from relumt.runs.dataset_config import dataset_names, load_dataset, require_dataset, require_numbered_checkpoints
from relumt.runs.flags import parse_flag_lines
from relumt.runs.run_config import RESERVED_FLAGS

DATASETS = Path(__file__).resolve().parents[2] / "configs" / "datasets"


def write(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("name", [name.replace("_N", "_512") for name in dataset_names(DATASETS)])
def test_shipped_datasets_leave_models_and_scripts_their_flags(name):
    config = require_dataset(name, DATASETS)
    for flags in (config.train, config.generate):
        assert flags and not flags.keys() & {"--arch", "--criterion", *RESERVED_FLAGS}
        assert all(flag.startswith("--") for flag in flags)


def test_a_dataset_takes_flags_from_its_base_and_replaces_some(tmp_path):
    write(
        tmp_path,
        paper="train = '--lr 1 --dropout 0.1'\ngenerate = '--beam 5'\naverage_checkpoints = 5\ndata_bin = 'corpus'",
        mine="base = 'paper'\ntrain = '--lr 2'  # faster\ngenerate = '--beam 6'\nstarts_from = 'paper'\n"
        "[documents]\ngenerate = '--beam 4'",
    )
    config = require_dataset("mine", tmp_path)
    assert config.train == {"--keep-last-epochs": ["5"], "--lr": ["2"], "--dropout": ["0.1"]}
    assert config.generate == {"--beam": ["6"]}
    assert (config.average_checkpoints, config.starts_from, config.data_bin) == (5, "paper", Path("data-bin/mine"))
    documents = require_dataset("mine_64", tmp_path)
    assert documents.train == config.train | {"--document-length": ["64"]} and documents.generate == {"--beam": ["4"]}
    assert (documents.name, documents.starts_from, documents.data_bin) == ("mine_64", "", config.data_bin)


def test_datasets_that_average_keep_the_checkpoints(tmp_path):
    write(
        tmp_path,
        best="train = '--lr 1 --no-epoch-checkpoints'",
        epochs="base = 'best'\naverage_checkpoints = 5",
        more="base = 'epochs'\ntrain = '--keep-last-epochs 9'\naverage_checkpoints = 3",
        updates="base = 'best'\naverage_checkpoints = 5\ntrain = '--save-interval-updates 9'",
        longer="base = 'epochs'\naverage_checkpoints = 7",
        none="base = 'epochs'\naverage_checkpoints = 0",
    )
    names = ("best", "epochs", "more", "updates", "longer", "none")
    kept = {name: require_dataset(name, tmp_path).train for name in names}
    assert kept["best"] == {"--lr": ["1"], "--no-epoch-checkpoints": []}
    assert kept["epochs"] == {"--lr": ["1"], "--keep-last-epochs": ["5"]}
    assert kept["more"] == {"--lr": ["1"], "--keep-last-epochs": ["9"]}
    assert kept["updates"] == kept["best"] | {"--save-interval-updates": ["9"]}
    assert kept["longer"] == {"--lr": ["1"], "--keep-last-epochs": ["7"]}
    assert kept["none"] == kept["best"]


@pytest.mark.parametrize(
    ("flags", "count", "problem"),
    [
        ("--keep-last-epochs 5", 5, ""),
        ("--no-epoch-checkpoints --save-interval-updates 9", 5, ""),
        ("--no-epoch-checkpoints", 5, "--no-epoch-checkpoints saves none"),
        ("--keep-last-epochs 4", 5, "--keep-last-epochs keeps 4; give --keep-last-epochs 5"),
        ("--save-interval-updates 9 --keep-interval-updates 4", 5, "give --keep-interval-updates 5"),
    ],
)
def test_training_that_keeps_too_few_checkpoints_to_average_is_refused(flags, count, problem):
    train = parse_flag_lines(flags, "test")
    if not problem:
        return require_numbered_checkpoints(train, count)
    with pytest.raises(UserError, match=problem):
        require_numbered_checkpoints(train, count)


def test_values_to_choose_a_length_penalty_from_are_inherited_and_replaced(tmp_path):
    write(
        tmp_path,
        choice="length_penalties = [1, 0.6]\n[documents]\ngenerate = '--lenpen 2'",
        same="base = 'choice'",
        fixed="base = 'choice'\nlength_penalties = [2]\ngenerate = '--lenpen 1'",
        off="base = 'choice'\nlength_penalties = []",
        again="base = 'fixed'\nlength_penalties = [2.0, 2]",
        plain="generate = '--lenpen 3'",
        kept="base = 'plain'\nlength_penalties = []",
    )
    compared = {
        name: (config.penalties_to_compare(config.generate), config.generate.get("--lenpen"))
        for name in ("choice", "choice_64", "same", "fixed", "off", "again", "kept")
        for config in [require_dataset(name, tmp_path)]
    }
    assert compared == {
        "choice": ((1.0, 0.6), None),
        "choice_64": ((), ["2"]),
        "same": ((1.0, 0.6), None),
        "fixed": ((), ["1"]),
        "off": ((), None),
        "again": ((2.0,), None),
        "kept": ((), ["3"]),
    }


def test_only_datasets_with_documents_have_a_length_limit(tmp_path):
    write(tmp_path, plain="", books="[documents]", books_9="")
    assert dataset_names(tmp_path) == ["books", "books_N", "books_9", "plain"]
    assert load_dataset("plain_512", tmp_path) is None and load_dataset("none", tmp_path) is None
    assert "--document-length" not in require_dataset("books_9", tmp_path).train  # a file of its own
    with pytest.raises(
        UserError, match=r"'books_0' in .*; did you mean books_N\? known: books, books_N, books_9, plain"
    ):
        require_dataset("books_0", tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train = '", "bad.toml: not a TOML file"),
        (
            "average = 5",
            "bad.toml: Object contains unknown field `average`; known keys: train, generate, starts",
        ),
        ("length_penalties = [-inf]", r"bad.toml: Expected `float` >= -10.* - at `.*length_penalties"),
        ("[documents]\ndata_bin = 'x'", "unknown field `data_bin` .*documents`; .*: train, generate, starts_from"),
        ("train = '''\n--lr 1\n0.1'''", "bad.toml:train:2: expected a flag that begins with --, found '0.1'"),
        ("base = 'bad'", "bad.toml: base = 'bad' is not another dataset"),
        ("base = 'circle'", "circle.toml: base = 'bad' is not another dataset"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path, text, message):
    write(tmp_path, bad=text, circle="base = 'bad'")
    with pytest.raises(UserError, match=message):
        load_dataset("bad", tmp_path)
