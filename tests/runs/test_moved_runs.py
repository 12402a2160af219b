"""A run keeps what translation needs, and its paths begin at its folder."""

from dataclasses import replace
from pathlib import Path

import pytest

from relumt.errors import UserError
from relumt.runs.data_bin import open_data_bin
from relumt.runs.record import data_bin_of_checkpoint, find_data_bin, find_preparation, load_record, save_record
from tests.attacks.attack import snapshot
from tests.runs.cases import LOG, Killed, Step

DATA = Path("data-bin/small")
CODES = "#version: 0.2\na b</w>\n"
PREPARE = '{"source": "de", "target": "en", "tokenized": true, "lowercased": true, "bpe": "subword-nmt"}'


@pytest.fixture
def kept(config) -> Path:
    """The folder in which the run keeps the preparation of its data-bin, which has subwords."""
    (DATA / "bpe.codes").write_text(CODES)
    (DATA / "prepare.json").write_text(PREPARE)
    return config.folder / "preparation"


def test_a_run_keeps_what_its_model_was_trained_with(run, config, kept):
    run("train")
    assert {path.name for path in kept.iterdir()} == {"prepare.json", "dict.de.txt", "dict.en.txt", "bpe.codes"}
    found, original = open_data_bin(kept), open_data_bin(DATA)
    assert found.preparation == original.preparation and found.lowercased and found.bpe == "subword-nmt"
    assert found.dictionaries() == original.dictionaries() == load_record(config.folder).provenance.dictionaries
    assert (kept / "bpe.codes").read_text() == CODES


def interrupt(run, fairseq):
    fairseq.steps = [Step(LOG, ("checkpoint_last.pt",), killed=True)]
    with pytest.raises(Killed):
        run("train")


def test_resuming_changes_what_is_kept_only_with_the_data(run, fairseq, kept):
    interrupt(run, fairseq)
    before = snapshot(kept)
    (DATA / "bpe.codes").unlink()
    interrupt(run, fairseq)
    assert snapshot(kept) == before
    (kept / "dict.en.txt").unlink()
    interrupt(run, fairseq)
    assert (kept / "dict.en.txt").read_bytes() == (DATA / "dict.en.txt").read_bytes()
    (DATA / "dict.en.txt").write_text("x 1\n")
    run("train", status=2)
    assert (kept / "dict.en.txt").read_text() != "x 1\n", "a refused training changes nothing"
    run("train", options=["--force"])
    assert (kept / "dict.en.txt").read_text() == "x 1\n"


@pytest.mark.parametrize("recorded", ["data-bin/small", None])  # as in earlier records, and now
@pytest.mark.parametrize("working_folder", ["moved/runs", "."])
def test_a_data_bin_is_found_after_the_checkout_was_moved(run, config, tmp_path, monkeypatch, recorded, working_folder):
    run("train")
    record = load_record(config.folder)
    assert record.data_bin == "../../../../data-bin/small"
    save_record(config.folder, replace(record, data_bin=recorded or record.data_bin))
    (tmp_path / "moved").mkdir()
    for name in ("runs", "data-bin"):
        Path(name).rename(tmp_path / "moved" / name)
    monkeypatch.chdir(tmp_path / working_folder)
    folder = tmp_path / "moved" / config.folder
    found = find_data_bin(folder, load_record(folder))
    assert found.samefile(tmp_path / "moved" / DATA) and not found.is_absolute()
    assert data_bin_of_checkpoint(folder / "checkpoints/checkpoint_best.pt") == found


def test_an_absolute_path_of_a_data_bin_is_kept(run, config, tmp_path):
    run("train", options=["--data-bin", str(tmp_path / DATA)])
    assert find_data_bin(config.folder, load_record(config.folder)) == tmp_path / DATA


def test_a_run_without_kept_files_uses_its_data_bin(run, config, kept, tmp_path):
    run("train")
    checkpoint = config.folder / "checkpoints/checkpoint_best.pt"
    assert find_preparation(checkpoint) == kept.absolute()
    kept.rename(tmp_path / "elsewhere")
    assert find_preparation(checkpoint) == DATA
    with pytest.raises(UserError, match=r"model.pt: no run.json that names the data-bin; give one with --data"):
        find_preparation(tmp_path / "model.pt")
