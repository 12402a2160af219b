"""`relumt analyze`: what it writes, and what it says of what it cannot use."""

import math
from pathlib import Path

import pytest
import torch

from relumt.analysis.loaded_model import find_checkpoint, load_model
from relumt.analysis.measure import AnalysisConfig, load_gold_alignments
from relumt.cli import main
from relumt.commands.analyze import short_names
from relumt.runs.analysis_record import read_analysis
from relumt.runs.record import save_record
from tests.models.build import write_checkpoint, write_data_bin
from tests.runs.cases import scored_record, with_value

LENGTHS = [(7, 5), (3, 8), (1, 2)]


@pytest.fixture
def data(tmp_path):
    return write_data_bin(tmp_path / "data-bin", LENGTHS)


def analyze(*arguments):
    main(["analyze", *map(str, arguments)])


def test_two_checkpoints_are_measured_and_trained_activations_drawn(tmp_path, data):
    first = write_checkpoint(tmp_path / "first", "--feedforward", "softmax_ln")
    second = write_checkpoint(tmp_path / "second", "--feedforward", "aptx1")
    analyze(first, second, "--data", data, "--out", tmp_path / "out")
    result = read_analysis(tmp_path / "out" / "analysis.json")
    assert [analysis.path for analysis in result.checkpoints] == [str(first), str(second)]
    assert [analysis.num_pairs for analysis in result.checkpoints] == [3, 3]
    assert sorted(result.checkpoints[0].feedforward) == [f"{x}coder.layers.{i}" for x in ("de", "en") for i in (0, 1)]
    assert result.checkpoints[1].activations["encoder.layers.0"] == {"beta": 1.0, "gamma": 0.5}
    for name in ("activations", "parameters"):
        assert (tmp_path / "out" / f"{name}.png").stat().st_size > 5000
        assert "</svg>" in (tmp_path / "out" / f"{name}.svg").read_text()


def test_models_are_called_by_as_much_of_their_path_as_tells_them_apart(tmp_path):
    runs = [tmp_path / dataset / "softmax" / "1" for dataset in ("short", "long")]
    for run in runs:
        run.mkdir(parents=True)
    assert short_names(runs[:1]) == ["softmax/1"]
    assert short_names([Path("/")]) == ["/"]
    assert short_names([*runs, tmp_path / "checkpoint.pt"]) == [
        "short/softmax/1", "long/softmax/1", str(tmp_path / "checkpoint.pt")
    ]  # fmt: skip


def test_a_pair_that_is_left_out_does_not_make_the_batches_larger(tmp_path, data):
    loaded, _ = load_model(write_checkpoint(tmp_path, "--max-source-positions", "6"), data, cpu=True)
    loaded.load_subset("test")
    assert [len(batch["id"]) for batch in loaded.batches("test", 6)] == [1, 1]


def test_each_side_may_have_an_activation_of_its_own(tmp_path, data):
    checkpoint = write_checkpoint(tmp_path, "--feedforward-encoder", "aptx1", "--feedforward-decoder", "relu_gt")
    analyze(checkpoint, "--data", data, "--out", tmp_path / "out")
    assert (tmp_path / "out" / "parameters.png").is_file()


def test_a_sentence_longer_than_a_batch_is_measured(tmp_path, data):
    analyze(write_checkpoint(tmp_path), "--data", data, "--out", tmp_path, "--max-tokens", "2")
    (analysis,) = read_analysis(tmp_path / "analysis.json").checkpoints
    assert analysis.num_pairs == len(LENGTHS)


def test_pairs_beyond_the_positions_are_left_out_and_counted(tmp_path, data):
    checkpoint = write_checkpoint(tmp_path, "--max-source-positions", "6")
    analyze(checkpoint, "--data", data, "--out", tmp_path)
    (analysis,) = read_analysis(tmp_path / "analysis.json").checkpoints
    assert (analysis.num_pairs, analysis.num_pairs_too_long) == (2, 1)


def test_shuffled_targets_are_those_of_the_same_sentences(tmp_path):
    data = write_data_bin(tmp_path / "data-bin", [(7, 5), (3, 8), (1, 2), (2, 9), (4, 4)])
    checkpoint = write_checkpoint(tmp_path, "--attention", "rela_i", "--max-source-positions", "6")
    analyze(checkpoint, "--data", data, "--out", tmp_path, "--numbers-only")
    (analysis,) = read_analysis(tmp_path / "analysis.json").checkpoints
    for name, layer in analysis.attention.items():
        if name.startswith("encoder"):  # which reads no target
            assert layer.null_rate == pytest.approx(layer.null_rate_shuffled)
    loaded, _ = load_model(checkpoint, data, cpu=True)
    loaded.load_subset("test")
    shuffled = loaded.task.dataset(loaded.shuffle_targets("test"))
    whole = loaded.task.dataset("test")
    for pair in loaded.fitting_indices("test"):
        others = [whole[other]["target"].tolist() for other in loaded.fitting_indices("test") if other != pair]
        assert shuffled[pair]["target"].tolist() in others


def test_a_single_pair_has_no_other_target(tmp_path):
    data = write_data_bin(tmp_path / "data-bin", [(3, 8)])
    analyze(write_checkpoint(tmp_path), "--data", data, "--out", tmp_path, "--numbers-only")
    (analysis,) = read_analysis(tmp_path / "analysis.json").checkpoints
    assert all(layer.null_rate_shuffled is None for layer in analysis.attention.values())


def test_a_diverged_model_is_refused(tmp_path, data, capsys):
    checkpoint = write_checkpoint(tmp_path)
    state = torch.load(checkpoint, weights_only=False)
    state["model"]["decoder.layers.1.fc2.weight"][0, 0] = math.nan
    torch.save(state, checkpoint)
    with pytest.raises(SystemExit):
        analyze(checkpoint, "--data", data, "--out", tmp_path / "out")
    assert "the decoder's output is not finite" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such.pt", "--data", "DATA"], "no-such.pt: no such checkpoint"),
        (["CHECKPOINT", "--data", "no-such-data"], "no-such-data: no such data-bin"),
        (["CHECKPOINT", "--data", "DATA", "--subset", "dev"], "no subset 'dev' for de-en"),
        (["CHECKPOINT"], "no run.json that names the data-bin"),
        (["CHECKPOINT", "--data", "DATA", "--max-tokens", "0"], "--max-tokens must be positive"),
        (["CHECKPOINT", "--data", "OTHER"], "the checkpoint's vocabulary ("),
        (["NONSENSE", "--data", "DATA"], "rejected, it is damaged or contains code"),
        (["STOCK", "--data", "DATA"], "expected one of relumt's architectures"),
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
        analyze(*(names.get(argument, argument) for argument in arguments), "--out", tmp_path / "out")
    error = capsys.readouterr().err.splitlines()[-1]
    assert stopped.value.code == 2
    assert error.startswith("relumt: error: ") and message in error
    assert not (tmp_path / "out").exists()


def test_the_data_bins_own_alignments_are_used(tmp_path):
    write_data_bin(tmp_path / "data-bin", LENGTHS, "train")
    data = write_data_bin(tmp_path / "data-bin", LENGTHS)
    (data / "text").mkdir()
    (data / "text" / "test.align").write_text("0-0 1-1\n0-1\n\n")
    analyze(write_checkpoint(tmp_path), "--data", data, "--out", tmp_path, "--numbers-only")
    (analysis,) = read_analysis(tmp_path / "analysis.json").checkpoints
    assert 0 <= analysis.alignment.aol("normal") <= 100
    (data / "text" / "test.align").write_text("0-0 1-1\n" * 9)  # of sentences, where the pairs are documents
    analyze(write_checkpoint(tmp_path), "--data", data, "--out", tmp_path, "--numbers-only")
    (analysis,) = read_analysis(tmp_path / "analysis.json").checkpoints
    assert analysis.alignment is None


def test_the_data_bins_alignments_are_turned_for_a_model_of_the_other_direction(tmp_path):
    write_data_bin(tmp_path / "data-bin", LENGTHS, "train")
    data = write_data_bin(tmp_path / "data-bin", LENGTHS)
    (data / "text").mkdir()
    (data / "text" / "test.align").write_text("6-4\n0-1\n\n")
    for flags, link in (([], (6, 4)), (["--source-lang", "en", "--target-lang", "de"], (4, 6))):
        loaded, _ = load_model(write_checkpoint(tmp_path, *flags), data, cpu=True)
        gold, _ = load_gold_alignments(loaded, data, 3, AnalysisConfig(data, "test"))
        assert gold[0].sure == {link}


def test_of_a_run_the_checkpoint_is_analysed_that_was_scored(tmp_path):
    for name in ("checkpoint_best.pt", "checkpoint_average_5.pt"):
        (tmp_path / "checkpoints").mkdir(exist_ok=True)
        (tmp_path / "checkpoints" / name).touch()
    assert find_checkpoint(tmp_path).name == "checkpoint_best.pt"
    save_record(tmp_path, with_value(scored_record(), "evaluations.test.setup.checkpoint", "checkpoint_average_5.pt"))
    assert find_checkpoint(tmp_path).name == "checkpoint_average_5.pt"
