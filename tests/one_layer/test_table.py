"""The table of [IN] Table 1, and the script that makes it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from relumt.errors import UserError
from relumt.one_layer import record
from relumt.one_layer.record import Training
from relumt.tables.inhibitor_table1 import format_difference, format_mean, paired_p_value
from tests.tables.cases import render

ROOT = Path(__file__).resolve().parents[2]


def write_result(runs, task, mechanism, seed, **scores):
    training = Training(
        task, mechanism, 1e-3, seed, [scores], 1, scores, 10, 1.0, "2024-01-01", "revision 1234567", {"torch": "2"}
    )
    record.write(record.seed_path(runs / "inhibitor_table1-small", task, mechanism, seed), training)


def test_means_differences_and_what_the_paper_prints(tmp_path):
    for seed, (softmax, inhibitor) in enumerate([(98.0, 97.0), (98.2, 97.4), (98.4, 97.2)], 1):
        write_result(tmp_path, "mnist", "softmax", seed, accuracy=softmax)
        write_result(tmp_path, "mnist", "inhibitor", seed, accuracy=inhibitor)
    write_result(tmp_path, "iam", "softmax", 1, **{"edit distance": 1.0, "edit distance, padded": 17.5})
    (table,) = render("inhibitor_table1", tmp_path)
    adding, mnist, _, iam, padded = table.rows
    assert adding == ["adding problem, mse %", "0.11", "0.12", "", "", "", "", "0"]
    # Standard errors 0.2/√3, times the quantile 4.303 of t with two degrees of freedom.
    assert mnist[3:5] == ["98.20 ± 0.50", "97.20 ± 0.50"]
    assert mnist[5:] == ["-1.00 (-1.50 to -0.50)", "0.013", "3"]
    assert (iam[1:5], padded[1:5]) == (["17.9", "18.1", "1.00", ""], ["", "", "17.50", ""])
    assert any("medians: MNIST, accuracy % 98.20 (softmax); MNIST, accuracy % 97.20" in note for note in table.notes)
    assert any("mnist (3 of 5), imdb (0 of 5), iam (0 of 5); scripts/reproduce.sh" in note for note in table.notes)
    assert "revision 1234567; torch 2" in table.notes


def test_the_results_of_another_training_are_refused(tmp_path):
    write_result(tmp_path, "mnist", "softmax", 1, accuracy=98.0)
    folder = tmp_path / "inhibitor_table1-small" / "mnist"
    (folder / "inhibitor").mkdir()
    (folder / "inhibitor" / "seed-1.json").write_bytes((folder / "softmax" / "seed-1.json").read_bytes())
    with pytest.raises(UserError, match=r"inhibitor/seed-1.json: found the training of .*softmax/seed-1.json; delete"):
        render("inhibitor_table1", tmp_path)


def test_without_a_difference_p_is_1():
    assert paired_p_value([0.0, 0.0]) == 1
    assert format_difference([0.0, 0.0], ".1f") == ("+0.0 (+0.0 to +0.0)", "1.000")
    assert format_difference([1.0], ".1f") == ("", "")
    assert format_difference([0.3] * 5, ".1f") == ("+0.3 (+0.3 to +0.3)", "<0.001")
    assert (format_mean([], ".1f"), format_mean([1.0], ".1f")) == ("", "1.0")


@pytest.mark.slow
def test_the_script_makes_the_whole_table_from_generated_data(tmp_path):
    command = [ROOT / "scripts" / "reproduce.sh", "inhibitor_table1", "--preset", "smoke"]
    environment = os.environ | {"PYTHON": sys.executable, "RUNS": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.count("| 2 |\n") == 5 and "preset smoke trains on generated data" in done.stdout
    again = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert again.stdout == done.stdout and ": seed" not in again.stderr
