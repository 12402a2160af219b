"""Remove sentence pairs that are not translations of each other, by null attention (Zhang et al. 2021, §5.2).

Source and target are texts with one sentence per line, plain, gzipped or pipes such as <(zcat FILE), tokenized like the
model's training text but without BPE. OUT.scores receives one line per pair: the null rate of cross-attention and the
cross-entropy per token. With --threshold or --keep, the selected pairs are written to OUT.SRC and OUT.TGT. Only
mechanisms with null rows, such as ReLA and ReLUFormer, can rank by null rate.
"""

import argparse
from pathlib import Path

import numpy as np

from relumt.arguments import finite_number, positive_integer, positive_share
from relumt.console import print_status, track_on_stderr
from relumt.errors import UserError
from relumt.fairseq_version import prepare_fairseq_import
from relumt.files import nearest_existing, require_inputs_kept, require_writable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add, path = parser.add_argument
    add(
        "--checkpoint", type=path, required=True, help="a checkpoint, or the folder of a trained run for its scored one"
    )
    add("--data", type=path, help="data-bin with the model's dictionaries (default: that of the run)")
    add("--src", type=path, required=True, metavar="FILE", help="source text")
    add("--tgt", type=path, required=True, metavar="FILE", help="target text")
    add("--out", type=path, required=True, help="prefix of the output files")
    measures = ("null_rate", "cross_entropy")
    add("--by", default="null_rate", choices=measures, help="measure to rank by (default: null_rate)")
    selection = parser.add_mutually_exclusive_group()
    threshold_help, keep_help = (
        "keep pairs with a score of at most X",
        "keep this share of the pairs, lowest scores first",
    )
    selection.add_argument("--threshold", type=finite_number, metavar="X", help=threshold_help)
    selection.add_argument("--keep", type=positive_share, metavar="SHARE", help=keep_help)
    add("--max-tokens", type=positive_integer, default=4096, help="tokens in a batch (default: 4096)")
    add("--cpu", action="store_true", help="do not use a GPU")


def run(arguments: argparse.Namespace) -> None:
    """Write the scores, and the pairs to keep."""
    prepare_fairseq_import()
    from relumt.analysis.filter import (
        MEASURES,
        CopiedPairs,
        encode_pairs,
        require_null_rows,
        score_pairs,
        select_lowest,
        write_scores,
        write_selected,
    )
    from relumt.runs.inference.loaded_model import load_model

    texts, by = (arguments.src, arguments.tgt), arguments.by
    if arguments.out.name in ("", ".."):
        raise UserError(f"--out {arguments.out}: expected a prefix of file names, found a folder")
    require_writable(arguments.out.parent)
    loaded, data = load_model(arguments.checkpoint, arguments.data, arguments.cpu)
    languages = loaded.task.cfg.source_lang, loaded.task.cfg.target_lang
    scores_path, *outputs = (Path(f"{arguments.out}.{suffix}") for suffix in ("scores", *languages))
    require_inputs_kept([*texts, loaded.path, *data.rglob("*")], [scores_path, *outputs])
    if not scores_path.exists() and (foreign := [path for path in outputs if path.exists()]):
        raise UserError(f"{foreign[0]}: exists, but not as an earlier output of relumt filter; choose another --out")
    require_not_swapped(texts, languages)
    if by == "null_rate":
        require_null_rows(loaded)
    pairs = CopiedPairs(texts, nearest_existing(arguments.out.parent))
    scored = score_pairs(loaded, encode_pairs(loaded, data, pairs), arguments.max_tokens)
    scores = write_scores(track_on_stderr(scored, str(loaded.path), len(pairs)), scores_path)
    ranks = scores[:, MEASURES.index(by)]
    print_summary(arguments, ranks, int(np.isnan(scores[:, MEASURES.index("cross_entropy")]).sum()))
    if arguments.threshold is not None:
        is_kept = ranks <= arguments.threshold
    elif arguments.keep is not None:
        is_kept = select_lowest(scores, by, arguments.keep)
    else:
        return
    write_selected(pairs, is_kept, (outputs[0], outputs[1]))
    print_status(f"{outputs[0]} and {outputs[1]}: {np.count_nonzero(is_kept)} of {len(pairs)} pairs by {by}")


def require_not_swapped(texts: tuple[Path, Path], languages: tuple[str, str]) -> None:
    """Raise UserError if the name of the source text ends in the target language, or the other way around."""
    for text, language, other in zip(texts, languages, reversed(languages), strict=True):
        if text.name.removesuffix(".gz").endswith(f".{other}"):
            raise UserError(f"{text}: expected {language}, but the file name says {other}; swap --src and --tgt")


def print_summary(arguments: argparse.Namespace, ranks: np.ndarray, num_too_long: int) -> None:
    """Print how many pairs were scored, and whether the scores to rank them by are all the same."""
    suffix = f", {num_too_long} too long for the model" if num_too_long else ""
    print_status(f"{arguments.out}.scores: {len(ranks)} pairs{suffix}")
    ranks = ranks[~np.isnan(ranks)]
    if len(ranks) > 1 and ranks.min() == ranks.max():
        print_status(
            f"every pair has the same {arguments.by}, {ranks[0]:g}, so it does not rank them; --keep ranks by "
            "cross_entropy"
        )
