"""`relumt analyze`: what it writes, and what it says of what it cannot use."""

import json
import math
from argparse import Namespace
from pathlib import Path

import pytest
import torch

from relumt.analysis.loaded_model import find_checkpoint, open_given
from relumt.cli import main
from relumt.commands.analyze import gold_of, names_of
from relumt.runs.record import save_record
from tests.models.build import write_checkpoint, write_data_bin

LENGTHS = [(7, 5), (3, 8), (1, 2)]


@pytest.fixture
def data(tmp_path):
    return write_data_bin(tmp_path / "data-bin", LENGTHS)


def analyse(*arguments):
    main(["analyze", *map(str, arguments)])


def test_two_checkpoints_are_measured_and_trained_activations_drawn(tmp_path, data):
    first = write_checkpoint(tmp_path / "first", "--feedforward", "softmax_ln")
    second = write_checkpoint(tmp_path / "second", "--feedforward", "aptx1")
    analyse(first, second, "--data", data, "--out", tmp_path / "out")
    result = json.loads((tmp_path / "out" / "analysis.json").read_text())
    assert [analysis["path"] for analysis in result["checkpoints"]] == [str(first), str(second)]
    assert [analysis["pairs"] for analysis in result["checkpoints"]] == [3, 3]
    assert sorted(result["checkpoints"][0]["feedforward"]) == [
        f"{x}coder.layers.{i}" for x in ("de", "en") for i in (0, 1)
    ]
    assert result["checkpoints"][1]["activations"]["encoder.layers.0"] == {"beta": 1.0, "gamma": 0.5}
    for name in ("activations", "parameters"):
        assert (tmp_path / "out" / f"{name}.png").stat().st_size > 5000
        assert "</svg>" in (tmp_path / "out" / f"{name}.svg").read_text()


def test_models_are_called_by_as_much_of_their_path_as_tells_them_apart(tmp_path):
    runs = [tmp_path / dataset / "softmax" / "1" for dataset in ("short", "long")]
    for run in runs:
        run.mkdir(parents=True)
    assert names_of(runs[:1]) == ["softmax/1"]
    assert names_of([Path("/")]) == ["/"]
    assert names_of([*runs, tmp_path / "checkpoint.pt"]) == [
        "short/softmax/1", "long/softmax/1", str(tmp_path / "checkpoint.pt")
    ]  # fmt: skip


def test_a_pair_that_is_left_out_does_not_make_the_batches_larger(tmp_path, data):
    opened, _ = open_given(write_checkpoint(tmp_path, "--max-source-positions", "6"), data, cpu=True)
    opened.load("test")
    assert [len(batch["id"]) for batch in opened.batches("test", 6)] == [1, 1]


def test_each_side_may_have_an_activation_of_its_own(tmp_path, data):
    checkpoint = write_checkpoint(tmp_path, "--feedforward-encoder", "aptx1", "--feedforward-decoder", "relu_gt")
    analyse(checkpoint, "--data", data, "--out", tmp_path / "out")
    assert (tmp_path / "out" / "parameters.png").is_file()


def test_a_sentence_longer_than_a_batch_is_measured(tmp_path, data):
    analyse(write_checkpoint(tmp_path), "--data", data, "--out", tmp_path, "--max-tokens", "2")
    (analysis,) = json.loads((tmp_path / "analysis.json").read_text())["checkpoints"]
    assert analysis["pairs"] == len(LENGTHS)


def test_pairs_beyond_the_positions_are_left_out_and_counted(tmp_path, data):
    checkpoint = write_checkpoint(tmp_path, "--max-source-positions", "6")
    analyse(checkpoint, "--data", data, "--out", tmp_path)
    (analysis,) = json.loads((tmp_path / "analysis.json").read_text())["checkpoints"]
    assert (analysis["pairs"], analysis["pairs_too_long"]) == (2, 1)


def test_shuffled_targets_are_those_of_the_same_sentences(tmp_path):
    data = write_data_bin(tmp_path / "data-bin", [(7, 5), (3, 8), (1, 2), (2, 9), (4, 4)])
    checkpoint = write_checkpoint(tmp_path, "--attention", "rela_i", "--max-source-positions", "6")
    analyse(checkpoint, "--data", data, "--out", tmp_path, "--numbers-only")
    (analysis,) = json.loads((tmp_path / "analysis.json").read_text())["checkpoints"]
    for name, layer in analysis["attention"].items():
        if name.startswith("encoder"):  # which reads no target
            assert layer["null_rate"] == pytest.approx(layer["null_rate_shuffled"])
    opened, _ = open_given(checkpoint, data, cpu=True)
    opened.load("test")
    shuffled = opened.task.dataset(opened.shuffle_targets("test"))
    whole = opened.task.dataset("test")
    for pair in opened.fitting("test"):
        others = [whole[other]["target"].tolist() for other in opened.fitting("test") if other != pair]
        assert shuffled[pair]["target"].tolist() in others


def test_a_single_pair_has_no_other_target(tmp_path):
    data = write_data_bin(tmp_path / "data-bin", [(3, 8)])
    analyse(write_checkpoint(tmp_path), "--data", data, "--out", tmp_path, "--numbers-only")
    (analysis,) = json.loads((tmp_path / "analysis.json").read_text())["checkpoints"]
    assert all("null_rate_shuffled" not in layer for layer in analysis["attention"].values())


def test_numbers_that_are_not_finite_are_no_measures(tmp_path, data, capsys):
    checkpoint = write_checkpoint(tmp_path)
    state = torch.load(checkpoint, weights_only=False)
    state["model"]["decoder.layers.1.fc2.weight"][0, 0] = math.nan
    torch.save(state, checkpoint)
    with pytest.raises(SystemExit):
        analyse(checkpoint, "--data", data, "--out", tmp_path / "out")
    assert "gives numbers that are not finite" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such.pt", "--data", "DATA"], "no-such.pt: no such checkpoint"),
        (["CHECKPOINT", "--data", "no-such-data"], "no-such-data: no such data-bin"),
        (["CHECKPOINT", "--data", "DATA", "--subset", "dev"], "no subset 'dev' for de-en"),
        (["CHECKPOINT"], "no run.json says what it was trained on"),
        (["CHECKPOINT", "--data", "DATA", "--max-tokens", "0"], "--max-tokens must be positive"),
        (["CHECKPOINT", "--data", "OTHER"], "the checkpoint's vocabulary ("),
        (["NONSENSE", "--data", "DATA"], "rejected, it is damaged or contains code"),
        (["STOCK", "--data", "DATA"], "not of relumt's architectures"),
    ],
)
def test_mistakes_end_in_one_line_and_leave_nothing(tmp_path, data, capsys, arguments, message):
    other = write_data_bin(tmp_path / "other", LENGTHS)
    for language in ("de", "en"):
        (other / f"dict.{language}.txt").write_text("one 1\ntwo 1\n")
    (tmp_path / "nonsense.pt").write_bytes(b"nonsense")
    names = {
        "CHECKPOINT": write_checkpoint(tmp_path),
        "DATA": data,
        "OTHER": other,
        "NONSENSE": tmp_path / "nonsense.pt",
        "STOCK": write_checkpoint(tmp_path / "stock", "--arch", "transformer"),
    }
    with pytest.raises(SystemExit) as stopped:
        analyse(*(names.get(argument, argument) for argument in arguments), "--out", tmp_path / "out")
    error = capsys.readouterr().err.splitlines()[-1]
    assert stopped.value.code == 2
    assert error.startswith("relumt: error: ") and message in error
    assert not (tmp_path / "out").exists()


def test_the_data_bins_own_alignments_are_used(tmp_path):
    write_data_bin(tmp_path / "data-bin", LENGTHS, "train")
    data = write_data_bin(tmp_path / "data-bin", LENGTHS)
    (data / "text").mkdir()
    (data / "text" / "test.align").write_text("0-0 1-1\n0-1\n\n")
    analyse(write_checkpoint(tmp_path), "--data", data, "--out", tmp_path, "--numbers-only")
    (analysis,) = json.loads((tmp_path / "analysis.json").read_text())["checkpoints"]
    assert 0 <= analysis["alignment"]["normal"]["AoL"] <= 100
    (data / "text" / "test.align").write_text("0-0 1-1\n" * 9)  # of sentences, where the pairs are documents
    analyse(write_checkpoint(tmp_path), "--data", data, "--out", tmp_path, "--numbers-only")
    (analysis,) = json.loads((tmp_path / "analysis.json").read_text())["checkpoints"]
    assert analysis["alignment"] is None


def test_the_data_bins_alignments_are_turned_for_a_model_of_the_other_direction(tmp_path):
    write_data_bin(tmp_path / "data-bin", LENGTHS, "train")
    data = write_data_bin(tmp_path / "data-bin", LENGTHS)
    (data / "text").mkdir()
    (data / "text" / "test.align").write_text("6-4\n0-1\n\n")
    arguments = Namespace(alignments=None, subset="test")
    for flags, link in (([], (6, 4)), (["--source-lang", "en", "--target-lang", "de"], (4, 6))):
        opened, _ = open_given(write_checkpoint(tmp_path, *flags), data, cpu=True)
        _, gold = gold_of(opened, data, 3, arguments)
        assert gold[0].sure == {link}


def test_of_a_run_the_checkpoint_is_analysed_that_was_scored(tmp_path):
    for name in ("checkpoint_best.pt", "checkpoint_average_5.pt"):
        (tmp_path / "checkpoints").mkdir(exist_ok=True)
        (tmp_path / "checkpoints" / name).touch()
    assert find_checkpoint(tmp_path).name == "checkpoint_best.pt"
    save_record(tmp_path, {"evaluation": {"test": {"checkpoint": "checkpoint_average_5.pt"}}})
    assert find_checkpoint(tmp_path).name == "checkpoint_average_5.pt"
