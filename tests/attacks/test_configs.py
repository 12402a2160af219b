"""configs/: damaged TOML files, cycles, names that leave the folder, odd flags."""

from collections.abc import Callable
from pathlib import Path

import pytest

from relumt.runs.dataset_config import dataset_names, load_dataset, read_models
from relumt.runs.flags import parse_flag_lines
from relumt.runs.run_config import resolve_run_config
from relumt.runs.training import find_pretraining
from tests.runs.cases import write_data_bin, write_dataset, write_models

pytestmark = [pytest.mark.attack("flags"), pytest.mark.usefixtures("constant_environment")]


@pytest.fixture
def configs(attack) -> Path:
    folder = attack.folder / "configs"
    (folder / "datasets").mkdir(parents=True)
    write_dataset(folder, "default")
    write_models(folder, stock="--arch transformer")
    write_data_bin(attack.folder / "data-bin" / "bad")
    return folder


DAMAGED_TOML = {
    "not TOML": b"train =",
    "an open quotation": b"train = '",
    "NUL": b"train = '\0'",
    "not UTF-8": b"train = '\xff'",
    "UTF-16": "train = '--lr 1'".encode("utf-16"),
    "a byte-order mark": b"\xef\xbb\xbftrain = '--lr 1'",
    "JSON": b'{"train": "--lr 1"}',
    "a duplicate key": b"train = ''\ntrain = ''",
    "deep nesting": b"train = " + b"[" * 20_000 + b"]" * 20_000,
    "deep tables": b"train = " + b"{a=" * 20_000,
    "many digits": b"average_checkpoints = " + b"9" * 5_000,
    "binary": bytes(range(256)) * 10,
    "an unknown key": b"trian = '--lr 1'",
    "an unknown key of documents": b"[documents]\nbase = 'default'",
    "an unknown section": b"[train]\nlr = 1",
    "a list of sections": b"[[documents]]\n",
}

WRONG_TYPES = ("1", "1.5", "true", "[]", "{}", "nan", "inf", "1979-05-27", "['--lr 1']")

KEYS = ("base", "data_bin", "train", "generate", "starts_from")


@pytest.mark.parametrize("name", DAMAGED_TOML)
def test_damaged_files_are_refused(attack, configs, name):
    for path, read, arguments in (
        (configs / "datasets" / "bad.toml", load_dataset, ("bad", configs / "datasets")),
        (configs / "models.toml", read_models, (configs,)),
    ):
        path.write_bytes(DAMAGED_TOML[name])
        assert f"{path}: " in attack.reads(read, *arguments)


@pytest.mark.parametrize("key", KEYS)
def test_values_of_other_types_are_refused(attack, configs, key):
    for value in WRONG_TYPES:
        (configs / "datasets" / "bad.toml").write_text(f"{key} = {value}")
        message = attack.reads(load_dataset, "bad", configs / "datasets")
        assert f"`$.{key}`" in message and "known keys: base, data_bin, train" in message


@pytest.mark.parametrize("value", ["-1", "1.0", "true", "'5'", "[]", "1001", "9223372036854775808", "nan", "inf"])
def test_impossible_numbers_of_checkpoints_are_refused(attack, configs, value):
    (configs / "datasets" / "bad.toml").write_text(f"average_checkpoints = {value}")
    assert "average_checkpoints" in attack.reads(load_dataset, "bad", configs / "datasets")


OUTSIDE = ["../default", "/etc/passwd", "..", "a/b", "-x", "a\\nb", "a\\u0000b", "x" * 300, "a:b", ".hidden"]


@pytest.mark.parametrize("name", OUTSIDE, ids=lambda name: name[:20])
@pytest.mark.parametrize("key", ["base", "data_bin", "starts_from"])
def test_names_that_leave_the_folder_are_refused(attack, configs, key, name):
    (configs / "datasets" / "bad.toml").write_text(f'{key} = "{name}"')
    message = attack.reads(load_dataset, "bad", configs / "datasets")
    if key == "starts_from":
        config = resolve_run_config("bad", "stock", 1, configs, Path("runs"), Path("data-bin/bad"))
        message = attack.reads(find_pretraining, config, None)
    assert "is not another dataset" in message or "is not a dataset" in message or "expected a name" in message


def test_cycles_of_bases_are_refused(attack, configs):
    for names in (["bad"], ["bad", "b"], ["bad", "b", "c", "d"]):
        for name, base in zip(names, [*names[1:], names[0]], strict=True):
            (configs / "datasets" / f"{name}.toml").write_text(f'base = "{base}"')
        assert "is not another dataset" in attack.reads(load_dataset, "bad", configs / "datasets")


def test_a_long_chain_of_bases_is_read(attack, configs):
    for number in range(50):
        (configs / "datasets" / f"d{number}.toml").write_text(f'base = "d{number + 1}"')
    (configs / "datasets" / "d50.toml").write_text("train = '--lr 1'")
    assert attack.reads(load_dataset, "d0", configs / "datasets") == ""
    assert load_dataset("d0", configs / "datasets").train == {"--lr": ["1"]}


@pytest.mark.parametrize(
    "length", ["0", "-1", "01", "1e3", "9" * 5000, "9" * 30, "٣", "²", " 5", "5\n", ""], ids=lambda text: text[:9]
)
def test_impossible_lengths_of_documents_are_unknown_datasets(attack, configs, length):
    (configs / "datasets" / "bad.toml").write_text("[documents]")
    assert attack.reads(load_dataset, f"bad_{length}", configs / "datasets") == ""
    assert load_dataset(f"bad_{length}", configs / "datasets") is None


KINDS: dict[str, Callable[[Path], object]] = {
    "folder": Path.mkdir,
    "dangling": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_other_kinds_of_files_are_refused(attack, configs, kind):
    KINDS[kind](configs / "datasets" / "bad.toml")
    resolve = (resolve_run_config, "bad", "stock", 1, configs, Path("runs"), Path("data-bin/bad"))
    assert "no dataset 'bad'" in attack.reads(*resolve)
    (configs / "models.toml").unlink()
    KINDS[kind](configs / "models.toml")
    ended = attack.relumt("run", "--train", "--", "default", "stock")
    assert ended.status == 2 and "models.toml" in ended.error


@pytest.mark.parametrize("name", ["a\nb", "-x", "a:b", "\x1b[2J", "a\u2028b"], ids=ascii)
def test_odd_names_of_models_are_refused(attack, configs, name):
    write_models(configs, **{name: "--arch transformer"})
    message = attack.reads(resolve_run_config, "default", name, 1, configs, Path("runs"), Path("data-bin/bad"))
    assert "expected a name" in message


DAMAGED_FLAGS = {
    "an open quotation": "--lr 'x",
    "a backslash at the end": "--lr x\\",
    "a value first": "1e-3 --lr",
    "a negative value first": "-5",
    "no flag": "'' ''",
    "another value": "--lr 1\n--lr 2",
}


@pytest.mark.parametrize("name", DAMAGED_FLAGS)
def test_damaged_flags_are_refused(attack, configs, name):
    write_models(configs, bad=DAMAGED_FLAGS[name])
    message = attack.reads(resolve_run_config, "default", "bad", 1, configs, Path("runs"), Path("data-bin/bad"))
    assert f"{configs / 'models.toml'}:bad:" in message


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("# only a comment\n\n   \n", {}),
        ("--lr 1 # --lr 2", {"--lr": ["1"]}),
        ("--lr 'a # b'", {"--lr": ["a # b"]}),
        ("--fp16\n--lr 1", {"--fp16": [], "--lr": ["1"]}),
        ("--lr '$(touch x)' --y `id`", {"--lr": ["$(touch x)"], "--y": ["`id`"]}),
        ("--lr ../../etc/passwd", {"--lr": ["../../etc/passwd"]}),
    ],
)
def test_odd_but_valid_flags_are_taken_literally(attack, text, flags):
    assert attack.reads(parse_flag_lines, text, "here") == ""
    assert parse_flag_lines(text, "here") == flags


def test_a_damaged_file_is_named_when_datasets_are_listed(attack, configs):
    (configs / "datasets" / "bad.toml").write_text("train =")
    assert "bad.toml: " in attack.reads(dataset_names, configs / "datasets")


@pytest.mark.parametrize("configs_folder", ["nowhere", "configs/datasets/default.toml", ""])
def test_a_folder_without_configurations_is_refused(attack, configs, configs_folder):
    ended = attack.relumt("run", "--train", "--configs", configs_folder, "--", "default", "stock")
    assert ended.status == 2
