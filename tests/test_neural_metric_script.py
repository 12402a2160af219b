"""scripts/neural_metric.py with stand-ins for the metrics: what they are given, and what the script prints."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "neural_metric.py"
SEGMENTS = [
    {"source": "Ein Hund.", "translation": "A\tdog.", "reference": "A dog."},
    {"source": "„Ja“", "translation": "", "reference": "“Yes”"},
]
COMET = """
import json
def download_model(name):
    print("downloading")
    return "downloaded " + name
class Model:
    def __init__(self, path):
        self.path = path
    def predict(self, data, **options):
        json.dump([self.path, data, options], open("given", "w"))
        class Output: scores = [0.25, 1]
        return Output
load_from_checkpoint = Model
"""
PYMARIAN = """#!/bin/sh
echo "$@" > given
cat >> given
echo Loading >&2
printf '0.50000000\\n0.12345678\\n'
"""
METRICX = """
import json, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
print("predicting")
rows = [json.loads(line) for line in open(options["--input_file"])]
json.dump([options, rows], open("given", "w"))
with open(options["--output_file"], "w") as out:
    out.writelines(json.dumps(row | {"prediction": 3.5}) + "\\n" for row in rows)
"""


@pytest.fixture
def environment(tmp_path):
    """The variables of an environment that has stand-ins of unbabel-comet and pymarian."""
    for name in ("unbabel_comet", "pymarian"):
        (tmp_path / f"{name}-1.2.dist-info").mkdir()
        (tmp_path / f"{name}-1.2.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: 1.2\n")
    (tmp_path / "comet.py").write_text(COMET)
    (tmp_path / "pymarian-eval").write_text(PYMARIAN)
    (tmp_path / "pymarian-eval").chmod(0o755)
    return os.environ | {"PYTHONPATH": str(tmp_path), "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}


def score(tmp_path, environment, *arguments):
    """Run the script; return the scores, the version, what the metric printed, and the exit status."""
    lines = "".join(json.dumps(segment, ensure_ascii=False) + "\n" for segment in SEGMENTS)
    ended = subprocess.run(
        [sys.executable, SCRIPT, *arguments],
        input=lines, cwd=tmp_path, env=environment, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    *scores, last = ended.stdout.splitlines() or [""]
    assert not last or json.loads(last)["input_sha256"] == hashlib.sha256(lines.encode()).hexdigest()
    return list(map(float, scores)), json.loads(last)["version"] if last else "", ended.stderr, ended.returncode


def test_comet(tmp_path, environment):
    scores, version, messages, _ = score(tmp_path, environment, "comet", "--batch-size", "4")
    assert scores == [0.25, 1.0] and messages == "downloading\n"
    assert version == "unbabel-comet 1.2 Unbabel/wmt22-comet-da"
    path, data, options = json.loads((tmp_path / "given").read_text())
    assert path == "downloaded Unbabel/wmt22-comet-da" and options["batch_size"] == 4 and options["gpus"] == 0
    assert data[1] == {"src": "„Ja“", "mt": "", "ref": "“Yes”"}


def test_a_checkpoint_of_comet_is_not_downloaded(tmp_path, environment):
    (tmp_path / "model.ckpt").touch()
    _, version, messages, _ = score(tmp_path, environment, "comet", "--model", "model.ckpt")
    assert version == "unbabel-comet 1.2 model.ckpt" and messages == ""
    assert json.loads((tmp_path / "given").read_text())[0] == "model.ckpt"


def test_pymarian(tmp_path, environment):
    scores, version, messages, _ = score(tmp_path, environment, "pymarian", "--model", "wmt20-comet-da", "-c", "2")
    assert scores == [0.5, 0.12345678] and messages == "Loading\n"
    assert version == "pymarian 1.2 wmt20-comet-da -c 2"
    options, *lines = (tmp_path / "given").read_text(encoding="utf-8").splitlines()
    assert options == "--stdin --model wmt20-comet-da --width 8 -c 2"
    assert lines == ["Ein Hund.\tA dog.\tA dog.", "„Ja“\t\t“Yes”"]


def test_metricx(tmp_path, environment):
    code = tmp_path / "clone"
    (code / "metricx24").mkdir(parents=True)
    (code / "metricx24" / "predict.py").write_text(METRICX)
    scores, version, messages, _ = score(tmp_path, environment, "metricx", "--code", "clone", "--batch_size", "8")
    assert scores == [3.5, 3.5] and messages == "predicting\n"
    assert version == "metricx24 google/metricx-24-hybrid-large-v2p6 --batch_size 8"
    options, rows = json.loads((code / "given").read_text())
    assert options["--tokenizer"] == "google/mt5-xl" and options["--batch_size"] == "8"
    assert rows[1] == SEGMENTS[1] | {"hypothesis": ""}


def test_the_status_of_a_metric_that_fails_is_passed_on(tmp_path, environment):
    (tmp_path / "pymarian-eval").write_text("#!/bin/sh\necho no model >&2\nexit 3\n")
    assert score(tmp_path, environment, "pymarian") == ([], "", "no model\n", 3)
