from pathlib import Path

import pytest

from relumt.errors import UserError
from relumt.runs.dataset_config import PACKAGED_CONFIGS, configs_folder, dataset_names, read_models, require_model
from relumt.runs.environment import Device
from relumt.runs.run_config import RESERVED_FLAGS, resolve_run_config
from tests.runs.cases import CPU, write_data_bin, write_dataset

GPU_FP32 = Device("cuda", "H", 1, "fp32")
CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def test_command_line_flags_override_model_flags_which_override_dataset_flags(config):
    flags = config.train_flags(["--max-epoch", "9"])
    assert flags == {
        "--lr": ["1e-3"],
        "--dropout": ["0.1"],
        "--max-epoch": ["9"],
        "--max-tokens": ["100"],
        "--optimizer": ["adam"],
        "--arch": ["transformer"],
        "--seed": ["1"],
        "--update-epoch-batch-itr": ["True"],
    }


@pytest.mark.parametrize(
    ("device", "precision"), [(CPU, ["--cpu"]), (Device("cuda", "H", 1, "bf16"), ["--bf16"]), (GPU_FP32, [])]
)
def test_the_command_of_training_names_folder_device_and_precision(config, device, precision):
    command = config.train_command(config.train_flags([]), device)
    assert command[0] == str(config.data_bin.folder) and config.folder.parts[-3:] == ("small", "stock", "1")
    assert command[command.index("--save-dir") + 1] == str(config.folder / "checkpoints")
    assert [flag for flag in command if flag in ("--cpu", "--bf16", "--fp16", "--cpu-bf16")] == precision


def test_translation_joins_subwords_and_skips_no_batch(config):
    trained = {"--task": "translation_documents", "--document-length": "2048", "--max-source-positions": "2048"}
    flags = config.generate_flags(["--beam", "1"], trained | {"--lr": "1"})
    expected = {"--required-batch-size-multiple": ["1"], "--post-process": ["subword_nmt"], "--beam": ["1"]}
    assert flags == expected | {name: [value] for name, value in trained.items()}
    truncated = config.generate_flags(["--beam", "1"], trained | {"--truncate-source": ""})
    assert truncated == flags | {"--truncate-source": []}
    checkpoint = config.checkpoints / "checkpoint_best.pt"
    assert "--bf16" not in config.generate_command(flags, checkpoint, config.folder, Device("cuda", "H", 1, "bf16"))


def test_reserved_flags_are_refused(config):
    for flag in RESERVED_FLAGS:
        with pytest.raises(UserError, match=f"{flag} is set by the scripts"):
            config.train_flags([flag])


def test_missing_data_bin_says_how_to_make_it(configs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"data-bin/small: no data-bin.*relumt prepare … --out data-bin/small"):
        resolve_run_config("small", "stock", 1, configs, tmp_path / "runs", None)
    write_dataset(configs, "small", data_bin="large")
    (tmp_path / "data_prep").mkdir()
    (tmp_path / "data_prep" / "large.sh").touch()
    with pytest.raises(UserError, match=r"data-bin/large: no data-bin.*make it with data_prep/large.sh$"):
        resolve_run_config("small", "stock", 1, configs, tmp_path / "runs", None)


def test_configs_are_those_of_the_variable_the_folder_or_the_package(tmp_path, monkeypatch):
    monkeypatch.delenv("CONFIGS", raising=False)
    (tmp_path / "configs" / "datasets").mkdir(parents=True)  # of another program
    assert configs_folder(tmp_path) == PACKAGED_CONFIGS
    assert read_models(PACKAGED_CONFIGS) == read_models(CONFIGS)
    assert dataset_names(PACKAGED_CONFIGS / "datasets") == dataset_names(CONFIGS / "datasets")
    (tmp_path / "configs" / "models.toml").touch()
    assert configs_folder(tmp_path) == tmp_path / "configs"
    monkeypatch.setenv("CONFIGS", "elsewhere")
    assert configs_folder(tmp_path) == Path("elsewhere")


def test_path_of_a_data_bin_has_the_default_flags(configs, tmp_path):
    write_dataset(configs, "default", train="--lr 7")
    data_bin = write_data_bin(tmp_path / "mine")
    config = resolve_run_config(str(data_bin), "stock", 3, configs, tmp_path / "runs", None)
    assert config.train_flags([])["--lr"] == ["7"]
    assert config.folder == tmp_path / "runs" / "mine" / "stock" / "3"


@pytest.mark.parametrize("model", read_models(CONFIGS))
def test_models_contain_no_reserved_flags(model):
    flags = require_model(model, CONFIGS)
    assert "--arch" in flags and "--criterion" in flags and not flags.keys() & RESERVED_FLAGS.keys()
