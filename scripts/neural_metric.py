#!/usr/bin/env python3
"""Score segments with COMET: the program that `relumt score --external` starts.

It runs in the environment of the metric (docs/using.md says how to make it) and imports nothing of relumt.
stdin has a JSON object per line (source, translation, reference). stdout gets a score per line and a last line with the
versions of program and model.
"""

import argparse
import hashlib
import json
import os
import sys
from importlib.metadata import version


def main() -> None:
    """Print the scores of the segments on stdin; higher is better."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("metric", choices=["comet"], help="unbabel-comet")
    parser.add_argument(
        "--model", default="Unbabel/wmt22-comet-da", help="a name, or a checkpoint (default: %(default)s)"
    )
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--gpus", type=int, default=0)
    arguments = parser.parse_args()
    scores_only = keep_stdout()
    lines = sys.stdin.buffer.read()
    scores = score_with_comet([json.loads(line) for line in lines.splitlines()], arguments)
    signature = f"unbabel-comet {version('unbabel-comet')} {arguments.model}"
    with scores_only:
        scores_only.writelines(f"{score}\n" for score in scores)
        scores_only.write(json.dumps({"version": signature, "input_sha256": hashlib.sha256(lines).hexdigest()}) + "\n")


def keep_stdout():
    """Return stdout as a file; whatever libraries print goes to stderr from now on."""
    scores_only = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return scores_only


def score_with_comet(segments: list[dict[str, str]], arguments: argparse.Namespace) -> list[float]:
    """Return a score for each segment."""
    from comet import download_model, load_from_checkpoint

    path = arguments.model if os.path.isfile(arguments.model) else download_model(arguments.model)
    keys = {"source": "src", "translation": "mt", "reference": "ref"}
    data = [{keys[name]: text for name, text in segment.items()} for segment in segments]
    model = load_from_checkpoint(path)
    return model.predict(data, batch_size=arguments.batch_size, gpus=arguments.gpus, progress_bar=False).scores


if __name__ == "__main__":
    main()
