"""Score translations of the validation set by the length of their sources.

    python benchmarks/bleu_by_length.py RUN… --groups 4

A RUN is the folder of a run whose length penalty was chosen on the validation set. The translations with the chosen
penalty are split by the number of source words into groups of about equal size, and scored by tokenized BLEU.
"""

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np
from sacrebleu.metrics import BLEU
from timing import print_origin

from relumt.arguments import ArgumentParser, positive_integer
from relumt.errors import UserError, exit_on_user_error
from relumt.runs.data_bin import open_data_bin
from relumt.runs.evaluation import SEARCH_FOLDER, translations_by_penalty
from relumt.runs.record import load_record
from relumt.runs.scores import generate_output
from relumt.runs.translations import Translations, align_translations, read_sources


def read_validation(run: Path) -> tuple[Translations, list[int], bool]:
    """Return a run's translations with the chosen penalty, words per source, and whether case is ignored.

    Raises:
        UserError: no penalty was chosen, or the output of fairseq-generate is missing or damaged.
    """
    record = load_record(run)
    search = record.length_penalty_search
    if search is None or search.choice is None:
        raise UserError(
            f"{run}: expected a run whose --lenpen was chosen on the validation set, found none; run "
            "scripts/evaluate.sh with a dataset that has length_penalties"
        )
    output = translations_by_penalty(run, search.setup)(float(search.choice.chosen))
    words = [len(source.split()) for source in read_sources(generate_output(run / SEARCH_FOLDER, search.setup))]
    data_bin = open_data_bin(Path(record.data_bin))
    return align_translations(output, data_bin, search.setup.subset), words, data_bin.lowercased


def main() -> None:
    """Score all runs, and print a table."""
    parser = ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--groups", type=positive_integer, default=4, help="(default: %(default)s)")
    args = parser.parse_args()
    print("| run | source words | sentences | BLEU | brevity penalty |")
    print("|---|---|---|---|---|")
    signatures = set()
    for run in args.runs:
        translations, words, ignore_case = read_validation(run)
        metric = BLEU(tokenize="none", lowercase=ignore_case, force=True)
        quantiles = np.quantile(words, np.linspace(0, 1, args.groups + 1)).astype(int)
        edges = np.unique([*quantiles[:-1], quantiles[-1] + 1])  # sentences of one length are in one group
        for low, high in pairwise(edges):
            indices = [index for index, count in enumerate(words) if low <= count < high]
            hypotheses = [translations.tokenized_hypotheses[index] for index in indices]
            references = [translations.tokenized_references[index] for index in indices]
            score = metric.corpus_score(hypotheses, [references])
            print(f"| {run} | {low}–{high - 1} | {len(indices)} | {score.score:.2f} | {score.bp:.3f} |", flush=True)
        signatures.add(str(metric.get_signature()))
    print(f"\nBLEU: {', '.join(sorted(signatures))}")
    print_origin()


if __name__ == "__main__":
    with exit_on_user_error():
        main()
