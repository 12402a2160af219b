"""The studies of trained models run on tiny ones."""

import importlib
import math
import os
from dataclasses import replace

import pytest
import torch

from relumt.runs.evaluation_record import LengthPenaltyChoice, LengthPenaltySearch
from relumt.runs.record import save_record
from tests.benchmarks.conftest import BENCHMARKS, LENGTHS
from tests.plugin.model.build import dictionary, write_checkpoint
from tests.runs.cases import scored_record


def test_studies_of_a_model(run, data, tmp_path):
    torch.manual_seed(1)
    checkpoint = write_checkpoint(tmp_path, "--attention", "softmax")
    rows = run("studies.py", "by-length", checkpoint, "--data", data, "--groups", "6")
    assert [row[1] for row in rows] == ["1–1", "3–3", "4–4", "6–6", "7–7", "9–9"]
    assert all(float(row[2]) == pytest.approx(math.log(len(dictionary())), abs=0.7) for row in rows)
    assert rows[0][3] == rows[0][5] == "1.000"  # a single source token has all the weight
    for row, length in zip(rows[1:], (3, 4, 6, 7, 9), strict=True):
        assert 1 / length < float(row[3]) < 1 and math.log(length) / 2 < float(row[6]) < math.log(length) + 1e-3
        assert row[9:] == ["0.000"] * 6  # softmax has neither null rows nor zeros
    ((_, tokens, *values),) = run("studies.py", "calibration", checkpoint, "--data", data)
    bits, accuracy, confidence, error = (float(value.rstrip("%")) for value in values)
    assert int(tokens) == 4 * sum(target for _, target in LENGTHS)
    assert bits == pytest.approx(math.log2(len(dictionary())), abs=1)  # an untrained model is almost uniform
    assert abs(accuracy - confidence) - 0.02 <= error <= 100
    rows = run("studies.py", "filtering", checkpoint, "--data", data, "--subset", "test", "--noise", "0.5")
    assert [row[1:3] for row in rows] == [["null_rate", "24"], ["cross_entropy", "24"]]
    assert float(rows[0][4]) == 0.5 and 0 <= float(rows[1][4]) <= 1  # softmax has no null rows


def test_the_calibration_error(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    confidence = torch.tensor([0.9, 0.9, 0.9, 0.9, 0.3, 0.3, 1.0], dtype=torch.float64)
    correct = torch.tensor([1, 1, 1, 0, 1, 0, 1], dtype=torch.float64)
    # |0.75 − 0.9| of four tokens, |0.5 − 0.3| of two, and 0 of one
    error = importlib.import_module("studies").calibration_error(confidence, correct)
    assert error == pytest.approx((4 * 0.15 + 2 * 0.2) / 7)


def test_bleu_by_length(run, data, tmp_path):
    record = replace(scored_record(), data_bin=os.path.relpath(data, tmp_path / "run"))
    choice = LengthPenaltyChoice("valid", "v", "tok:none", {"0.0": 30.0, "1.0": 31.0}, "1.0")
    setup = replace(record.test_evaluation.setup, subset="valid")
    save_record(tmp_path / "run", replace(record, length_penalty_search=LengthPenaltySearch(setup, choice)))
    (tmp_path / "run" / "length_penalty").mkdir()
    # With --lenpen 1.0 the second, longer hypothesis is the best one, which is right for the short sources only.
    lines = [
        f"S-{i}\t{' '.join(['w'] * words)}\nT-{i}\ta b c {'d' if words < 5 else 'x'}\n"
        f"H-{i}\t-3\ta b\nD-{i}\t-3\ta b\nP-{i}\t-1 -1 -1\n"
        f"H-{i}\t-3.5\ta b c d\nD-{i}\t-3.5\ta b c d\nP-{i}\t-1 -1 -0.5 -0.5 -0.5\n"
        for i, words in enumerate((2, 9, 6, 6) * 6)
    ]
    output = tmp_path / "run" / "length_penalty" / "generate-valid.txt"
    output.write_text("".join(lines) + "Generate valid with beam=2: 0\n")
    rows = run("studies.py", "bleu-by-length", tmp_path / "run", "--groups", "2")
    assert [row[1:5] for row in rows] == [
        ["2–5", "6", "100.00", "1.000"],
        ["6–9", "18", "28.87", "1.000"],  # (54/72 · 36/54 · 18/36 · 1/36)^(1/4), with smoothing for 0/18
    ]
