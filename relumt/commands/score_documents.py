"""Score translated documents: d-BLEU, a document a line, and with --separator s-BLEU, a sentence a line.

A line of HYP is a chunk, as a model trained with --document-length writes it; CHUNKS says how many sentences each
holds. For translations of single sentences leave CHUNKS out.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from relumt.data.document_lengths import read_document_lengths, read_lengths
from relumt.errors import UserError
from relumt.text_files import read_lines


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The texts and how they hang together."""
    parser.add_argument("--hyp", type=Path, required=True, help="translations, a chunk a line")
    parser.add_argument("--chunks", type=Path, help="number of sentences in each chunk, one a line (default: 1)")
    parser.add_argument("--ref", type=Path, required=True, help="references, a sentence a line")
    parser.add_argument("--docs", type=Path, required=True, help="number of sentences in each document, one a line")
    parser.add_argument("--separator", default="", help="the word between the sentences of a chunk")
    parser.add_argument("--sentences", type=Path, help="translations one by one, for chunks that lost a separator")
    parser.add_argument("--tokenize", default="13a", choices=["none", "13a", "zh"], help="sacreBLEU's (default: 13a)")
    parser.add_argument("--lowercase", action="store_true", help="ignore case")


def run(arguments: argparse.Namespace) -> None:
    """Print the scores as JSON."""
    from sacrebleu.metrics import BLEU

    from relumt.runs.documents import chunks_per_document, joined, sentences_of, without_separators
    from relumt.runs.score import corpus_score

    if arguments.sentences and not arguments.separator:
        raise UserError("--sentences stands in for chunks that lost a separator; name it with --separator")
    hypotheses, references = texts(arguments.hyp), texts(arguments.ref)
    if not hypotheses or not references:
        raise UserError(f"{arguments.hyp if not hypotheses else arguments.ref}: empty file; give a text")
    documents = read_document_lengths(arguments.docs, len(references))
    chunks = read_lengths(arguments.chunks) if arguments.chunks else [1] * len(hypotheses)
    if len(chunks) != len(hypotheses):
        raise UserError(
            f"{arguments.hyp} has {len(hypotheses)} lines, but there are {len(chunks)} chunks; give its own"
        )
    metric = BLEU(tokenize=arguments.tokenize, lowercase=arguments.lowercase, force=True)
    plain = [without_separators(chunk, arguments.separator) for chunk in hypotheses]
    of_documents = joined(plain, chunks_per_document(chunks, documents))
    result = {
        "documents": len(documents),
        "d-BLEU": asdict(corpus_score(metric, of_documents, joined(references, documents))),
    }
    if arguments.separator:
        one_by_one = texts(arguments.sentences) if arguments.sentences else None
        if one_by_one is not None and len(one_by_one) != len(references):
            raise UserError(f"{arguments.sentences}: {len(one_by_one)} lines for {len(references)} sentences")
        taken = sentences_of(hypotheses, chunks, arguments.separator, one_by_one)
        result |= {
            "chunks": len(chunks),
            "chunks with another number of separators": taken.replaced,
            "s-BLEU": asdict(corpus_score(metric, taken.lines, references)),
        }
    print(json.dumps(result, indent=2, ensure_ascii=False))


def texts(path: Path) -> list[str]:
    """The lines of a text; raises UserError if it is missing or not UTF-8."""
    return [line.removesuffix("\n") for line in read_lines(path)]
