"""Score translated documents: d-BLEU, one document per line, and with --separator s-BLEU, one sentence per line.

A line of HYP is a chunk, as a model trained with --document-length writes it; CHUNKS has the number of sentences in
each chunk. Omit CHUNKS for translations of single sentences.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from relumt.corpora.document_lengths import read_document_lengths, read_lengths
from relumt.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the texts, and how they divide into chunks and documents."""
    add, path = parser.add_argument
    sentences_help = "translations of single sentences, for chunks that lost separators"
    tokenizers = ["none", "13a", "zh", "char"]
    add("--hyp", type=path, required=True, help="translations, one chunk per line")
    add("--chunks", type=path, help="number of sentences in each chunk, one per line (default: 1)")
    add("--ref", type=path, required=True, help="references, one sentence per line")
    add("--docs", type=path, required=True, help="number of sentences in each document, one per line")
    add("--separator", default="", help="token between the sentences of a chunk")
    add("--sentences", type=path, help=sentences_help)
    add("--tokenize", default="13a", choices=tokenizers, help="sacreBLEU's tokenizer (default: 13a)")
    add("--lowercase", action="store_true", help="ignore case")


def run(arguments: argparse.Namespace) -> None:
    """Print the scores as JSON."""
    from sacrebleu.metrics import BLEU

    from relumt.plugin.tasks.document_chunks import (
        chunks_per_document,
        detach_separators,
        find_mismatches,
        join_groups,
        remove_separators,
        replace_mismatches,
        split_chunks,
    )
    from relumt.runs.score import corpus_score
    from relumt.text_files import load_text

    separator = arguments.separator
    if len(separator.split()) > 1 or separator != separator.strip():
        raise UserError(f"--separator '{separator}': expected one word without spaces")
    if arguments.sentences and not separator:
        raise UserError("--sentences replaces chunks that lost separators; name the separator with --separator")
    hypotheses = [detach_separators(line, separator) for line in load_text(arguments.hyp)]
    references = load_text(arguments.ref)
    for path, lines in ((arguments.hyp, hypotheses), (arguments.ref, references)):
        if not lines:
            raise UserError(f"{path}: the file is empty; expected one line of text or more")
    documents = read_document_lengths(arguments.docs, len(references))
    chunks = read_lengths(arguments.chunks) if arguments.chunks else [1] * len(hypotheses)
    if len(chunks) != len(hypotheses):
        raise UserError(
            f"{arguments.hyp} has {len(hypotheses)} lines, but {arguments.chunks} has {len(chunks)}; use matching files"
        )
    counts = chunks_per_document(chunks, documents)
    mismatches = find_mismatches(hypotheses, chunks, separator)
    if arguments.sentences:
        sentences = load_text(arguments.sentences)
        if len(sentences) != len(references):
            raise UserError(
                f"{arguments.sentences} has {len(sentences)} lines, but {arguments.ref} has {len(references)}; "
                "use matching files"
            )
        hypotheses = replace_mismatches(hypotheses, chunks, separator, sentences)
    metric = BLEU(tokenize=arguments.tokenize, lowercase=arguments.lowercase, force=True)
    joined = join_groups([remove_separators(chunk, separator) for chunk in hypotheses], counts)
    result = {
        "documents": len(documents),
        "d-BLEU": asdict(corpus_score(metric, joined, join_groups(references, documents))),
    }
    if separator:
        result |= {
            "chunks": len(chunks),
            "chunks with another number of separators": len(mismatches),
            "s-BLEU": asdict(corpus_score(metric, split_chunks(hypotheses, chunks, separator), references)),
        }
    print(json.dumps(result, indent=2, ensure_ascii=False))
