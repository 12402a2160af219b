"""The command that translates text."""

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relumt.commands.runs import DATA_HELP, RUN_HELP
from relumt.errors import UserError
from relumt.files import decode_lines, normalize_line
from relumt.installation import prepare_fairseq_import
from relumt.process import positive_integer

if TYPE_CHECKING:
    from relumt.runs.inference.translator import Translation, Translator

BATCHES_PER_BLOCK = 100
"""So many batches are read before any is translated, so that a batch has sentences of similar length."""


def add_translate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model, and how to translate and print."""
    add = parser.add_argument
    add("model", type=Path, metavar="RUN", help=f"{RUN_HELP}, or a folder of relumt export --to safetensors")
    add("--data", type=Path, help=DATA_HELP)
    add("--beam", type=positive_integer, metavar="N", help="size of the beam (default: the run's)")
    batch_help = "sentences in a batch; with 1, each line is translated as soon as it is read (default: 64)"
    add("--batch", type=positive_integer, metavar="N", default=64, help=batch_help)
    add("--json", action="store_true", help="print a JSON object for each line, with scores and subwords")
    nbest_help = "with --json: translations of a line (default: 1)"
    add("--nbest", type=positive_integer, metavar="N", default=1, help=nbest_help)
    alignments_help = "with --json: add which source subword each subword is aligned to"
    add("--alignments", action="store_true", help=alignments_help)
    units_help = "align subwords, or words, which --json then adds (default: subwords)"
    add("--units", default="subwords", choices=["subwords", "words"], help=units_help)
    context_help = "what a model of documents reads: chunks as in training, or each sentence alone (default: chunks)"
    add("--context", default="chunks", choices=["chunks", "none"], help=context_help)
    add("--tokenized", action="store_true", help="read and print Moses tokens instead of plain text")
    add("--cpu", action="store_true", help="do not use a GPU")


def translate(arguments: argparse.Namespace) -> None:
    """Translate the lines of standard input, one sentence each, to lines of standard output.

    The text is prepared as the model's data-bin was, and translations are plain text. An empty line stays empty; for a
    model that was trained on documents, it ends a document. By default the search is the one that the run's test set
    was translated with.
    """
    if not arguments.json and (arguments.nbest > 1 or arguments.alignments or arguments.units != "subwords"):
        raise UserError("--nbest, --alignments and --units need --json; add it")
    prepare_fairseq_import()
    from relumt.runs.inference.translator import load

    translator = load(arguments.model, arguments.data, arguments.cpu, arguments.tokenized)
    translator.search_with(arguments.beam, arguments.nbest)  # refuses impossible settings before anything is read
    size = 1 if arguments.batch == 1 or sys.stdin.isatty() else arguments.batch * BATCHES_PER_BLOCK
    stream, first_number = decode_lines(sys.stdin.buffer, "standard input"), 1
    if translator.loaded.document_length and arguments.context == "chunks":
        translate_documents(translator, stream, size, arguments)
        return
    while lines := list(islice(stream, size)):
        found = translator.translate_nbest(lines, arguments.nbest, arguments.beam, arguments.batch, first_number)
        first_number += len(lines)
        if arguments.json:
            print(*map(encode_line, format_json(translator, found, arguments)), sep="\n")
        else:
            print(*(translations[0].text if translations else "" for translations in found), sep="\n")
        sys.stdout.flush()


def translate_documents(
    translator: "Translator", lines: Iterator[str], size: int, arguments: argparse.Namespace
) -> None:
    """Print the translations of documents that end at empty lines; `size` of them are read before any is translated.

    A line is a sentence or, if the model was trained without a separator, a chunk.
    """
    if arguments.nbest > 1:
        raise UserError("--nbest of a model of documents needs --context none; add it")
    stream, first_number = (list(group) for has_words, group in groupby(lines, has_text) if has_words), 1
    while documents := list(islice(stream, size)):
        found = translator.translate_documents(documents, arguments.beam, arguments.batch, first_number)
        for number, chunks in enumerate(found, start=first_number):
            if arguments.json:
                described = format_json(translator, [[chunk] for chunk in chunks], arguments)
                for chunk, content in zip(chunks, described, strict=True):
                    print(encode_line({"document": number, "sentences": chunk.sentences} | content))
                continue
            if number > 1:
                print()
            print(*(text for chunk in chunks for text in chunk.sentences), sep="\n")
        first_number += len(documents)
        sys.stdout.flush()


def has_text(line: str) -> bool:
    """Return whether a line has words."""
    return bool(normalize_line(line))


def encode_line(content: dict[str, Any]) -> str:
    """Return content as a line of JSON."""
    return json.dumps(content, ensure_ascii=False)


def format_json(
    translator: "Translator", found: list[list["Translation"]], arguments: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Yield the JSON object of each line."""
    every = [translation for translations in found for translation in translations]
    alignments = iter(translator.align(every, arguments.batch, arguments.units) if arguments.alignments else [])
    has_words = arguments.units == "words"
    for translations in found:
        described: list[dict[str, Any]] = []
        for translation in translations:
            described.append({name: getattr(translation, name) for name in ("text", "score", "tokens", "token_scores")})
            if arguments.alignments:
                alignment = next(alignments)
                described[-1]["alignment"] = alignment and alignment.links
            if has_words:
                described[-1]["words"] = translator.words(translation.tokens)
        source = translations[0].source_tokens if translations else []
        words = {"source_words": translator.words(source)} if has_words else {}
        yield {"source_tokens": source, **words, "translations": described}
