import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from relumt.runs.record import load_record
from tests.runs.cases import write_dataset

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "scripts").rglob("*.sh"))

TINY = """
--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 16 --decoder-embed-dim 16
--encoder-ffn-embed-dim 16 --decoder-ffn-embed-dim 16 --encoder-attention-heads 2 --decoder-attention-heads 2
--optimizer adam --lr 1e-2 --max-tokens 400 --max-epoch 2 --no-epoch-checkpoints --log-interval 2
"""


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_bash_and_stop_at_the_first_error(script):
    subprocess.run(["bash", "-n", str(script)], check=True)
    sourced = not os.access(script, os.X_OK)
    assert ("set -euo pipefail" in script.read_text()) != sourced


def run_script(name, *arguments, **environment):
    settings = os.environ | {"PYTHON": sys.executable} | {key: str(value) for key, value in environment.items()}
    return subprocess.run(
        ["bash", str(ROOT / "scripts" / name), *arguments], env=settings, capture_output=True, text=True
    )


@pytest.fixture
def configs(tmp_path):
    (tmp_path / "configs" / "datasets").mkdir(parents=True)
    shutil.copy(ROOT / "configs" / "models.toml", tmp_path / "configs")
    return tmp_path / "configs"


@pytest.fixture
def data_bin(tmp_path):
    """A data-bin made by fairseq-preprocess alone; the translation of a sentence is the sentence in upper case."""
    words = random.Random(1)
    for subset, size in (("train", 60), ("valid", 12), ("test", 13)):
        sentences = [" ".join(words.choices("abcdefg", k=words.randint(3, 9))) for _ in range(size)]
        (tmp_path / f"{subset}.xx").write_text("".join(f"{sentence}\n" for sentence in sentences))
        (tmp_path / f"{subset}.en").write_text("".join(f"{sentence.upper()}\n" for sentence in sentences))
    command = [sys.executable, "-m", "fairseq_cli.preprocess", "--source-lang", "xx", "--target-lang", "en"]
    for subset in ("train", "valid", "test"):
        command += [f"--{subset}pref", str(tmp_path / subset)]
    subprocess.run([*command, "--destdir", str(tmp_path / "tiny")], check=True, capture_output=True)
    return tmp_path / "tiny"


@pytest.mark.slow
def test_run_trains_resumes_evaluates_and_repeats_at_once(data_bin, configs, tmp_path):
    evaluation = {"average_checkpoints": 2, "length_penalties": [0.6, 1.0, 2.2]}
    write_dataset(configs, "default", train=TINY, generate="--beam 2 --max-len-b 10", **evaluation)
    settings = {"CONFIGS": configs, "RUNS": tmp_path / "runs", "CUDA_VISIBLE_DEVICES": ""}

    for model, scripts in (("stock", ["run.sh"]), ("reluformer", ["train.sh", "run.sh"])):
        for script in scripts:
            first = run_script(script, str(data_bin), model, **settings)
            assert first.returncode == 0, first.stdout + first.stderr
        folder = tmp_path / "runs" / "tiny" / model / "1"
        assert (folder / "train.log").read_text().count("| training on 1 devices") == 1
        record = load_record(folder)
        assert record.training.epochs == 2 and record.training.tokens_per_second > 0
        # 13 is not a multiple of 8: by default fairseq would skip sentences
        assert record.test_evaluation.sentences == 13
        assert record.test_evaluation.tokens_per_second > 0
        setup = record.test_evaluation.setup
        assert setup.checkpoint == "checkpoint_average_2.pt" and setup.flags["--lenpen"] == setup.length_penalty.chosen
        assert list(setup.length_penalty.bleu) == ["0.6", "1.0", "2.2"]

    again = run_script("run.sh", str(data_bin), "stock", **settings)
    assert again.returncode == 0 and "$ fairseq" not in again.stdout
    assert "trained already" in again.stderr and "evaluated already" in again.stderr

    longer = run_script("train.sh", str(data_bin), "stock", "--max-epoch", "3", **settings)
    assert longer.returncode == 2 and "--max-epoch 2 (now --max-epoch 3)" in longer.stderr
    resumed = run_script("train.sh", str(data_bin), "stock", "--max-epoch", "3", FORCE="1", **settings)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    record = load_record(tmp_path / "runs" / "tiny" / "stock" / "1")
    assert record.training.epochs == 3 and len(record.accepted_changes) == 1
    assert (tmp_path / "runs" / "tiny" / "stock" / "1" / "train.log").read_text().count("| training on 1 devices") == 2


@pytest.mark.slow
def test_documents_are_trained_translated_and_scored_whole(data_bin, configs, tmp_path):
    document_flags = "--task translation_documents --document-length 40 --max-source-positions 40"
    document_flags += " --document-separator '<sep>'"
    for language in ("xx", "en"):
        with (data_bin / f"dict.{language}.txt").open("a") as dictionary:
            dictionary.write("<sep> 1\n")
    train = f"{TINY} {document_flags} --max-target-positions 40"
    write_dataset(
        configs, "default", train=train, generate="--beam 2 --max-len-a 2 --max-len-b 10", length_penalties=[0.6, 1.0]
    )
    for subset, documents in (("train", [20] * 3), ("valid", [12]), ("test", [5, 8])):
        (data_bin / f"{subset}.docs").write_text("".join(f"{sentences}\n" for sentences in documents))
    runs = tmp_path / "runs"
    settings = {"CONFIGS": configs, "RUNS": runs, "CUDA_VISIBLE_DEVICES": ""}
    result = run_script("run.sh", str(data_bin), "stock", **settings)
    assert result.returncode == 0, result.stdout + result.stderr
    folder = runs / "tiny" / "stock" / "1"
    evaluated = load_record(folder).test_evaluation
    assert set(evaluated.setup.length_penalty.bleu) == {"0.6", "1.0"}
    assert "--lenpen" in evaluated.setup.flags
    chunks = [int(line) for line in (folder / "test.chunks").read_text().split()]
    assert evaluated.sentences == sum(chunks) == 13
    assert evaluated.documents.chunks == len(chunks) == len((folder / "test.hyp").read_text().splitlines())
    assert evaluated.documents.documents == 2 < evaluated.documents.chunks < 13
    assert evaluated.documents.separator_mismatches > 0  # after such short training
    assert evaluated.documents.sentence_scores["bleu_tokenized"].signature
