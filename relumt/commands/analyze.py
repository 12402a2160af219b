"""Measure attention and feed-forward layers of trained models on a test set, and write the results to DIR.

The models read the reference translations (forced decoding). DIR receives analysis.json, plots, report.html (opens
offline), and maps-N.pt with the attention maps of the N-th model on the first sentences.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from relumt.analysis.record import ANALYSIS, AnalysisFile, write_analysis
from relumt.arguments import positive_integer, whole_number
from relumt.console import print_status
from relumt.errors import UserError
from relumt.fairseq_version import prepare_fairseq_import
from relumt.files import require_inputs_kept, require_writable
from relumt.runs.run_checkpoints import CHECKPOINTS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add, path = parser.add_argument
    checkpoint_help = "a checkpoint, or the folder of a trained run for its scored (else best) checkpoint"
    alignments_help = "gold word alignments of the subset (default: those of the data-bin, if any)"
    own_help = "also keep the maps of the models' own translations of these sentences, by beam search"
    number_help = "sentence pair drawn in maps.png, counted from 1 (default: the first of a readable length)"
    units_help = "measure the attention of subwords, or merge their weights to those of words (default: subwords)"
    add("checkpoints", nargs="+", type=path, metavar="CHECKPOINT", help=checkpoint_help)
    add("--data", type=path, help="data-bin with the models' dictionaries (default: that of each run)")
    add("--subset", default="test", help="subset of the data-bin (default: test)")
    add("--out", type=path, required=True, metavar="DIR", help="folder for the results")
    add("--alignments", type=path, metavar="FILE", help=alignments_help)
    first_help = "number of the first word in FILE (default: 0)"
    add("--first-word", type=whole_number, default=0, choices=[0, 1], help=first_help)
    kept_help = "sentence pairs whose attention maps are kept (default: 50)"
    add("--sentences", type=positive_integer, default=50, help=kept_help)
    add("--own-translations", action="store_true", help=own_help)
    add("--map-sentence", type=positive_integer, metavar="N", help=number_help)
    add("--units", default="subwords", choices=["subwords", "words"], help=units_help)
    add("--numbers-only", action="store_true", help="write nothing but analysis.json")
    add("--max-tokens", type=positive_integer, default=4096, help="tokens in a batch (default: 4096)")
    add("--cpu", action="store_true", help="do not use a GPU")


def run(arguments: argparse.Namespace) -> None:
    """Measure the checkpoints and write the results."""
    prepare_fairseq_import()
    if arguments.map_sentence is not None and arguments.map_sentence > arguments.sentences:
        raise UserError(
            f"--map-sentence must be between 1 and --sentences ({arguments.sentences}), not {arguments.map_sentence}"
        )
    require_writable(arguments.out)
    inputs = [*arguments.checkpoints, *filter(None, [arguments.alignments])]
    maps_files = [f"maps-{number}.pt" for number in range(1, len(arguments.checkpoints) + 1)]
    require_inputs_kept(inputs, [arguments.out / name for name in (ANALYSIS, "report.html", *maps_files)])
    from relumt.analysis.measure import AnalysisConfig, measure_checkpoint
    from relumt.runs.inference.loaded_model import require_model

    for path in arguments.checkpoints:  # before the first is measured, which takes minutes
        require_model(path)
    if not arguments.numbers_only:
        from relumt.analysis.report import write_plots_and_report  # fails early if a package is missing
    config = AnalysisConfig(
        arguments.data,
        arguments.subset,
        arguments.alignments,
        arguments.first_word,
        0 if arguments.numbers_only else arguments.sentences,
        arguments.max_tokens,
        arguments.cpu,
        arguments.units,
        arguments.own_translations and not arguments.numbers_only,
    )
    names = short_names(arguments.checkpoints)
    measured = [measure_checkpoint(path, name, config) for path, name in zip(arguments.checkpoints, names, strict=True)]
    analysis = AnalysisFile(arguments.subset, [checkpoint for checkpoint, _ in measured])
    write_analysis(analysis, arguments.out / ANALYSIS)
    print_status(str(arguments.out / ANALYSIS))
    if not arguments.numbers_only:
        report = write_plots_and_report(analysis, [maps for _, maps in measured], arguments.out, arguments.map_sentence)
        print_status(str(report))


def short_names(paths: Sequence[Path]) -> list[str]:
    """Return a label for each path: the last parts of the run's folder, as few as are unambiguous, or the path."""
    runs = [path.parent.parent if path.parent.name == CHECKPOINTS else path for path in paths]
    parts = [Path(os.path.realpath(run)).parts for run in runs]
    for num_parts in range(2, max(map(len, parts)) + 1):
        tails = ["/".join(own[-num_parts:]) for own in parts]
        names = [tail if run.is_dir() else str(run) for run, tail in zip(runs, tails, strict=True)]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]
