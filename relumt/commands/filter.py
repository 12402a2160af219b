"""Remove sentence pairs that are not translations of each other, by null attention (Zhang et al. 2021, §5.2).

Source and target are texts with one sentence per line, plain, gzipped or pipes such as <(zcat FILE), tokenized like the
model's training text but without BPE. OUT.scores receives one line per pair: the null rate of cross-attention and the
cross-entropy per token. With --threshold or --keep, the selected pairs are written to OUT.SRC and OUT.TGT. Only
mechanisms with null rows, such as ReLA and ReLUFormer, can rank by null rate.
"""

import argparse
import os
from pathlib import Path

import numpy as np

from relumt.arguments import finite_number, positive_integer, positive_share, valid_path
from relumt.console import print_status, track_on_stderr
from relumt.errors import UserError
from relumt.fairseq_version import prepare_fairseq_import
from relumt.files import nearest_existing, require_inputs_kept, require_writable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--checkpoint",
        type=valid_path,
        required=True,
        help="a checkpoint, or the folder of a trained run for its scored one",
    )
    parser.add_argument(
        "--data", type=valid_path, help="data-bin with the model's dictionaries (default: that of the run)"
    )
    parser.add_argument("--src", type=valid_path, required=True, metavar="FILE", help="source text")
    parser.add_argument("--tgt", type=valid_path, required=True, metavar="FILE", help="target text")
    parser.add_argument("--out", type=valid_path, required=True, help="prefix of the output files")
    parser.add_argument(
        "--by",
        default="null_rate",
        choices=("null_rate", "cross_entropy"),
        help="measure to rank by (default: null_rate)",
    )
    parser.add_argument("--threshold", type=finite_number, metavar="X", help="keep pairs with a score of at most X")
    parser.add_argument(
        "--keep", type=positive_share, metavar="SHARE", help="keep this share of the pairs, lowest scores first"
    )
    parser.add_argument("--max-tokens", type=positive_integer, default=4096, help="tokens in a batch (default: 4096)")
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")


def run(arguments: argparse.Namespace) -> None:
    """Write the scores, and the pairs to keep."""
    check_arguments(arguments)
    prepare_fairseq_import()
    from relumt.analysis.corpus_filter import (
        MEASURES,
        CopiedPairs,
        encode_pairs,
        require_null_rows,
        select_lowest,
        select_up_to,
        write_scores,
        write_selected,
    )
    from relumt.analysis.pair_scoring import score_pairs
    from relumt.inference.loaded_model import load_model

    texts = arguments.src, arguments.tgt
    scores_path = Path(f"{arguments.out}.scores")
    require_inputs_kept([*texts, arguments.checkpoint], [scores_path])
    pairs = CopiedPairs(texts, nearest_existing(arguments.out.parent))
    loaded, data = load_model(arguments.checkpoint, arguments.data, arguments.cpu)
    if arguments.by == "null_rate":
        require_null_rows(loaded)
    languages = loaded.task.cfg.source_lang, loaded.task.cfg.target_lang
    require_not_swapped(texts, languages)
    outputs = Path(f"{arguments.out}.{languages[0]}"), Path(f"{arguments.out}.{languages[1]}")
    require_inputs_kept([*texts, loaded.path, *data.rglob("*")], [scores_path, *outputs])
    require_own_outputs(outputs, scores_path)
    scored = score_pairs(loaded, encode_pairs(loaded, data, pairs), arguments.max_tokens)
    scores = write_scores(track_on_stderr(scored, str(loaded.path), len(pairs)), scores_path)
    ranks, cross_entropy = scores[:, MEASURES.index(arguments.by)], scores[:, MEASURES.index("cross_entropy")]
    print_summary(arguments, ranks, int(np.isnan(cross_entropy).sum()))
    if arguments.threshold is not None:
        is_kept = select_up_to(scores, arguments.by, arguments.threshold)
    elif arguments.keep is not None:
        is_kept = select_lowest(scores, arguments.by, arguments.keep)
    else:
        return
    write_selected(pairs, is_kept, outputs)
    kept = f"{np.count_nonzero(is_kept)} of {len(pairs)} pairs by {arguments.by}"
    print_status(f"{outputs[0]} and {outputs[1]}: {kept}")


def check_arguments(arguments: argparse.Namespace) -> None:
    """Raise UserError for arguments that contradict each other, or an --out that cannot be written."""
    if arguments.threshold is not None and arguments.keep is not None:
        raise UserError("--threshold and --keep exclude each other; give one of them")
    for path in (arguments.src, arguments.tgt):
        if not os.path.exists(path):
            raise UserError(f"{path}: no such file; check the path")
    if os.path.samefile(arguments.src, arguments.tgt):
        raise UserError(f"{arguments.src}: given as --src and as --tgt; give two texts")
    if arguments.out.name in ("", ".."):
        raise UserError(f"--out {arguments.out}: expected a prefix of file names, found a folder")
    require_writable(arguments.out.parent)


def require_not_swapped(texts: tuple[Path, Path], languages: tuple[str, str]) -> None:
    """Raise UserError if the name of the source text ends in the target language, or the other way around."""
    for text, language, other in zip(texts, languages, reversed(languages), strict=True):
        if text.name.removesuffix(".gz").endswith(f".{other}"):
            raise UserError(f"{text}: expected {language}, but the file name says {other}; swap --src and --tgt")


def require_own_outputs(outputs: tuple[Path, Path], scores_path: Path) -> None:
    """Raise UserError if there is a text that an earlier filtering did not write, as it has no scores.

    Scores alone are refused beside it, too: later they would be taken for those of an earlier filtering.
    """
    for output in outputs:
        if output.is_file() and not scores_path.exists():
            raise UserError(
                f"{output}: exists, and there is no {scores_path.name} of an earlier filtering beside it; choose "
                "another --out, or remove the file"
            )


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
