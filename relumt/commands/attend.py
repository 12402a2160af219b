"""Translate sentences with a trained model, and write what its attention does: an HTML page that opens offline.

DIR receives attend.html, an explorer of the maps of encoder, decoder and cross-attention while the model reads a
sentence and its own translation, and maps.pt with the same maps. Sentences are plain text; they are tokenized and split
into subwords like the model's training text.
"""

import argparse

from relumt.arguments import positive_integer, valid_path
from relumt.console import print_status
from relumt.errors import UserError
from relumt.fairseq_version import prepare_fairseq_import
from relumt.files import require_inputs_kept, require_writable

PAGE = "attend.html"
MAPS = "maps.pt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "checkpoint",
        type=valid_path,
        metavar="RUN",
        help="folder of a trained run, for its scored (else best) checkpoint; or a checkpoint",
    )
    parser.add_argument("sentences", nargs="+", metavar="SENTENCE", help="sentence in the source language")
    parser.add_argument(
        "--data", type=valid_path, help="data-bin with the model's dictionaries (default: that of the run)"
    )
    parser.add_argument("--out", type=valid_path, default=valid_path("attend"), metavar="DIR", help="default: attend")
    parser.add_argument("--beam", type=positive_integer, help="size of the beam (default: as the run was evaluated)")
    parser.add_argument("--tokenized", action="store_true", help="the sentences consist of Moses tokens")
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")


def run(arguments: argparse.Namespace) -> None:
    """Print each sentence's translation, and write the maps."""
    outputs = [arguments.out / PAGE, arguments.out / MAPS]
    require_writable(arguments.out)
    require_inputs_kept([arguments.checkpoint], outputs)
    prepare_fairseq_import()
    from relumt.analysis.attention_maps import save_maps
    from relumt.analysis.explorer import write_explorer  # fails early if a package is missing
    from relumt.analysis.measure import require_sites, require_weights
    from relumt.analysis.own_translations import map_pairs
    from relumt.inference.translator import load

    translator = load(arguments.checkpoint, arguments.data, arguments.cpu, arguments.tokenized)
    require_sites(translator.loaded)
    require_weights(translator.loaded)
    translations = translator.translate(arguments.sentences, arguments.beam)
    for number, translation in enumerate(translations, start=1):
        if not len(translation.source):
            raise UserError(f"sentence {number} has no words; give text in the model's source language")
    maps = map_pairs(translator.loaded, [x.source for x in translations], [x.target for x in translations])
    page, maps_file = outputs
    save_maps(maps, maps_file)
    write_explorer(f"Attention of {arguments.checkpoint}", {str(arguments.checkpoint): maps}, page)
    for translation in translations:
        print(f"{translation.text}\t{translation.score:.3f}")
    print_status(f"wrote {page}")
