from pathlib import Path

import pytest

from relumt.errors import UserError
from relumt.runs.environment import Device
from relumt.runs.flags import parse_flags, read_flags
from relumt.runs.run_config import OF_THE_SCRIPTS, plan_run
from tests.runs.cases import CPU, write_data_bin

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def test_flags_of_model_win_over_dataset_and_of_command_line_over_both(plan):
    flags = plan.train_flags(["--max-epoch", "9"])
    assert flags == {
        "--lr": ["1e-3"],
        "--dropout": ["0.1"],
        "--max-epoch": ["9"],
        "--arch": ["transformer"],
        "--seed": ["1"],
        "--update-epoch-batch-itr": ["True"],
    }


def test_train_command_on_cpu_and_gpu(plan):
    flags = plan.train_flags([])
    command = plan.train_command(flags, CPU)
    assert command[0] == str(plan.data_bin.folder)
    assert command[command.index("--save-dir") + 1] == str(plan.folder / "checkpoints")
    assert "--cpu" in command and "--bf16" not in command
    command = plan.train_command(flags, Device("cuda", "H", 1, "bf16"))
    assert "--bf16" in command and "--cpu" not in command
    assert plan.folder.parts[-3:] == ("small", "stock", "1")


def test_translation_undoes_the_subwords_and_drops_no_batch(plan):
    flags = plan.generate_flags(["--beam", "1"], {"--lr": "1"})
    assert flags == {"--required-batch-size-multiple": ["1"], "--post-process": ["subword_nmt"], "--beam": ["1"]}
    checkpoint = plan.checkpoints / "checkpoint_best.pt"
    assert "--bf16" not in plan.generate_command(flags, checkpoint, plan.folder, Device("cuda", "H", 1, "bf16"))


def test_translation_reads_what_training_read(plan):
    trained = {"--task": "translation_documents", "--document-length": "2048", "--max-source-positions": "2048"}
    flags = plan.generate_flags([], trained | {"--lr": "1"})
    assert {name: flags[name] for name in trained} == {name: [value] for name, value in trained.items()}
    assert "--lr" not in flags


@pytest.mark.parametrize("flag", OF_THE_SCRIPTS)
def test_flags_of_the_scripts_are_refused(plan, flag):
    with pytest.raises(UserError, match=f"{flag} is set by the scripts"):
        plan.train_flags([flag])


def test_unknown_names_list_the_known(configs, tmp_path):
    with pytest.raises(UserError, match=r"no dataset 'smal'.*known: default, small"):
        plan_run("smal", "stock", 1, configs, tmp_path / "runs", None)
    with pytest.raises(UserError, match=r"no model 'relu'.*known: stock"):
        plan_run("small", "relu", 1, configs, tmp_path / "runs", None)


def test_missing_data_bin_says_how_to_make_it(configs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"data-bin/small: no data-bin.*data_prep/prepare.sh … --out data-bin/small"):
        plan_run("small", "stock", 1, configs, tmp_path / "runs", None)
    (configs / "datasets" / "small" / "data_bin").write_text("large\n")
    (tmp_path / "data_prep").mkdir()
    (tmp_path / "data_prep" / "large.sh").touch()
    with pytest.raises(UserError, match=r"data-bin/large: no data-bin.*make it with data_prep/large.sh$"):
        plan_run("small", "stock", 1, configs, tmp_path / "runs", None)


def test_path_of_a_data_bin_has_the_default_flags(configs, tmp_path):
    (configs / "datasets" / "default" / "train.args").write_text("--lr 7\n")
    data_bin = write_data_bin(tmp_path / "mine")
    plan = plan_run(str(data_bin), "stock", 3, configs, tmp_path / "runs", None)
    assert plan.train_flags([])["--lr"] == ["7"]
    assert plan.folder == tmp_path / "runs" / "mine" / "stock" / "3"


@pytest.mark.parametrize("path", sorted(CONFIGS.rglob("*.args")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_shipped_configs_leave_the_scripts_their_flags(path):
    flags = read_flags(path)
    assert flags and not flags.keys() & OF_THE_SCRIPTS.keys()
    assert all(name.startswith("--") for name in flags)
    if path.name == "train.args":
        assert "--arch" not in flags and "--criterion" not in flags
        assert (path.parent / "generate.args").is_file()


def test_paper_settings():
    expected = "--encoder-layers 6 --encoder-attention-heads 4 --encoder-embed-dim 512 --encoder-ffn-embed-dim 1024"
    flags = read_flags(CONFIGS / "datasets" / "iwslt14_de_en" / "train.args")
    assert parse_flags(expected.split(), "").items() <= flags.items()
    expected = "--encoder-layers 6 --encoder-attention-heads 8 --encoder-embed-dim 512 --encoder-ffn-embed-dim 2048"
    flags = read_flags(CONFIGS / "datasets" / "wmt14_en_de" / "train.args")
    assert parse_flags(expected.split(), "").items() <= flags.items()


def test_the_settings_of_rela_are_those_of_the_paper():
    datasets = [path.parent for path in (CONFIGS / "datasets").glob("*/average")]
    assert len(datasets) == 6
    for folder in datasets:
        train, generate = read_flags(folder / "train.args"), read_flags(folder / "generate.args")
        assert train["--max-tokens"] == ["25000"] and train["--warmup-updates"] == ["4000"]
        assert int(train["--keep-interval-updates"][0]) >= int((folder / "average").read_text()) == 5
        assert (generate["--beam"], generate["--lenpen"]) == (["4"], ["0.6"])


@pytest.mark.parametrize("length", [128, 256, 512, 1024, 2048])
def test_documents_fit_into_positions_and_batches(length):
    flags = read_flags(CONFIGS / "datasets" / f"europarl7_en_de_{length}" / "train.args")
    assert int(flags["--document-length"][0]) == length
    reach = (int(flags[f"--max-{name}"][0]) for name in ("source-positions", "target-positions", "tokens"))
    assert all(limit >= length for limit in reach)


def test_a_dataset_says_how_many_checkpoints_are_averaged(plan):
    assert plan.averaged == 0
    (plan.dataset_folder / "average").write_text("3\n")
    assert plan.averaged == 3
    (plan.dataset_folder / "average").write_text("all\n")
    with pytest.raises(UserError, match="'all' is no number of checkpoints"):
        plan.averaged  # noqa: B018
