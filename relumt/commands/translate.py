"""Translate the lines of standard input, one sentence each, to lines of standard output.

The text is prepared as the model's data-bin was, and translations are plain text. An empty line stays empty. By default
the search is the one that the run's test set was translated with.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relumt.arguments import positive_integer
from relumt.errors import UserError
from relumt.fairseq_version import prepare_fairseq_import
from relumt.process import print_in_utf8
from relumt.text_files import decode_lines

if TYPE_CHECKING:
    from relumt.runs.inference.translator import Translation, Translator

BATCHES_PER_BLOCK = 100
"""So many batches are read before any is translated, so that a batch has sentences of similar length."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "model",
        type=Path,
        metavar="RUN",
        help="folder of a trained run, a checkpoint, or a folder of relumt export --to safetensors",
    )
    parser.add_argument("--data", type=Path, help="data-bin of the model (default: that of the run)")
    parser.add_argument("--beam", type=positive_integer, metavar="N", help="size of the beam (default: the run's)")
    parser.add_argument(
        "--batch",
        type=positive_integer,
        metavar="N",
        default=64,
        help="sentences in a batch; with 1, each line is translated as soon as it is read (default: 64)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print a JSON object for each line, with scores and subwords"
    )
    parser.add_argument(
        "--nbest", type=positive_integer, metavar="N", help="with --json: translations of a line (default: 1)"
    )
    parser.add_argument(
        "--alignments", action="store_true", help="with --json: add which source subword each subword is aligned to"
    )
    parser.add_argument("--tokenized", action="store_true", help="read and print Moses tokens instead of plain text")
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")


def run(arguments: argparse.Namespace) -> None:
    """Translate standard input."""
    if not arguments.json and (arguments.nbest or arguments.alignments):
        raise UserError("--nbest and --alignments need --json; add it")
    print_in_utf8()
    prepare_fairseq_import()
    from relumt.runs.inference.translator import load

    translator = load(arguments.model, arguments.data, arguments.cpu, arguments.tokenized)
    nbest = arguments.nbest or 1
    translator.search_with(arguments.beam, nbest)  # refuses impossible settings before anything is read
    first_number = 1
    for lines in read_blocks(arguments.batch):
        found = translator.translate_nbest(lines, nbest, arguments.beam, arguments.batch, first_number)
        first_number += len(lines)
        for line in format_json(translator, found, arguments) if arguments.json else map(format_text, found):
            print(line)
        sys.stdout.flush()


def read_blocks(batch_size: int) -> Iterator[list[str]]:
    """Yield the lines of standard input, without line ends, in blocks that are translated at once."""
    waits_for_answers = batch_size == 1 or sys.stdin.isatty()
    size = 1 if waits_for_answers else batch_size * BATCHES_PER_BLOCK
    lines = decode_lines(sys.stdin.buffer, "standard input")
    while block := list(islice(lines, size)):
        yield block


def format_text(translations: list["Translation"]) -> str:
    """Return the best translation of a line; an empty line if it has no words."""
    return translations[0].text if translations else ""


def format_json(
    translator: "Translator", found: list[list["Translation"]], arguments: argparse.Namespace
) -> Iterator[str]:
    """Yield a JSON object for each line."""
    every = [translation for translations in found for translation in translations]
    alignments: Iterator[Any] = iter([])
    if arguments.alignments:
        alignments = iter(translator.align(every, arguments.batch))
    for translations in found:
        described = [
            {name: getattr(translation, name) for name in ("text", "score", "tokens", "token_scores")}
            for translation in translations
        ]
        for translation in described if arguments.alignments else []:
            alignment = next(alignments)
            translation["alignment"] = alignment and alignment.links
        source = translations[0].source_tokens if translations else []
        yield json.dumps({"source_tokens": source, "translations": described}, ensure_ascii=False)
