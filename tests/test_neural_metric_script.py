"""scripts/neural_metric.py with a stand-in for COMET: what it is given, and what the script prints."""

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


@pytest.fixture
def environment(tmp_path):
    """The variables of an environment that has a stand-in of unbabel-comet."""
    (tmp_path / "unbabel_comet-1.2.dist-info").mkdir()
    (tmp_path / "unbabel_comet-1.2.dist-info" / "METADATA").write_text("Name: unbabel_comet\nVersion: 1.2\n")
    (tmp_path / "comet.py").write_text(COMET)
    return os.environ | {"PYTHONPATH": str(tmp_path)}


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


def test_a_metric_that_fails_prints_no_scores(tmp_path, environment):
    (tmp_path / "comet.py").write_text("raise OSError('no model')")
    scores, _, messages, status = score(tmp_path, environment, "comet")
    assert scores == [] and messages.endswith("OSError: no model\n") and status == 1
