"""Remove sentence pairs that are not translations of each other, by a model's null attention ([RL] section 5.2).

Source and target are texts with one sentence per line, plain or gzipped, tokenized like the model's training text but
without BPE. OUT.scores receives one line per pair: the null rate of cross-attention and the cross-entropy per token.
With --threshold or --keep, the selected pairs are written to OUT.SRC and OUT.TGT. Only mechanisms with null rows, such
as ReLA and ReLUFormer, can rank by null rate.
"""

import argparse
import math
from pathlib import Path

import numpy as np

from relumt.console import print_status, quiet_fairseq, track_on_stderr
from relumt.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--checkpoint", type=Path, required=True, help="a checkpoint, or the folder of a trained run for its scored one"
    )
    parser.add_argument("--data", type=Path, help="data-bin with the model's dictionaries (default: that of the run)")
    parser.add_argument("--src", type=Path, required=True, metavar="FILE", help="source text")
    parser.add_argument("--tgt", type=Path, required=True, metavar="FILE", help="target text")
    parser.add_argument("--out", type=Path, required=True, help="prefix of the output files")
    parser.add_argument(
        "--by",
        default="null_rate",
        choices=("null_rate", "cross_entropy"),
        help="measure to rank by (default: null_rate)",
    )
    parser.add_argument("--threshold", type=float, metavar="X", help="keep pairs with a score of at most X")
    parser.add_argument("--keep", type=float, metavar="SHARE", help="keep this share of the pairs, lowest scores first")
    parser.add_argument("--max-tokens", type=int, default=4096, help="tokens in a batch (default: 4096)")
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")


def run(arguments: argparse.Namespace) -> None:
    """Write the scores, and the pairs to keep."""
    check_arguments(arguments)
    quiet_fairseq()
    from relumt.analysis.corpus_filter import (
        MEASURES,
        count_pairs,
        encode_pairs,
        require_null_rows,
        select_pairs,
        write_scores,
        write_selected,
    )
    from relumt.analysis.loaded_model import load_model
    from relumt.analysis.pair_scoring import score_pairs

    texts = arguments.src, arguments.tgt
    num_pairs = count_pairs(*texts)
    loaded, data = load_model(arguments.checkpoint, arguments.data, arguments.cpu)
    if arguments.by == "null_rate":
        require_null_rows(loaded)
    languages = loaded.task.cfg.source_lang, loaded.task.cfg.target_lang
    outputs = [Path(f"{arguments.out}.{language}") for language in languages]
    check_files(texts, outputs, languages)
    scored = score_pairs(loaded, encode_pairs(loaded, data, *texts), arguments.max_tokens)
    progress = track_on_stderr(scored, str(loaded.path), num_pairs)
    scores = write_scores(progress, Path(f"{arguments.out}.scores"))
    ranks, cross_entropy = scores[:, MEASURES.index(arguments.by)], scores[:, MEASURES.index("cross_entropy")]
    print_summary(arguments, ranks, int(np.isnan(cross_entropy).sum()))
    if arguments.threshold is None and arguments.keep is None:
        return
    is_kept = select_pairs(scores, arguments.by, arguments.threshold, arguments.keep)
    for text, output in zip(texts, outputs, strict=True):
        write_selected(text, is_kept, output)
    kept = f"{np.count_nonzero(is_kept)} of {num_pairs} pairs by {arguments.by}"
    print_status(f"{outputs[0]} and {outputs[1]}: {kept}")


def check_arguments(arguments: argparse.Namespace) -> None:
    """Raise UserError for invalid arguments."""
    if arguments.threshold is not None and arguments.keep is not None:
        raise UserError("--threshold and --keep exclude each other; give one of them")
    if arguments.threshold is not None and math.isnan(arguments.threshold):
        raise UserError("--threshold must be a number, not nan")
    if arguments.src.resolve() == arguments.tgt.resolve():
        raise UserError(f"{arguments.src}: given as --src and as --tgt; give two texts")
    if arguments.keep is not None and not 0 < arguments.keep <= 1:
        raise UserError(f"--keep must be above 0 and at most 1, not {arguments.keep:g}")
    if arguments.max_tokens < 1:
        raise UserError(f"--max-tokens must be positive, not {arguments.max_tokens}")


def check_files(texts: tuple[Path, Path], outputs: list[Path], languages: tuple[str, str]) -> None:
    """Raise UserError if source and target are swapped, or if an output would overwrite an input."""
    for text, language, other in zip(texts, languages, reversed(languages), strict=True):
        if text.name.removesuffix(".gz").endswith(f".{other}"):
            raise UserError(f"{text}: expected {language}, but the file name says {other}; swap --src and --tgt")
    for output in outputs:
        if output.resolve() in {text.resolve() for text in texts}:
            raise UserError(f"{output}: would overwrite an input text; choose another --out")


def print_summary(arguments: argparse.Namespace, ranks: np.ndarray, num_too_long: int) -> None:
    """Print how many pairs were scored, and whether the scores to rank them by are all the same."""
    suffix = f", {num_too_long} too long for the model" if num_too_long else ""
    print_status(f"{arguments.out}.scores: {len(ranks)} pairs{suffix}")
    ranks = ranks[~np.isnan(ranks)]
    if len(ranks) > 1 and ranks.min() == ranks.max():
        print_status(f"every pair has the same {arguments.by}, {ranks[0]:g}, so it cannot rank them")
