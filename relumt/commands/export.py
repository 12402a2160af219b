"""Write a trained model for other programs to a folder, with its dictionaries and subwords.

fairseq: model.pt, a checkpoint of the stock architecture `transformer`, which plain fairseq and CTranslate2's converter
read; only for softmax attention. safetensors: any model, without pickle; relumt.load and relumt translate read it.
"""

import argparse
from pathlib import Path

from relumt.console import print_status
from relumt.fairseq_version import prepare_fairseq_import


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "model",
        type=Path,
        metavar="RUN",
        help="folder of a trained run for its scored checkpoint, or a checkpoint",
    )
    parser.add_argument("--to", required=True, choices=("fairseq", "safetensors"), help="format of the weights")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="new folder for the model")
    parser.add_argument("--data", type=Path, help="data-bin of the model (default: that of the run)")


def run(arguments: argparse.Namespace) -> None:
    """Export the model."""
    prepare_fairseq_import()
    from relumt.runs.inference.export import export_model

    path = export_model(arguments.model, arguments.data, arguments.to, arguments.out)
    print_status(f"wrote {path} to {arguments.out}")
