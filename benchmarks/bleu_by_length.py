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

from relumt.errors import UserError, exit_on_user_error
from relumt.runs.data_bin import open_data_bin
from relumt.runs.evaluation_results import generate_output
from relumt.runs.length_penalty_search import FOLDER
from relumt.runs.nbest_lists import read_nbest
from relumt.runs.record import load_record
from relumt.runs.translations import GeneratedOutput
from relumt.search.length_penalty import FAIRSEQ_PENALTY, LENGTH_PENALTIES


def read_validation(run: Path) -> tuple[GeneratedOutput, dict[int, int], bool]:
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
    path = generate_output(run / FOLDER, search.setup)
    divisor = LENGTH_PENALTIES[search.setup.flags.get("--length-penalty", FAIRSEQ_PENALTY)]
    power = float(search.choice.chosen)
    output = read_nbest(path).best(lambda length: divisor(length, power))
    sources = (line[2:].partition("\t") for line in path.read_text(encoding="utf-8").split("\n") if line[:2] == "S-")
    words = {int(index): len(source.split()) for index, _, source in sources}
    return output, words, open_data_bin(Path(record.data_bin)).lowercased


def main() -> None:
    """Score all runs, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--groups", type=int, default=4, help="(default: %(default)s)")
    args = parser.parse_args()
    print("| run | source words | sentences | BLEU | brevity penalty |")
    print("|---|---|---|---|---|")
    signatures = set()
    for run in args.runs:
        output, words, ignore_case = read_validation(run)
        metric = BLEU(tokenize="none", lowercase=ignore_case, force=True)
        quantiles = np.quantile(list(words.values()), np.linspace(0, 1, args.groups + 1)).astype(int)
        edges = np.unique([*quantiles[:-1], quantiles[-1] + 1])  # sentences of one length are in one group
        for low, high in pairwise(edges):
            indices = [index for index in output.references if low <= words[index] < high]
            hypotheses = [output.hypotheses[index] for index in indices]
            score = metric.corpus_score(hypotheses, [[output.references[index] for index in indices]])
            print(f"| {run} | {low}–{high - 1} | {len(indices)} | {score.score:.2f} | {score.bp:.3f} |", flush=True)
        signatures.add(str(metric.get_signature()))
    print(f"\nBLEU: {', '.join(sorted(signatures))}")
    print_origin()


if __name__ == "__main__":
    with exit_on_user_error():
        main()
