"""`relumt quantize` on a run that the scripts trained and evaluated."""

import json
import os
import subprocess
import sys

import pytest

from relumt.checkpoints.loading import load_checkpoint_safely
from relumt.runs.quantized_record import find_quantized_records
from tests.runs.cases import write_dataset
from tests.runs.test_scripts import ROOT, TINY, data_bin, run_script  # noqa: F401


def quantize(*arguments):
    command = [sys.executable, "-P", "-m", "relumt.cli", "quantize", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_a_run_is_quantized_and_its_own_evaluation_stays(data_bin, tmp_path):  # noqa: F811
    configs = tmp_path / "configs"
    (configs / "datasets").mkdir(parents=True)
    write_dataset(configs, "default", train=TINY, generate="--beam 2 --max-len-b 10")
    (configs / "models").mkdir()
    for model in ("inhibitor_signed", "reluformer"):
        (configs / "models" / f"{model}.args").write_text((ROOT / "configs" / "models" / f"{model}.args").read_text())
        made = run_script("run.sh", str(data_bin), model, CONFIGS=configs, RUNS=tmp_path, CUDA_VISIBLE_DEVICES="")
        assert made.returncode == 0, made.stderr
    run = tmp_path / "tiny" / "inhibitor_signed" / "1"
    own = {path: path.read_bytes() for path in run.iterdir() if path.is_file()}

    first = quantize(run, "--bits", "12")
    assert first.returncode == 0, first.stderr
    assert "| float32 |" in first.stdout and "| 12 bits |" in first.stdout
    written = {path: path.stat().st_mtime_ns for path in (run / "quantized").rglob("*")}
    assert quantize(run, "--bits", "12").stdout.splitlines()[-12:] == first.stdout.splitlines()[-12:]
    assert {path: path.stat().st_mtime_ns for path in (run / "quantized").rglob("*")} == written

    test = quantize(run, "--bits", "12", "--subset", "test")
    assert test.returncode == 0, test.stderr
    records = find_quantized_records(run)
    assert {name: list(record.evaluations) for name, record in records.items()} == {
        "float": ["valid", "test"],
        "int12": ["valid", "test"],
    }
    recorded = json.loads((run / "run.json").read_text())["evaluations"]["test"]
    assert records["float"].evaluations["test"].evaluation.scores["chrf"].score == recorded["scores"]["chrf"]["score"]
    assert {path: path.read_bytes() for path in own} == own

    checkpoint = run / "quantized" / "int12" / "checkpoints" / "checkpoint_int12.pt"
    assert load_checkpoint_safely(checkpoint)["cfg"]["model"].quantized_bits == 12
    damaged = bytearray(checkpoint.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    checkpoint.write_bytes(damaged)
    assert quantize(run, "--bits", "12").returncode == 0  # writes it again

    other = quantize(tmp_path / "tiny" / "reluformer" / "1")
    assert other.returncode == 2 and other.stderr.endswith("found none; choose another run\n")
    assert not (tmp_path / "tiny" / "reluformer" / "1" / "quantized").exists()
