"""Names of languages, datasets, models and folders that a run reads: what would break a path or a script is refused."""

import json
import os
import shutil
from pathlib import Path

import pytest

from relumt.runs.data_bin import open_data_bin
from relumt.runs.run_config import resolve_run_config
from tests.attacks.run_cases import PREPARED, write_prepared_data_bin
from tests.runs.cases import CPU, index, write_configs, write_data_bin

pytestmark = pytest.mark.attack("names")


@pytest.fixture
def configs(attack) -> Path:
    return write_configs(attack.folder / "configs")


@pytest.fixture
def folder(attack) -> Path:
    return write_prepared_data_bin(attack.folder / "data-bin" / "small")


LANGUAGES = [
    "",
    "d\ne",
    "../de",
    "/de",
    "d e",
    "-de",
    "de\t",
    "de.en",
    "d\u2028e",
    "x" * 99,
    "d\0e",
    "$(id)",
    "de;",
    "*",
]


@pytest.mark.parametrize("language", LANGUAGES, ids=repr)
def test_odd_languages_are_refused(attack, folder, language):
    (folder / "prepare.json").write_text(json.dumps(PREPARED | {"target": language}))
    assert "is not a language code" in attack.reads(open_data_bin, folder)


def test_line_breaks_in_the_file_names_of_a_plain_data_bin_are_refused(attack):
    folder = write_data_bin(attack.folder / "plain")
    for path in folder.glob("*.en.*"):
        path.unlink()
    (folder / "train.de-e\nn.de.idx").write_bytes(index(1))
    (folder / "train.de-en.de.idx").unlink()
    (folder / "dict.e\nn.txt").write_text("a 1\n")
    assert "is not a language code" in attack.reads(open_data_bin, folder)


ODD_NAMES = [
    *(
        "a\nb",
        "a\n--user-dir\nevil",
        "a:b",
        "a\tb",
        "\x1b[31m",
        "a\u2028b",
        "\u202eabc",
        ".hidden",
        "-rf",
        "--help",
    ),
    "x" * 250,
    os.fsdecode(b"not-utf-8-\xff"),
]


@pytest.mark.parametrize("name", ODD_NAMES, ids=ascii)
def test_odd_names_of_a_data_bin_are_refused(attack, configs, folder, name):
    """A line break in a path would become further arguments of fairseq, such as --user-dir, which runs code."""
    path = folder.rename(attack.folder / "data-bin" / name)
    message = attack.reads(resolve_run_config, str(path), "stock", 1, configs, Path("runs"), None)
    assert "expected a name" in message or "expected a path" in message


@pytest.mark.parametrize("name", ODD_NAMES[:7], ids=ascii)
@pytest.mark.parametrize("variable", ["runs", "data_bin"])
def test_odd_folders_are_refused(attack, configs, folder, name, variable):
    odd = attack.folder / name / "inner"
    if variable == "data_bin":
        shutil.copytree(folder, odd)
    runs, data_bin = (odd, folder) if variable == "runs" else (Path("runs"), odd)
    message = attack.reads(resolve_run_config, "small", "stock", 1, configs, runs, data_bin)
    assert "expected a path without" in message


@pytest.mark.parametrize(
    "name", ["a b", "ä", "日本", "a'b", 'a"b', "a$HOME", "a;b", "a*b", "a&b", "#a", "a\\b", "~", "%s"], ids=ascii
)
def test_unusual_but_valid_names_work(attack, configs, folder, name):
    path = folder.rename(attack.folder / "data-bin" / name)
    assert attack.reads(resolve_run_config, str(path), "stock", 1, configs, Path("runs"), None) == ""
    config = resolve_run_config(str(path), "stock", 1, configs, Path("runs"), None)
    assert config.folder == Path("runs") / name / "stock" / "1"
    assert str(path) in config.train_command(config.train_flags([]), CPU)


@pytest.mark.parametrize(
    "dataset",
    [
        "",
        "/",
        "..",
        "../configs/datasets/small",
        "small.toml",
        "no\nsuch",
        "nul\0",
        "x" * 5000,
        "~",
        "small/",
        "*",
        "-",
    ],
    ids=lambda name: repr(name[:30]),
)
@pytest.mark.parametrize("model", ["stock", "../stock", "stock\n", "", "-h", "/etc/passwd", "models.toml"], ids=repr)
def test_unknown_names_are_refused(attack, configs, folder, dataset, model):
    arguments = ["--runs", "runs", "--configs", configs, "--", dataset, model]
    assert attack.relumt("run", "--train", *arguments).status == 2
