"""Write the generated German-English corpus: documents, gold word alignments and contrastive pronouns.

The same seed gives the same files. Documents have 5 to 8 sentences. If the numbers of documents are divisible by three,
the genders of the pronouns are exactly balanced.
"""

import argparse
from pathlib import Path

from relumt.arguments import positive_integer, whole_number
from relumt.corpora.generated_corpus import write_corpus


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `relumt synth`."""
    parser.add_argument("--seed", type=whole_number, default=1, help="random seed (default: 1)")
    parser.add_argument("--documents", type=positive_integer, required=True, help="number of training documents")
    parser.add_argument(
        "--valid-documents", type=positive_integer, default=150, help="number of validation documents (default: 150)"
    )
    parser.add_argument(
        "--test-documents", type=positive_integer, default=300, help="number of test documents (default: 300)"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to create")


def run(arguments: argparse.Namespace) -> None:
    """Write the corpus and print its size; raise `UserError` for an invalid folder."""
    counts = {
        "train": arguments.documents,
        "valid": arguments.valid_documents,
        "test": arguments.test_documents,
    }
    sentences = write_corpus(arguments.out, arguments.seed, counts)
    sizes = ", ".join(f"{split} {sentences[split]:,}" for split in sentences)
    print(f"{arguments.out}: sentence pairs: {sizes}")
