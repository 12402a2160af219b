"""Print a Markdown table of how documents are split into chunks of at most L tokens.

    python benchmarks/chunk_statistics.py data-bin/europarl7_small

A chunk is whole sentences of one document, without separators; its length is that of its longer side.
"""

from pathlib import Path

import numpy as np
from fairseq.data.data_utils import load_indexed_dataset
from timing import print_origin

from relumt.arguments import ArgumentParser, positive_integer
from relumt.corpora.document_lengths import read_document_lengths
from relumt.errors import UserError, exit_on_user_error
from relumt.plugin.tasks.chunks import chunk_sizes, chunk_starts, count_too_long
from relumt.runs.data_bin import DataBin, open_data_bin


def table_rows(data: DataBin, subset: str, limits: list[int]) -> list[list[object]]:
    """Return a row per limit: chunks, their mean length, sentences per chunk, sentences longer than the limit."""
    stem = data.folder / f"{subset}.{data.source}-{data.target}"
    sides = [load_indexed_dataset(f"{stem}.{language}", None, "mmap") for language in (data.source, data.target)]
    if None in sides:
        raise UserError(f"{stem}: no such file; name the subsets of the data-bin with --subsets")
    source, target = (side.sizes for side in sides)
    documents = read_document_lengths(data.folder / f"{subset}.docs", len(source))
    rows: list[list[object]] = []
    for limit in limits:
        starts = chunk_starts(documents, source, target, limit, separators=False)
        longer = np.maximum(*(chunk_sizes(starts, sizes, separators=False) for sizes in (source, target)))
        rows.append([
            subset, f"{len(documents):,}", f"{len(source):,}", limit, f"{len(starts):,}", f"{longer.mean():.1f}",
            f"{len(source) / len(starts):.2f}", count_too_long(source, target, limit),
        ])  # fmt: skip
    return rows


def main() -> None:
    """Print the table."""
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data_bin", type=Path)
    parser.add_argument("--subsets", nargs="+", default=["valid", "test"], metavar="SUBSET")
    parser.add_argument("--lengths", type=positive_integer, nargs="+", default=[128, 256, 512, 1024, 2048], metavar="L")
    args = parser.parse_args()
    data = open_data_bin(args.data_bin)
    print("| set | documents | sentences | L | chunks | mean length | sentences per chunk | sentences longer than L |")
    print("|---|---|---|---|---|---|---|---|")
    for subset in args.subsets:
        for row in table_rows(data, subset, args.lengths):
            print(f"| {' | '.join(map(str, row))} |")
    print_origin()


if __name__ == "__main__":
    with exit_on_user_error():
        main()
