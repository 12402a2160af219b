"""The benchmarks that need no GPU run on tiny inputs; their results mean nothing here."""

import json
import runpy
import sys
from pathlib import Path

import pytest
import torch

from tests.models.build import SMALL, write_checkpoint, write_data_bin

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
LENGTHS = [(7, 5), (3, 8), (1, 2), (6, 6), (4, 4), (9, 3)]


@pytest.fixture
def run(monkeypatch, capsys):
    """A function that runs a benchmark with arguments and returns what it prints."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))

    def run(name, *arguments):
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        runpy.run_path(str(BENCHMARKS / name), run_name="__main__")
        return capsys.readouterr().out

    return run


@pytest.fixture
def data(tmp_path):
    for subset in ("train", "valid", "test"):
        write_data_bin(tmp_path / "data-bin", LENGTHS * 4, subset)
        (tmp_path / "data-bin" / f"{subset}.docs").write_text("20\n4\n")
    return tmp_path / "data-bin"


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "tiny.toml"
    flags = " ".join([*SMALL, "--optimizer adam --lr 1e-3 --max-tokens 20 --source-lang de --target-lang en"])
    path.write_text(f"train = '''{flags}'''")
    return path


def table_rows(printed):
    return [line.split(" | ") for line in printed.splitlines() if line.startswith("| ")]


def test_liveness(run, data, config):
    printed = run("dead_attention.py", data, "--config", config, "--arch", "reluformer")
    assert [row[0] for row in table_rows(printed)[1:]] == [
        *(f"| encoder.layers.{i}.self_attn" for i in range(2)),
        *(f"| decoder.layers.{i}.{name}" for i in range(2) for name in ("self_attn", "encoder_attn")),
    ]


@pytest.mark.slow
def test_training(run, data, config, tmp_path):
    models = ["softmax", "reluformer --relu-gamma 2"]
    threads = torch.get_num_threads()
    printed = run(
        "training_speed.py", data, "--config", config, "--models", *models, "--steps", "20", "--warm-up", "1",
        "--threads", threads, "--json", tmp_path / "speeds.json",
    )  # fmt: skip
    assert [row[0] for row in table_rows(printed)[1:]] == [f"| {model}" for model in models]
    assert json.loads((tmp_path / "speeds.json").read_text())["throughput"][models[1]]["median"] > 0


def test_attention(run):
    systems = ["softmax", "relu", "entmax15"]
    printed = run("attention_speed.py", "--systems", *systems, "--lengths", "8", "--heads", "2", "--rounds", "2")
    assert all(any(system in line for line in printed.splitlines()) for system in systems)


@pytest.mark.slow
def test_kernels(run, monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setenv("RELUMT_KERNELS", "auto")  # the benchmark sets it, too
    sizes = "--lengths 8 --batch 2 --heads 1 --head-dim 4 --rounds 1 --ceiling-size 8 --dtype float32 --padding 0.25"
    cells = {row[1]: row for row in table_rows(run("kernel_speed.py", *sizes.split())) if row[2] == "forward"}
    assert {"softmax, math", "relu, with row stats", "sigmoid", "inhibitor", "inhibitor, cdist"} < cells.keys()
    assert all(float(cells[system][8].rstrip(" |")) < 1e-5 for system in ("relu", "relu, unfused"))


def test_chunks(run, data):
    printed = run("chunk_statistics.py", data, "--subsets", "test", "--lengths", "10", "100")
    assert [row[3] for row in table_rows(printed)[1:]] == ["10", "100"]


@pytest.mark.slow
def test_analysis(run, data, tmp_path):
    printed = run("analysis_cost.py", write_checkpoint(tmp_path), data, "--repeats", "2")
    assert "of a validation pass" in printed and "MiB more at the peak" in printed


def test_filtering(run, data, tmp_path):
    checkpoint = write_checkpoint(tmp_path, "--attention", "rela_g", "--max-source-positions", "8")
    found = json.loads(run("filtering_accuracy.py", checkpoint, data, "--noise", "0.5"))
    assert 0 < found["pairs"] < 24 and 0 <= found["null_rate"]["AUC"] <= 1
