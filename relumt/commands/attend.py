"""Translate sentences with a trained model, and write what its attention does: an HTML page that opens offline.

DIR receives attend.html, an explorer of the maps of encoder, decoder and cross-attention while the model reads a
sentence and its own translation, and maps.pt with the same maps. Sentences are plain text; they are tokenized and split
into subwords like the model's training text.
"""

import argparse
from pathlib import Path

from relumt.arguments import positive_integer
from relumt.console import print_status
from relumt.errors import UserError
from relumt.fairseq_version import prepare_fairseq_import
from relumt.files import require_inputs_kept, require_writable

PAGE = "attend.html"
MAPS = "maps.pt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    run_help = "folder of a trained run, for its scored (else best) checkpoint; or a checkpoint"
    add("checkpoint", type=Path, metavar="RUN", help=run_help)
    add("sentences", nargs="+", metavar="SENTENCE", help="sentence in the source language")
    add("--data", type=Path, help="data-bin with the model's dictionaries (default: that of the run)")
    add("--out", type=Path, default=valid_path("attend"), metavar="DIR", help="default: attend")
    add("--beam", type=positive_integer, help="size of the beam (default: as the run was evaluated)")
    add("--tokenized", action="store_true", help="the sentences consist of Moses tokens")
    add("--cpu", action="store_true", help="do not use a GPU")


def run(arguments: argparse.Namespace) -> None:
    """Print each sentence's translation, and write the maps."""
    outputs = [arguments.out / PAGE, arguments.out / MAPS]
    require_writable(arguments.out)
    require_inputs_kept([arguments.checkpoint], outputs)
    prepare_fairseq_import()
    from relumt.analysis.attention_maps import map_pairs, save_maps
    from relumt.analysis.measure import require_attentions, require_weights
    from relumt.analysis.report import write_explorer  # fails early if a package is missing
    from relumt.runs.inference.translator import load

    translator = load(arguments.checkpoint, arguments.data, arguments.cpu, arguments.tokenized)
    require_attentions(translator.loaded)
    require_weights(translator.loaded)
    translations = translator.translate(arguments.sentences, arguments.beam)
    for number, translation in enumerate(translations, start=1):
        if not len(translation.source):
            raise UserError(f"sentence {number} has no words; give text in the model's source language")
    sources, targets = ([getattr(x, side) for x in translations] for side in ("source", "target"))
    maps = map_pairs(translator.loaded, sources, targets, range(len(sources)))
    page, maps_file = outputs
    save_maps(maps, maps_file)
    write_explorer(f"Attention of {arguments.checkpoint}", str(arguments.checkpoint), maps, page)
    for translation in translations:
        print(f"{translation.text}\t{translation.score:.3f}")
    print_status(f"wrote {page}")
