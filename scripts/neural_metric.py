#!/usr/bin/env python3
"""Score segments with COMET, pymarian or MetricX: the program that `relumt score --external` starts.

It runs in the environment of the metric (docs/using.md says how to make it) and imports nothing of relumt.
stdin has a JSON object per line (source, translation, reference). stdout gets a score per line and a last line with the
versions of program and model. Further options are those of pymarian-eval and of metricx24.predict.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

Segments = list[dict[str, str]]


def main() -> None:
    """Print the scores of the segments on stdin."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    metrics = parser.add_subparsers(required=True, metavar="METRIC")
    comet = metrics.add_parser("comet", help="unbabel-comet")
    comet.add_argument(
        "--model", default="Unbabel/wmt22-comet-da", help="a name, or a checkpoint (default: %(default)s)"
    )
    comet.add_argument("--batch-size", type=int, default=16)
    comet.add_argument("--gpus", type=int, default=0)
    comet.set_defaults(score=score_with_comet)
    pymarian = metrics.add_parser("pymarian", help="pymarian-eval")
    pymarian.add_argument("--model", default="wmt22-comet-da", help="(default: %(default)s)")
    pymarian.set_defaults(score=score_with_pymarian)
    metricx = metrics.add_parser("metricx", help="MetricX-24; lower scores are better")
    metricx.add_argument("--model", default="google/metricx-24-hybrid-large-v2p6", help="(default: %(default)s)")
    metricx.add_argument("--code", type=Path, required=True, help="clone of github.com/google-research/metricx")
    metricx.set_defaults(score=score_with_metricx)
    arguments, options = parser.parse_known_args()
    if options and arguments.score is score_with_comet:
        parser.error(f"unknown arguments: {' '.join(options)}")
    scores_only = keep_stdout()
    lines = sys.stdin.buffer.read()
    segments = [json.loads(line) for line in lines.splitlines()]
    scores, signature = arguments.score(segments, arguments, options)
    with scores_only:
        scores_only.writelines(f"{score}\n" for score in scores)
        summary = {"version": " ".join([signature, *options]), "input_sha256": hashlib.sha256(lines).hexdigest()}
        scores_only.write(json.dumps(summary) + "\n")


def keep_stdout():
    """Return stdout as a file; whatever libraries print goes to stderr from now on."""
    scores_only = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return scores_only


def score_with_comet(segments: Segments, arguments: argparse.Namespace, _: list[str]) -> tuple[list[float], str]:
    """Return scores, higher is better, and what identifies the metric."""
    from comet import download_model, load_from_checkpoint

    path = arguments.model if os.path.isfile(arguments.model) else download_model(arguments.model)
    keys = {"source": "src", "translation": "mt", "reference": "ref"}
    data = [{keys[name]: text for name, text in segment.items()} for segment in segments]
    model = load_from_checkpoint(path)
    scores = model.predict(data, batch_size=arguments.batch_size, gpus=arguments.gpus, progress_bar=False).scores
    return scores, f"unbabel-comet {version('unbabel-comet')} {arguments.model}"


def score_with_pymarian(
    segments: Segments, arguments: argparse.Namespace, options: list[str]
) -> tuple[list[float], str]:
    """Return scores, higher is better, and what identifies the metric."""
    columns = ("source", "translation", "reference")
    lines = ["\t".join(segment[name].replace("\t", " ") for name in columns) + "\n" for segment in segments]
    program = shutil.which(
        "pymarian-eval", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    if program is None:
        sys.exit("pymarian-eval is not installed beside this Python; pip install pymarian")
    command = [program, "--stdin", "--model", arguments.model, "--width", "8", *options]
    printed = run(command, input="".join(lines), encoding="utf-8", stdout=subprocess.PIPE)
    return list(map(float, printed.split())), f"pymarian {version('pymarian')} {arguments.model}"


def score_with_metricx(
    segments: Segments, arguments: argparse.Namespace, options: list[str]
) -> tuple[list[float], str]:
    """Return scores, lower is better, and what identifies the metric."""
    with tempfile.TemporaryDirectory() as folder:
        given, predicted = Path(folder) / "in.jsonl", Path(folder) / "out.jsonl"
        rows = ({**segment, "hypothesis": segment["translation"]} for segment in segments)
        given.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        files = ["--input_file", str(given), "--output_file", str(predicted)]
        sizes = ["--tokenizer", "google/mt5-xl", "--max_input_length", "1536", "--batch_size", "1"]
        command = [sys.executable, "-m", "metricx24.predict", "--model_name_or_path", arguments.model]
        run([*command, *sizes, *files, *options], cwd=arguments.code)
        scores = [json.loads(line)["prediction"] for line in predicted.read_text(encoding="utf-8").splitlines()]
    return scores, f"metricx24 {arguments.model}"


def run(command, **options):
    """Return what a program prints; if it fails, exit with its status: its own message is the last one on stderr."""
    result = subprocess.run(command, check=False, **options)
    if result.returncode:
        sys.exit(result.returncode)
    return result.stdout


if __name__ == "__main__":
    main()
