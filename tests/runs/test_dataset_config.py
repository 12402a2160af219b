"""Datasets: the files of configs/datasets, what they inherit, and what is wrong with them."""

from pathlib import Path

import pytest

from relumt.errors import UserError
from relumt.runs.dataset_config import dataset_names, load_dataset, require_dataset
from relumt.runs.run_config import RESERVED_FLAGS

DATASETS = Path(__file__).resolve().parents[2] / "configs" / "datasets"


def write(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    return folder


def shipped(name):
    return require_dataset(name, DATASETS)


@pytest.mark.parametrize("name", [name.replace("_N", "_512") for name in dataset_names(DATASETS)])
def test_shipped_datasets_leave_models_and_scripts_their_flags(name):
    config = shipped(name)
    for flags in (config.train, config.generate):
        assert flags and not flags.keys() & {"--arch", "--criterion", *RESERVED_FLAGS}
        assert all(flag.startswith("--") for flag in flags)


@pytest.mark.parametrize("length", [128, 256, 512, 1024, 2048])
def test_documents_fit_into_positions_and_batches(length):
    config = shipped(f"europarl7_en_de_{length}")
    assert config.train["--document-length"] == [str(length)]
    assert config.data_bin == Path("data-bin/europarl7_en_de")
    limits = (config.train[f"--max-{name}"] for name in ("source-positions", "target-positions", "tokens"))
    assert all(int(limit) >= length for (limit,) in limits)


def test_documents_of_the_small_europarl_start_from_its_sentences():
    sentences, documents = shipped("europarl7_small"), shipped("europarl7_small_256")
    assert sentences.starts_from == "" and documents.starts_from == "europarl7_small"
    assert (sentences.train["--max-epoch"], documents.train["--max-epoch"]) == (["8"], ["2"])
    assert documents.generate == sentences.generate == shipped("europarl7_small_512").generate
    assert documents.train.items() >= {"--task": ["translation_europarl7"], "--dropout": ["0.1"]}.items()


def test_a_dataset_takes_flags_from_its_base_and_replaces_some(tmp_path):
    write(
        tmp_path,
        paper="train = '--lr 1 --dropout 0.1'\ngenerate = '--beam 5'\naverage_checkpoints = 5\ndata_bin = 'corpus'",
        mine="base = 'paper'\ntrain = '--lr 2'  # faster\nstarts_from = 'paper'\n[documents]\ngenerate = '--beam 4'",
    )
    config = require_dataset("mine", tmp_path)
    assert config.train == {"--lr": ["2"], "--dropout": ["0.1"]} and config.generate == {"--beam": ["5"]}
    assert (config.average_checkpoints, config.starts_from, config.data_bin) == (5, "paper", Path("data-bin/mine"))
    documents = require_dataset("mine_64", tmp_path)
    assert documents.train == config.train | {"--document-length": ["64"]} and documents.generate == {"--beam": ["4"]}
    assert (documents.name, documents.starts_from, documents.data_bin) == ("mine_64", "", config.data_bin)


def test_only_datasets_with_documents_have_a_length_limit(tmp_path):
    write(tmp_path, plain="", books="[documents]", books_9="")
    assert dataset_names(tmp_path) == ["books", "books_N", "books_9", "plain"]
    assert load_dataset("plain_512", tmp_path) is None and load_dataset("none", tmp_path) is None
    assert "--document-length" not in require_dataset("books_9", tmp_path).train  # a file of its own
    with pytest.raises(UserError, match=r"no dataset 'books_0' in .*; known: books, books_N, books_9, plain"):
        require_dataset("books_0", tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train = '", "bad.toml: not a TOML file"),
        ("average = 5", "bad.toml: Object contains unknown field `average`; known keys: base, data_bin, train"),
        ("average_checkpoints = 'all'", "bad.toml: Expected `int | null`, got `str` - at `.*average_checkpoints`"),
        ("[documents]\ndata_bin = 'x'", "unknown field `data_bin` .*documents`; .*: train, generate, starts_from"),
        ("documents = 512", "bad.toml: Expected `object | null`, got `int` - at `.*documents`"),
        ("train = '''\n--lr 1\n0.1'''", "bad.toml:train:2: expected a flag that begins with --, found '0.1'"),
        ("base = 'bad'", "bad.toml: base = 'bad' is not another dataset"),
        ("base = 'circle'", "circle.toml: base = 'bad' is not another dataset"),
    ],
)
def test_mistakes_in_a_file_are_named(tmp_path, text, message):
    write(tmp_path, bad=text, circle="base = 'bad'")
    with pytest.raises(UserError, match=message):
        load_dataset("bad", tmp_path)
