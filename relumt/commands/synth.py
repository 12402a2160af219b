"""Write the generated German-English corpus: documents, gold word alignments and contrastive pronouns.

The same seed gives the same files. Documents have 5 to 8 sentences; numbers of documents that divide by
three balance the genders of the pronouns exactly.
"""

import argparse
from pathlib import Path

from relumt.errors import UserError
from relumt.synth.write import write_corpus


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `relumt synth`."""
    parser.add_argument("--seed", type=int, default=1, help="what the corpus follows from (default: 1)")
    parser.add_argument("--documents", type=int, required=True, help="documents of the training set")
    parser.add_argument("--valid-documents", type=int, default=150, help="... of the validation set (default: 150)")
    parser.add_argument("--test-documents", type=int, default=300, help="... of the test set (default: 300)")
    parser.add_argument("--out", type=Path, required=True, help="the folder to make")


def run(arguments: argparse.Namespace) -> None:
    """Write the corpus and say how large it is; raises UserError on an impossible size or folder."""
    counts = {
        "train": arguments.documents,
        "valid": arguments.valid_documents,
        "test": arguments.test_documents,
    }
    for split, count in counts.items():
        if count < 1:
            option = "--documents" if split == "train" else f"--{split}-documents"
            raise UserError(f"{option} is {count}; give at least 1")
    sentences = write_corpus(arguments.out, arguments.seed, counts)
    sizes = ", ".join(f"{split} {sentences[split]:,}" for split in sentences)
    print(f"{arguments.out}: sentence pairs: {sizes}")
